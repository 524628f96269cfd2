"""Version sets: PEP 440 as `packaging` has it, the same semantics on dotted versions, and words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version as Reference

from doctor.core.sets import VersionSet
from doctor.core.versions import Dotted, Name, Pep440
from doctor.edition.load import load_matrix

number = st.integers(0, 3).map(str)
release = st.lists(number, min_size=1, max_size=3).map(".".join)
suffix = st.sampled_from(("", "", "", "a0", "rc1", ".post1", ".dev2"))
local = st.sampled_from(("", "", "", "+cu130"))
versions = st.builds(lambda base, tail, label: base + tail + label, release, suffix, local)
bounds = st.builds(lambda base, tail: base + tail, release, suffix)
plain = st.builds(
    lambda operator, bound: operator + bound, st.sampled_from(("<", ">", "<=", ">=", "==", "!=")), bounds
)
starred = st.builds(lambda operator, base: f"{operator}{base}.*", st.sampled_from(("==", "!=")), release)
close = st.lists(number, min_size=2, max_size=3).map(lambda parts: "~=" + ".".join(parts))
sets = st.lists(st.one_of(plain, starred, close), min_size=1, max_size=2).map(",".join)


@settings(max_examples=1500, deadline=None)
@given(versions, sets)
def test_the_same_as_packaging(version: str, spec: str) -> None:
    wanted = SpecifierSet(spec).contains(Reference(version), prereleases=True)
    assert (Pep440(version) in VersionSet(spec, "pep440")) is wanted


def test_the_same_as_packaging_on_every_pin_of_the_matrix() -> None:
    edition = load_matrix().edition
    schemes = {row.component: row.scheme for row in edition.components}
    released = {row.component: [] for row in edition.releases}
    for row in edition.releases:
        released[row.component].append(row.version)
    asked = {pair for row in edition.releases for pair in row.requires.items() if pair[1] != "*"}
    counted = 0
    for component, spec in sorted(asked):
        if schemes[component] != "pep440" or component not in released:
            continue
        for version in released[component]:
            wanted = SpecifierSet(spec).contains(version.key, prereleases=True)
            assert (version in VersionSet(spec, "pep440")) is wanted, (component, spec, version)
            counted += 1
    assert counted > 1000


@pytest.mark.parametrize(
    ("spec", "inside", "outside"),
    [
        (">=580.65.06", ("580.65.06", "580.126.09", "595.1"), ("580.65", "570.211.01")),
        ("==12.9.*", ("12.9", "12.9.1"), ("12.90", "12.8.9", "13.0")),
        ("==12.0", ("12", "12.0.0"), ("12.0.1",)),
        ("~=10.14.1", ("10.14.1", "10.14.9.2"), ("10.14.0", "10.15.0")),
        (">=581,<595.71.05", ("581", "590.48.01"), ("595.71.05", "580.178.04")),
        ("!=1.17.4", ("1.17.5",), ("1.17.4", "1.17.4.0")),
    ],
)
def test_dotted(spec: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    wanted = VersionSet(spec, "dotted")
    assert [v for v in inside if Dotted(v) not in wanted] == []
    assert [v for v in outside if Dotted(v) in wanted] == []


def test_words_and_everything() -> None:
    assert Name("open") in VersionSet("open|proprietary", "name")
    assert Name("open") in VersionSet("==open", "name")
    assert Name("nouveau") not in VersionSet("open|proprietary", "name")
    assert Dotted("1") in VersionSet("*", "dotted")
    assert "1" not in VersionSet("*", "dotted")


@pytest.mark.parametrize("spec", [">=", "580", "=>580", "~=580", ">=580.*", ">=1,,<2", ">=x"])
def test_what_is_no_set(spec: str) -> None:
    with pytest.raises(ValueError, match="`"):
        VersionSet(spec, "dotted")


def test_the_one_version_of_a_set() -> None:
    assert VersionSet("==2.14.0", "pep440").exact == Pep440("2.14.0")
    for spec in ("==2.14.*", ">=2.14.0", "==2.14.0,!=2.14.1"):
        assert VersionSet(spec, "pep440").exact is None

"""Order and identity of versions, scheme by scheme."""

import itertools
import shutil
import subprocess

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from doctor.core.versions import SCHEMES, Deb, Dotted, Name, Pep440, Rpm, parse

LESS = "<"
SAME = "="

DOTTED = [
    ("580.126.09", SAME, "580.126.9"),
    ("12.0", SAME, "12"),
    ("12.10", ">", "12.9"),
    ("450.51.05", LESS, "450.80.02"),
    ("580.95.05", LESS, "580.105.08"),
    ("580.142", ">", "580.126.20"),
    ("570.26", LESS, "570.124.06"),
    ("6.8.0-124-generic", SAME, "6.8.0"),
    ("6.8.0-124-generic", LESS, "6.11"),
    ("v1.18.0", ">", "1.17.9"),
    ("R580", SAME, "580"),
    ("2.28", LESS, "2.39"),
    ("0.0", SAME, "0"),
]

PEP440 = [
    ("2.14.0+cu130", ">", "2.14.0"),
    ("0.33.0rc1", LESS, "0.33.0"),
    ("1.0.dev1", LESS, "1.0a1"),
    ("1.0.post1", ">", "1.0"),
    ("1!0.1", ">", "9.9"),
    ("1.10", ">", "1.9"),
    ("1.0", SAME, "1"),
]

DEB = [
    ("580.126.09-0ubuntu1", SAME, "580.126.9-0ubuntu1"),
    ("580.95.05-0ubuntu1", LESS, "580.126.09-0ubuntu0.24.04.1"),
    ("580.126.09-0ubuntu0.24.04.1", LESS, "580.126.09-0ubuntu1"),
    ("1.0~rc1-1", LESS, "1.0-1"),
    ("1.0~~", LESS, "1.0~"),
    ("1:1.0", ">", "2.0"),
    ("0:1.0", SAME, "1.0"),
    ("1.0", SAME, "1.0-0"),
    ("1.0-1", LESS, "1.0-1+b1"),
    ("1.0-1~bpo12+1", LESS, "1.0-1"),
    ("1.0+dfsg", ">", "1.0"),
    ("1.0a", LESS, "1.0+"),
    ("1.0-1-1", ">", "1.0-1"),
    ("610.43.02-1", LESS, "610.57.04-1"),
    ("1.2.3-10", ">", "1.2.3-9"),
]

RPM = [
    ("580.126.09-1.el9", SAME, "580.126.9-1.el9"),
    ("3:580.95.05-1.el9", ">", "580.126.09-1.el9"),
    ("3:580.95.05-1.el9", LESS, "3:580.126.09-1.el9"),
    ("5.14.0-503.11.1.el9_5", LESS, "5.14.0-570.12.1.el9_6"),
    ("5.14.0-503.11.1.el9_5", LESS, "5.14.0-503.40.1.el9_5"),
    ("1.0", LESS, "1.0a"),
    ("1.0a", LESS, "1.0.1"),
    ("10xyz", LESS, "10.1xyz"),
    ("xyz.4", LESS, "8"),
    ("5.5p9", LESS, "5.5p10"),
    ("6.0.rc1", ">", "6.0"),
    ("1.05", SAME, "1.5"),
    ("2_0", SAME, "2.0"),
    ("1.0.", SAME, "1.0"),
    ("1.0~rc1", LESS, "1.0"),
    ("1.0~rc1~git1", LESS, "1.0~rc1"),
    ("1.0^git1", ">", "1.0"),
    ("1.0^git1", LESS, "1.0.1"),
    ("1.0^git1", LESS, "1.0a"),
    ("1.0~rc1^git1", ">", "1.0~rc1"),
    ("1.0~rc1^git1", LESS, "1.0"),
    ("1.0^git1~pre", LESS, "1.0^git1"),
    ("1.0^a", LESS, "1.0^b"),
]

TABLE = [
    (scheme, *case)
    for scheme, cases in (("dotted", DOTTED), ("pep440", PEP440), ("deb", DEB), ("rpm", RPM))
    for case in cases
]


@pytest.mark.parametrize(("scheme", "left", "order", "right"), TABLE)
def test_order(scheme, left, order, right):
    a, b = parse(left, scheme), parse(right, scheme)
    assert (a < b, a == b, a > b) == (order == LESS, order == SAME, order == ">")
    assert (b > a, b == a, b < a) == (order == LESS, order == SAME, order == ">")
    if order == SAME:
        assert hash(a) == hash(b)


@pytest.mark.parametrize(
    ("scheme", "raw"),
    [
        ("dotted", ""),
        ("dotted", "   "),
        ("dotted", "latest"),
        ("dotted", "R"),
        ("dotted", ".5"),
        ("dotted", "\u0665.1"),
        ("pep440", "580.126-09~x"),
        ("deb", "x:1.0"),
        ("deb", "\u00b2:1.0"),
        ("deb", "1:"),
        ("deb", "1.0 rc1"),
        ("deb", "1.0_1"),
        ("rpm", "x:1.0"),
        ("rpm", "1.0\x1b[31m"),
        ("rpm", "1.0\u00e9"),
        ("name", ""),
    ],
)
def test_text_that_is_not_of_the_scheme(scheme, raw):
    with pytest.raises(ValueError, match=r"."):
        parse(raw, scheme)


@pytest.mark.parametrize("raw", ["580.126.09", "v1.18.0", "12.0", "6.8.0-124-generic"])
def test_raw_text_is_kept(raw):
    version = Dotted(f"  {raw} ")
    assert (version.raw, str(version), repr(version)) == (raw, raw, f"Dotted('{raw}')")


def test_parts_keep_zeros_and_major_is_the_first():
    assert Dotted("12.0").parts == (12, 0)
    assert Dotted("580.126.09").parts == (580, 126, 9)
    assert Dotted("580.126.09").major == 580


def test_schemes_do_not_compare():
    for left, right in itertools.permutations(("dotted", "pep440", "deb", "rpm", "name"), 2):
        a, b = parse("1.0", left), parse("1.0", right)
        assert a != b
        with pytest.raises(TypeError):
            _ = a < b


def test_names_have_no_order():
    assert Name("ubuntu-24.04") == Name("ubuntu-24.04")
    assert Name("ubuntu-24.04") != Name("ubuntu-22.04")
    for compare in ("__lt__", "__gt__", "__le__", "__ge__"):
        with pytest.raises(TypeError, match="no order"):
            getattr(Name("a"), compare)(Name("b"))


def test_every_scheme_parses_by_its_own_name():
    assert {scheme: kind.scheme for scheme, kind in SCHEMES.items()} == {s: s for s in SCHEMES}


# --- properties -----------------------------------------------------------------------------------

numbers = st.lists(st.integers(0, 999), min_size=1, max_size=4)
DEB_ALPHABET = "0129abz.+~"
deb_texts = st.builds(
    lambda epoch, head, tail, revision: f"{epoch}{head}{tail}{revision}",
    st.sampled_from(["", "0:", "1:", "10:"]),
    st.sampled_from("0129"),
    st.text(DEB_ALPHABET, max_size=6),
    st.one_of(st.just(""), st.text(DEB_ALPHABET, min_size=1, max_size=4).map(lambda text: f"-{text}")),
)
rpm_texts = st.text("0129abz.+~^_", min_size=1, max_size=8)
pep440_texts = st.builds(
    lambda release, rest: ".".join(map(str, release)) + rest,
    numbers,
    st.sampled_from(["", "rc1", "rc2", "a1", ".dev1", ".post1", "+cu130", "+cu129"]),
)


@given(numbers, numbers)
def test_dotted_orders_as_numbers(left, right):
    a, b = Dotted(".".join(map(str, left))), Dotted(".".join(map(str, right)))
    width = max(len(left), len(right))
    padded = [[*part, *[0] * (width - len(part))] for part in (left, right)]
    assert (a < b, a == b) == (padded[0] < padded[1], padded[0] == padded[1])


@given(numbers, st.integers(1, 3))
def test_dotted_ignores_leading_zeros(parts, zeros):
    plain = Dotted(".".join(map(str, parts)))
    padded = Dotted(".".join("0" * zeros + str(part) for part in parts))
    assert plain == padded
    assert hash(plain) == hash(padded)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (Deb, deb_texts),
        (Rpm, rpm_texts),
        (Pep440, pep440_texts),
    ],
    ids=["deb", "rpm", "pep440"],
)
def test_order_is_total(kind, texts):
    @given(texts, texts, texts)
    def check(x, y, z):
        a, b, c = sorted((kind(x), kind(y), kind(z)))
        assert a <= b <= c
        assert a <= c
        assert (kind(x) == kind(y)) == (hash(kind(x)) == hash(kind(y)) and not kind(x) < kind(y) > kind(x))
        assert sum((kind(x) < kind(y), kind(x) == kind(y), kind(x) > kind(y))) == 1

    check()


@given(rpm_texts, rpm_texts)
def test_rpm_order_is_rpmvercmp(x, y):
    a, b = Rpm(x), Rpm(y)
    assert (a > b) - (a < b) == _rpmvercmp(x, y)


def _rpmvercmp(one, two):
    """The rules of rpm-version(7) walked as they are written, segment by segment."""
    while True:
        one, two = one.lstrip(".+_"), two.lstrip(".+_")
        if one[:1] == "~" or two[:1] == "~":
            if one[:1] != two[:1]:
                return -1 if one[:1] == "~" else 1
            one, two = one[1:], two[1:]
            continue
        if one[:1] == "^" or two[:1] == "^":
            if one[:1] != two[:1]:
                other = two if one[:1] == "^" else one
                newer = not other
                return (1 if newer else -1) * (1 if one[:1] == "^" else -1)
            one, two = one[1:], two[1:]
            continue
        if not one or not two:
            return bool(one) - bool(two)
        is_number = one[0].isdigit()
        first, one = _segment(one, is_number)
        second, two = _segment(two, is_number)
        if not second:
            return 1 if is_number else -1
        left, right = (int(first), int(second)) if is_number else (first, second)
        if left != right:
            return 1 if left > right else -1


def _segment(text, is_number):
    length = len(list(itertools.takewhile(lambda c: c.isdigit() if is_number else c.isalpha(), text)))
    return text[:length], text[length:]


dpkg = shutil.which("dpkg")


@pytest.mark.skipif(dpkg is None, reason="no dpkg on this host: deb order is held by the table only")
@settings(max_examples=60, deadline=None)
@given(deb_texts, deb_texts)
@example("1.0", "1.0-0")
@example("1.0~", "1.0")
@example("1.0-1~", "1.0-1")
@example("1.0a", "1.0+")
@example("0", "0~")
def test_deb_order_is_dpkgs(x, y):
    assume(x != y)
    a, b = Deb(x), Deb(y)
    wanted = "lt" if a < b else "eq" if a == b else "gt"
    result = subprocess.run([dpkg, "--compare-versions", x, wanted, y], check=False, capture_output=True)
    assert result.returncode == 0, f"dpkg denies `{x} {wanted} {y}`: {result.stderr.decode()}"


@pytest.mark.skipif(dpkg is None, reason="no dpkg on this host: deb order is held by the table only")
@pytest.mark.parametrize(("left", "order", "right"), DEB)
def test_deb_table_is_dpkgs(left, order, right):
    word = {LESS: "lt", SAME: "eq", ">": "gt"}[order]
    assert subprocess.run([dpkg, "--compare-versions", left, word, right], check=False).returncode == 0

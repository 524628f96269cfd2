"""Site overlays: what they add and forbid, that answers say so, and every way to spoil one."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from doctor.cli import main
from doctor.commands.matrix_pick import pick
from doctor.config import overlay_folders
from doctor.core.chain import components_of
from doctor.core.goal import Term, parse_goal
from doctor.core.host import Environment
from doctor.core.matrix import Matrix
from doctor.core.resolve import ask
from doctor.core.rows.site import Overlay, SiteRule
from doctor.core.sets import VersionSet
from doctor.core.site import under_rules
from doctor.core.solve.universe import Universe
from doctor.core.stack import WhyReport
from doctor.core.target import make_target
from doctor.core.why import why
from doctor.edition.load import load_matrix
from doctor.edition.overlay import compile_overlays
from doctor.errors import ConfigError, MatrixError, UsageError

HEAD = 'name: site-a\nas_of: "2026-11-30"\n'
DEFAULTS = 'defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: measured}\n'
FORBID = """\
forbid:
- component: driver
  versions: ["==595.*", "==620.*"]
  reason: "GPUs fell off the bus under load"
  source: ["ticket 4711"]
"""
PIN = """\
pin:
- component: driver
  versions: ["==580.*"]
  reason: "one branch for the whole site"
  source: ["decision of 2026-09"]
"""
MIRROR = """\
mirror:
- component: vllm
  versions: ["==0.30.0", "==0.31.0"]
  reason: "no other wheel is on our mirror"
  source: ["listing of the mirror, 2026-11-20"]
"""
RELEASE = """\
driver_releases:
- version: "580.185.01"
  reason: "given to us before its release"
  source: ["mail of the vendor"]
"""
VLLM = """\
defaults: {as_of: "2026-11-30", review_by: "2027-05-31", confidence: measured, component: vllm}
releases:
- version: "0.33.0+site1"
  released: "2026-11-20"
  cuda: "13.0"
  compute_capability: ["9.0"]
  cpu: [x86_64]
  requires: {python: ">=3.10,<3.15", torch: "==2.14.0"}
  source: ["built from our fork"]
"""
BOX = {"gpus": ["10de:2335"], "os": "ubuntu-24.04", "kernel": "6.8", "python": "3.12"}
EDITION = load_matrix().edition


@pytest.fixture
def site(tmp_path: Path) -> Any:
    """A function: an overlay directory with these rules in overlay.yaml, and other files by name."""

    def make(rules: str = "", *, name: str = "site-a", **files: str) -> str:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "overlay.yaml").write_text(HEAD.replace("site-a", name) + DEFAULTS + rules)
        for file, text in files.items():
            (folder / f"{file}.yaml").write_text(text)
        return str(folder)

    return make


def with_overlays(*folders: str) -> Universe:
    return Universe(compile_overlays(EDITION, folders))


def chosen(universe: Universe, goal: str, **machine: Any) -> Any:
    target = make_target(universe.matrix, **{**BOX, **machine})
    return pick(universe, target, parse_goal(goal))


# --- what they do ---------------------------------------------------------------------------------


def test_without_overlays_nothing_is_said_of_them() -> None:
    report = chosen(Universe(Matrix(EDITION)), "vllm==0.33.0")
    assert (report.overlays, report.overlay_effect) == ((), ())
    assert not [link for link in report.because if link.overlay]


def test_a_forbidden_version_is_not_taken_and_the_answer_says_why(site: Any) -> None:
    universe = with_overlays(site(FORBID))
    report = chosen(universe, "driver>=590")
    assert report.components["driver"].partition(".")[0] not in ("595", "620")
    (effect,) = report.overlay_effect
    assert (effect.relation, effect.component) == ("overlay-forbid", "driver")
    assert effect.overlay == "site-a: overlay.yaml:5"
    assert effect.source == ("ticket 4711",)
    assert "GPUs fell off the bus under load" in effect.text


def test_a_rule_without_a_say_decides_nothing(site: Any) -> None:
    report = chosen(with_overlays(site(FORBID)), "driver==580.178.04")
    assert (report.overlays, report.overlay_effect) == (("site-a",), ())


def test_a_pin_leaves_its_branch_alone(site: Any) -> None:
    universe = with_overlays(site(PIN))
    assert chosen(universe, "vllm==0.33.0").components["driver"].startswith("580.")
    report = chosen(universe, "driver>=595")
    assert report.compatible == "no"
    link = next(link for link in report.conflict if link.relation == "overlay-pin")
    assert link.overlay == "site-a: overlay.yaml:5"
    assert [effect.text for effect in report.overlay_effect] == [
        "the answer is no; without overlay site-a it would be yes"
    ]
    assert all("580." in hint.text for hint in report.hints if "driver" in hint.text)


def test_what_is_installed_and_forbidden_does_not_hold(site: Any) -> None:
    universe = with_overlays(site(FORBID))
    target = make_target(universe.matrix, **BOX, have=[Term(component="driver", spec="==595.91.07")])
    report = why(universe, target, parse_goal("present"), question="")
    assert report.compatible == "no"
    assert {link.relation for link in report.because} == {"have:driver", "overlay-forbid"}
    assert report.overlay_effect


def test_a_mirror_limits_what_comes_and_not_what_is_there(site: Any) -> None:
    universe = with_overlays(site(MIRROR))
    assert chosen(universe, "vllm").components["vllm"] == "0.31.0"
    there = [Term(component="vllm", spec="==0.33.0")]
    assert chosen(universe, "vllm", have=there).components["vllm"] == "0.33.0"


def test_a_driver_release_of_the_site_is_one_of_its_branch(site: Any) -> None:
    universe = with_overlays(site(PIN + RELEASE))
    report = chosen(universe, "vllm==0.33.0")
    assert report.components["driver"] == "580.185.01"
    assert [link.relation for link in report.overlay_effect] == ["overlay-row"]
    assert universe.matrix.edition.digest != EDITION.digest


def test_a_release_of_the_site_is_chosen_and_named(site: Any) -> None:
    universe = with_overlays(site(vllm=VLLM))
    report = chosen(universe, "vllm>=0.30")
    assert report.components["vllm"] == "0.33.0+site1"
    assert "site-a: vllm.yaml:3" in {link.overlay for link in report.because}
    assert "overlay-row" in {link.relation for link in report.overlay_effect}
    # Without its row nothing is known of it.
    plain = Universe(Matrix(EDITION))
    assert chosen(plain, "vllm==0.33.0+site1").compatible == "unknown"


def test_later_overlays_stand_on_earlier_ones(site: Any) -> None:
    universe = with_overlays(site(RELEASE, name="one"), site(PIN, name="two"))
    report = chosen(universe, "vllm==0.33.0")
    assert report.overlays == ("one", "two")
    assert report.components["driver"] == "580.185.01"


def test_a_system_can_be_forbidden(site: Any) -> None:
    rule = FORBID.replace("component: driver", "component: os").replace(
        '["==595.*", "==620.*"]', '["ubuntu-22.04|rocky-8"]'
    )
    universe = with_overlays(site(rule))
    assert chosen(universe, "torch", os="ubuntu-22.04", kernel="5.15").compatible == "no"
    assert chosen(universe, "torch").compatible == "yes"


# --- the property ---------------------------------------------------------------------------------

SETS = {
    "driver": ("==580.*", "==595.*", ">=600", "<570", "==620.70.06", "==580.178.04"),
    "vllm": ("==0.33.0", ">=0.25", "<0.20", "==0.30.*"),
    "torch": (">=2.12", "==2.10.*", "<2.6"),
    "kernel-modules": ("open", "proprietary"),
    "python": ("==3.12.*", ">=3.13"),
}
GOALS = ("vllm", "vllm>=0.20", "torch>=2.4", "vllm==0.33.0", "driver>=570", "torch==2.10.0,policy=harden")
CARDS = ("10de:2335", "10de:20b2", "10de:1eb8", "10de:1db6", "10de:2901x8")


def random_rules(chance: random.Random) -> tuple[tuple[Any, SiteRule], ...]:
    rules = []
    for _ in range(chance.randint(1, 4)):
        component = chance.choice(tuple(SETS))
        versions = tuple(chance.sample(SETS[component], chance.randint(1, 2)))
        rule = SiteRule(
            component=component,
            versions=versions,
            reason="a test",
            source=("a test",),
            as_of="2026-11-30",
            confidence="measured",
            review_by="2027-11-30",
        )
        rules.append((chance.choice(("forbid", "forbid", "pin", "mirror")), rule))
    return tuple(rules)


def breaks(matrix: Matrix, component: str, version: str, kind: str, rule: SiteRule) -> bool:
    """A second opinion: the text of a set against the text of a version."""
    row = matrix.component(component)
    assert row is not None
    universe = Universe(matrix)
    inside = any(
        VersionSet(spec, row.scheme).has(universe.version(component, version)) for spec in rule.versions
    )
    return inside if kind == "forbid" else not inside


@pytest.mark.parametrize("seed", range(6))
def test_a_forbidding_row_is_never_violated(seed: int) -> None:
    """Of 20 random overlays each, no stack breaks a rule; and a rule alone turns a yes into a no."""
    chance = random.Random(seed)
    for _ in range(20):
        rules = random_rules(chance)
        overlay = Overlay(name="x", as_of="2026-11-30", digest="", rules=rules)
        universe = Universe(Matrix(EDITION, overlays=(overlay,), plain=EDITION))
        have = [
            Term(component="driver", spec=f"=={chance.choice(('580.126.20', '595.91.07', '570.133.20'))}")
        ]
        target = make_target(
            universe.matrix,
            gpus=[chance.choice(CARDS)],
            os="ubuntu-24.04",
            kernel="6.8",
            have=have if chance.random() < 0.6 else (),
        )
        goal = parse_goal(chance.choice(GOALS))
        found = ask(universe, target, goal, mode="pick", policy=goal.policy or "repair")
        if found.answer != "yes":
            continue
        for name, version in components_of(found).items():
            for kind, rule in rules:
                if rule.component == name and not (kind == "mirror" and version == target.version(name)):
                    assert not breaks(universe.matrix, name, version, kind, rule), (goal.text, rules, version)


def test_every_known_driver_forbidden_leaves_no_stack(site: Any) -> None:
    rule = FORBID.replace('["==595.*", "==620.*"]', '["*"]')
    report = chosen(with_overlays(site(rule)), "vllm")
    assert report.compatible == "no"
    assert "overlay-forbid" in {link.relation for link in report.conflict}


# --- faults ---------------------------------------------------------------------------------------


def problems(*folders: str) -> list[str]:
    with pytest.raises(MatrixError) as caught:
        compile_overlays(EDITION, folders)
    return [problem.rpartition("/")[2] for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("rules", "wanted"),
    [
        (
            FORBID.replace("driver", "drivr", 1),
            "overlay.yaml:5: forbid[drivr].component: the component `drivr` is not in `components` (did you",
        ),
        (
            FORBID.replace("==620.*", "620.*"),
            "overlay.yaml:6: forbid[driver].versions: driver: `620.*` is not a set such as `>=3.11,<3.15`",
        ),
        (FORBID.replace("reason", "resaon"), "forbid[driver].resaon: unknown field (did you mean `reason`?)"),
        (FORBID.replace('  reason: "GPUs fell off the bus under load"\n', ""), "`reason` is missing"),
        (
            FORBID.replace('["==595.*", "==620.*"]', '"==595.*"'),
            "forbid[driver].versions: a list is wanted, not text",
        ),
        (FORBID.replace("ticket 4711", "ops"), "`ops` is no key of `sources`"),
        (FORBID + FORBID, "`forbid` stands here twice"),
        ("forbids:\n- x\n", "forbids: unknown section (did you mean `forbid`?)"),
        (FORBID + '  as_of: "2026-12-24"\n', "`2026-12-24` is later than the edition's `2026-11-30`"),
        (FORBID + '  review_by: "2026-01-01"\n', "`2026-01-01` is not later than `as_of`"),
        (FORBID + "  overlay: somebody\n", "forbid[driver].overlay: unknown field"),
        (RELEASE.replace("580.185.01", "583.1"), "`583.1` is of no branch in `branches`"),
        (RELEASE.replace("580.185.01", "580.178.04"), "`580.178.04` is a release of R580 already"),
        (RELEASE.replace('"580.185.01"', "580.185"), "`580.185` reads as a number here: put it in quotes"),
    ],
)
def test_faults_of_rules(site: Any, rules: str, wanted: str) -> None:
    found = problems(site(rules))
    assert any(wanted in problem for problem in found), found
    assert len(found) <= 2


def test_an_overlay_adds_and_replaces_nothing(site: Any) -> None:
    found = problems(site(vllm=VLLM.replace("+site1", "")))
    assert (
        "vllm.yaml:3: releases[0.33.0].version: `vllm 0.33.0` has a row already, at matrix 2026.11" in found
    )


def test_a_row_of_the_site_has_to_fit_into_the_matrix(site: Any) -> None:
    found = problems(site(vllm=VLLM.replace('"9.0"', '"9.9"')))
    assert any("`9.9` is no capability of any architecture" in problem for problem in found)


def test_all_faults_of_all_overlays_come_at_once(site: Any) -> None:
    one = site(FORBID.replace("driver", "drivr", 1), name="one")
    two = site(RELEASE.replace("580.185.01", "583.1"), name="two", vllm=VLLM.replace("cuda:", "cudda:"))
    assert len(problems(one, two)) == 3


def test_two_overlays_have_two_names(site: Any, tmp_path: Path) -> None:
    one = site(FORBID, name="one")
    other = tmp_path / "other"
    other.mkdir()
    (other / "overlay.yaml").write_text((Path(one) / "overlay.yaml").read_text())
    assert any("two overlays are called `one`" in problem for problem in problems(one, str(other)))


@pytest.mark.parametrize("file", ["causes", "edition", "engine"])
def test_files_that_an_overlay_has_no_part_in(site: Any, file: str) -> None:
    assert any("no such part of a matrix or of an overlay" in p for p in problems(site(**{file: "a: b\n"})))


def test_a_folder_without_its_head(tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml").write_text(VLLM)
    assert any("the file is missing" in problem for problem in problems(str(tmp_path)))


def test_the_edition_itself_has_no_fault_under_an_empty_overlay(site: Any) -> None:
    matrix = compile_overlays(EDITION, [site()])
    assert matrix.edition.rows() == EDITION.rows()


# --- the command line -----------------------------------------------------------------------------


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        out = capsys.readouterr()
        return code, out.out, out.err

    return call


PICK = ("matrix", "pick", "--gpu", "H200", "--os", "ubuntu-24.04", "--kernel", "6.8", "--goal", "driver>=595")
HOSTS = Path(__file__).parents[1] / "hosts"


def test_pick_and_why_take_overlays(run: Any, site: Any) -> None:
    folder = site(PIN)
    code, text, complaint = run(*PICK, "--overlay", folder)
    assert (code, complaint) == (1, "")
    assert "matrix 2026.11 with overlay site-a" in text
    assert "overlay site-a: overlay.yaml:5" in " ".join(text.split())
    assert "decided by overlay:" in text
    document = json.loads(run("matrix", "why", "--overlay", folder, "driver==595.91.07", "--json")[1])
    assert (document["compatible"], document["overlays"]) == ("no", ["site-a"])
    assert document["overlay_effect"][0]["overlay"] == "overlay site-a"


def test_the_environment_names_overlays_and_an_option_outranks_it(
    run: Any, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = site(PIN, name="one"), site(FORBID, name="two")
    monkeypatch.setenv("MOPT_OVERLAY", os.pathsep.join((one, two)))
    assert json.loads(run(*PICK, "--json")[1])["overlays"] == ["one", "two"]
    assert json.loads(run(*PICK, "--json", "--overlay", two)[1])["overlays"] == ["two"]
    assert "environment MOPT_OVERLAY" in run("config", "show")[1]


def test_validate_tells_what_an_overlay_holds(run: Any, site: Any) -> None:
    code, text, _ = run("matrix", "validate", "--overlay", site(FORBID + PIN + RELEASE, vllm=VLLM))
    assert code == 0
    assert "ok: overlay site-a of 2026-11-30: 1 forbid, 1 pin, 1 driver releases, 1 rows" in text
    code, text, complaint = run(
        "matrix", "validate", "--overlay", site(FORBID.replace("driver", "drivr", 1), name="bad")
    )
    assert code == 2
    assert "overlay.yaml:5: forbid[drivr].component" in text
    assert "the overlay has 1 fault" in complaint


def test_show_has_the_rows_of_the_site(run: Any, site: Any) -> None:
    code, text, _ = run("matrix", "show", "vllm", "0.33.0+site1", "--overlay", site(vllm=VLLM))
    assert code == 0
    assert "overlay site-a: vllm.yaml:3" in " ".join(text.split())


def test_check_fails_on_what_the_site_forbids(run: Any, site: Any) -> None:
    rule = FORBID.replace('["==595.*", "==620.*"]', '["==580.178.04"]')
    host = str(HOSTS / "healthy-rocky9-proprietary")
    code, data, _ = run("check", "--from", host, "--overlay", site(rule), "--json")
    report = json.loads(data)
    assert (code, report["verdict"], report["overlays"]) == (1, "not_ready", ["site-a"])
    (finding,) = [f for f in report["findings"] if f["status"] == "fail"]
    assert (finding["id"], finding["overlay"]) == ("system.site_rules", "site-a")
    assert (finding["cause"], report["causes"][0]["id"]) == ("policy.site_rule_broken",) * 2
    assert "ticket 4711" in finding["why"][0]
    text = run("check", "--from", host, "--overlay", site(FORBID, name="other"))[1]
    assert text.startswith("READY")
    assert "with overlay other" in text


def test_an_overlay_that_is_no_folder(run: Any, tmp_path: Path) -> None:
    code, _, complaint = run(*PICK, "--overlay", str(tmp_path / "none"))
    assert code == 2
    assert "is not a directory" in complaint
    assert run(*PICK, "--overlay", "")[0] == 2


def test_root_believes_no_overlay_of_somebody_else(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = site(FORBID)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("doctor.config.ownership_faults", lambda _path: iter(("`x` is owned by uid 1000",)))
    with pytest.raises(ConfigError, match="another user can change") as caught:
        overlay_folders([folder])
    assert f"`chown -R root:root {folder}`" in caught.value.hints
    with pytest.raises(UsageError):
        overlay_folders([f"{folder}/none"])


def test_an_environment_that_would_run_is_still_under_the_rules(site: Any) -> None:
    target = make_target(Matrix(EDITION), **BOX)
    report = WhyReport(
        matrix_edition=EDITION.name,
        question="would it run",
        compatible="yes",
        exit_code=0,
        target=target,
        because=(),
        hints=(),
        nearest="",
        components={"vllm": "0.30.0", "torch": "2.10.0", "python": "3.12.3"},
        advice=(),
    )
    rule = FORBID.replace("component: driver", "component: vllm").replace(
        '["==595.*", "==620.*"]', '["==0.30.0"]'
    )
    found = under_rules(with_overlays(site(rule)).matrix, report)
    assert (found.compatible, found.exit_code, found.overlays) == ("no", 1, ("site-a",))
    assert found.because == found.overlay_effect
    assert found.because[0].text.startswith("vllm 0.30.0 is forbidden by overlay site-a")
    assert under_rules(with_overlays(site(PIN, name="b")).matrix, report).compatible == "yes"
    assert under_rules(Matrix(EDITION), report) is report


@pytest.mark.parametrize(
    ("component", "versions", "answer"),
    [
        ("flashinfer", "==0.7.2", "no"),
        ("flashinfer", "==0.7.1", "yes"),
        ("nccl", "<2.29", "no"),
        ("os", "ubuntu-22.04", "no"),
        ("os", "ubuntu-24.04", "yes"),
    ],
)
def test_rules_are_about_each_package_of_an_environment_and_its_system(
    site: Any, component: str, versions: str, answer: str
) -> None:
    inside = Environment(packages={"flashinfer-python": "0.7.2", "nvidia-nccl-cu12": "2.28.9"})
    report = WhyReport(
        matrix_edition=EDITION.name,
        question="would it run",
        compatible="yes",
        exit_code=0,
        target=make_target(Matrix(EDITION), os="ubuntu 22.04"),
        because=(),
        hints=(),
        nearest="",
        components={},
        advice=(),
        environment=inside,
    )
    rule = FORBID.replace("component: driver", f"component: {component}").replace(
        '["==595.*", "==620.*"]', f'["{versions}"]'
    )
    assert under_rules(with_overlays(site(rule)).matrix, report).compatible == answer


def test_the_example_of_the_page_is_an_overlay(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "overlays.md"
    if not page.is_file():
        pytest.skip("the pages are part of the tree, not of an installation")
    for block in page.read_text(encoding="utf-8").split("```yaml\n")[1:]:
        text = block.partition("```")[0]
        (tmp_path / text.splitlines()[0].rpartition("/")[2]).write_text(text)
    matrix = compile_overlays(EDITION, [str(tmp_path)])
    (overlay,) = matrix.overlays
    assert (overlay.name, [kind for kind, _rule in overlay.rules]) == ("site-a", ["forbid", "pin", "mirror"])
    assert overlay.rows == (("releases", "vllm 0.33.0+site1"),)
    assert [row.version.raw for row in overlay.driver_releases] == ["580.185.01"]

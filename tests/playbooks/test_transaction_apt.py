"""Transactions with the real apt and dpkg, in a root of their own."""

from __future__ import annotations

import hashlib

import pytest

from tests.playbooks.conftest import lines

pytestmark = [pytest.mark.slow, pytest.mark.root]


@pytest.fixture
def branches(apt):
    """A driver in two branches whose names differ, as NVIDIA's do, and a library that floats between them."""
    for branch, version in (("580", "580.1-1"), ("595", "595.2-1")):
        name = "drv-580" if branch == "580" else "drv"
        apt.package(
            name, version, Depends=f"lib{name} (= {version}), tool", Conflicts="drv-any", Provides="drv-any"
        )
        apt.package(f"lib{name}", version, Conflicts="libdrv-any", Provides="libdrv-any")
        apt.package("tool", version)
    apt.publish()
    return apt


OLD = ["drv-580=580.1-1", "libdrv-580=580.1-1", "tool=580.1-1"]
NEW = ["drv=595.2-1", "libdrv=595.2-1", "tool=595.2-1"]


def test_the_simulation_is_what_happens(branches):
    told = branches.simulate(install=OLD)
    done = branches.run(install=OLD)
    assert not told["deviations"]
    assert (
        lines(told["changes"])
        == lines(done["changes"])
        == ["drv-580 >580.1-1", "libdrv-580 >580.1-1", "tool >580.1-1"]
    )
    assert done["outcome"] == "done"
    assert branches.installed() == {"drv-580": "580.1-1", "libdrv-580": "580.1-1", "tool": "580.1-1"}


def test_a_second_time_nothing_is_left_to_do(branches):
    branches.run(install=OLD)
    again = branches.simulate(install=OLD)
    assert again["changes"] == []
    assert again["failed"] == ""


def test_a_dependency_that_the_plan_does_not_know_stops_it(branches):
    """Unpinned, `tool` floats to the newest: what the naive way does not notice."""
    told = branches.simulate(install=OLD[:2])
    assert told["deviations"] == ["would add `tool` 595.2-1"]
    done = branches.run(install=OLD[:2])
    assert done["outcome"] == "unchanged"
    assert "would add `tool` 595.2-1" in done["failed"]
    assert branches.installed() == {}


def test_what_the_plan_allows_besides_may_come(branches):
    assert branches.simulate(install=OLD[:2], extra_allowed=["too*"])["deviations"] == []


def test_a_branch_goes_and_another_comes_in_one_transaction(branches):
    branches.run(install=OLD)
    told = branches.simulate(install=NEW, remove=["drv-580", "libdrv-580"])
    assert not told["deviations"], told
    done = branches.run(install=NEW, remove=["drv-580", "libdrv-580"], keep_in=str(branches.undo))
    assert done["outcome"] == "done"
    assert branches.installed() == {"drv": "595.2-1", "libdrv": "595.2-1", "tool": "595.2-1"}
    assert sorted(done["kept"]) == ["drv-580=580.1-1", "libdrv-580=580.1-1", "tool=580.1-1"]
    assert done["missing"] == []


def test_a_removal_that_nobody_asked_for_stops_it(branches):
    branches.run(install=OLD)
    told = branches.simulate(install=NEW)
    assert "would remove `drv-580` 580.1-1" in told["deviations"]
    assert branches.run(install=NEW)["outcome"] == "unchanged"


def test_back_from_the_kept_files_when_the_repository_has_dropped_them(branches):
    """Canonical keeps the newest only: what was not captured is gone."""
    branches.run(install=OLD)
    branches.run(install=NEW, remove=["drv-580", "libdrv-580"], keep_in=str(branches.undo))
    for path in branches.repository.glob("*580.1-1_all.deb"):
        path.unlink()
    branches.publish()
    back = [
        {"name": n, "version": "580.1-1", "file": str(branches.undo / f"{n}_580.1-1_all.deb")}
        for n in ("drv-580", "libdrv-580", "tool")
    ]
    done = branches.run(install=back, remove=["drv", "libdrv"], allow_downgrade=True)
    assert done["outcome"] == "done", done["failed"]
    assert branches.installed() == {"drv-580": "580.1-1", "libdrv-580": "580.1-1", "tool": "580.1-1"}


def test_a_lower_version_is_refused_unless_it_is_planned(branches):
    branches.run(install=["tool=595.2-1"])
    told = branches.simulate(install=["tool=580.1-1"])
    assert told["failed"]
    assert branches.run(install=["tool=580.1-1"], allow_downgrade=True)["outcome"] == "done"


def test_lists_that_do_not_know_a_package_are_read_again(branches):
    branches.run(install=["tool=580.1-1"])
    branches.package("late", "1-1")
    branches.publish()
    assert branches.run(install=["late=1-1"])["outcome"] == "done"


def test_a_package_that_no_repository_has(branches):
    told = branches.simulate(install=["nvidia-open-590=590.1-1"])
    assert told["unknown"] is True
    assert branches.run(install=["nvidia-open-590=590.1-1"])["outcome"] == "unchanged"


def test_a_version_that_no_repository_has(branches):
    assert branches.simulate(install=["tool=580.9-1"])["unknown"] is True


def test_a_hold_of_the_admin_is_respected(branches):
    branches.run(install=["tool=580.1-1"])
    status = branches.root / "var/lib/dpkg/status"
    status.write_text(status.read_text().replace("Status: install ok installed", "Status: hold ok installed"))
    told = branches.simulate(install=["tool=595.2-1"])
    assert "`tool` is held at 580.1-1" in told["deviations"][0]
    assert branches.simulate(install=["tool=595.2-1"], unlock=["tool"])["deviations"] == []
    assert branches.run(install=["tool=595.2-1"], unlock=["tool"])["outcome"] == "done"


def test_a_download_that_breaks_off_leaves_everything_as_it_was(branches):
    branches.run(install=["tool=580.1-1"])
    branches.act("update")
    path = branches.repository / "libdrv_595.2-1_all.deb"
    path.write_bytes(path.read_bytes()[:100])
    done = branches.run(install=NEW)
    assert done["outcome"] == "unchanged"
    assert branches.installed() == {"tool": "580.1-1"}


def test_a_build_that_fails_is_half_way_and_the_next_run_completes(branches):
    """As a DKMS package: its script ends badly, everything is unpacked, nothing is configured."""
    switch = branches.folder / "fails"
    switch.touch()
    branches.package(
        "dkms-drv",
        "1-1",
        postinst=f"if [ -e {switch} ]; then echo 'Error! Bad return status for module build'; exit 10; fi\n",
    )
    branches.publish()
    done = branches.run(install=["dkms-drv=1-1"])
    assert done["outcome"] == "half-way"
    assert done["broken"] == {"dkms-drv": "half-configured"}
    import mopt_sets

    assert mopt_sets.cause_of(done["failed"]) == "driver.dkms_build_failed"
    told = branches.simulate(install=["dkms-drv=1-1"])
    assert told["finishes"] == ["dkms-drv"]
    switch.unlink()
    assert branches.run(install=["dkms-drv=1-1"])["outcome"] == "done"
    assert branches.installed() == {"dkms-drv": "1-1"}


def told_of(scene, **more):
    """The scene's repository as a plan brings it, on a host that does not have it."""
    text = f"Types: deb\nURIs: file:{scene.repository}\nSuites: ./\nTrusted: yes\n"
    row = {"name": "new.sources", "text": text, "keyring": "/k.asc", "key": "", "conflicting": []} | more
    return {"foreseen": {"repositories": [row], "pins": []}, "foreseen_in": str(scene.folder / "foreseen")}


def everything_of(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_dry_run_sees_a_repository_that_is_not_there_yet(branches):
    (branches.root / "etc/apt/sources.list").write_text("")
    assert branches.simulate(install=OLD)["unknown"]
    before = everything_of(branches.root)
    told = branches.simulate(install=OLD, **told_of(branches))
    assert (told["failed"], told["deviations"]) == ("", [])
    assert lines(told["changes"]) == ["drv-580 >580.1-1", "libdrv-580 >580.1-1", "tool >580.1-1"]
    assert everything_of(branches.root) == before, "a dry run wrote on the host"


def test_a_dry_run_on_a_host_that_never_read_its_lists(branches):
    """A fresh image: lists are read into the folder of the dry run, with a new repository and without."""
    before = everything_of(branches.root)
    for number, foreseen in enumerate(({}, {"foreseen": {"repositories": [], "pins": []}})):
        told = branches.simulate(
            install=OLD, may_update=False, foreseen_in=str(branches.folder / f"foreseen-{number}"), **foreseen
        )
        assert (told["failed"], len(told["changes"])) == ("", 3)
    assert everything_of(branches.root) == before, "a dry run wrote on the host"


def test_a_dry_run_checks_signatures_as_ever(branches):
    """Neither `Trusted` nor a key that signed it: it is not read."""
    index = (branches.repository / "Packages").read_bytes()
    row = f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages"
    (branches.repository / "Release").write_text(f"Date: Mon, 30 Nov 2026 00:00:00 UTC\nSHA256:\n{row}\n")
    (branches.root / "etc/apt/sources.list").write_text("")
    text = f"Types: deb\nURIs: file:{branches.repository}\nSuites: ./\nSigned-By: /k.asc\n"
    told = branches.simulate(install=OLD, **told_of(branches, text=text, key="bm8ga2V5"))
    assert "not signed" in told["failed"]


def test_a_dry_run_takes_sources_that_give_way_as_gone(branches):
    """Two entries of one address that differ in their trust break every call of apt."""
    (branches.root / "etc/apt/sources.list").write_text("")
    other = branches.root / "etc/apt/sources.list.d/old.list"
    other.write_text(f"deb [trusted=no] file:{branches.repository} ./\n")
    assert "Conflicting values" in branches.simulate(install=OLD, **told_of(branches))["failed"]
    told = told_of(branches, conflicting=[str(other)])
    told["foreseen_in"] += "-2"
    assert branches.simulate(install=OLD, **told)["failed"] == ""
    assert other.exists()


def test_a_dry_run_does_earlier_transactions_too_and_tells_them_once(branches):
    """Simulated alone, the second transaction would bring the newest of what the first one pins."""
    request = {"install": OLD[:2], "extra_allowed": ["tool"]}
    told = branches.simulate(**request, **{"with": [{"name": "tool", "version": "580.1-1"}]})
    assert lines(told["changes"]) == ["drv-580 >580.1-1", "libdrv-580 >580.1-1"]
    branches.run(install=OLD)
    told = branches.simulate(
        install=["tool=595.2-1"],
        also_gone=["drv-580", "libdrv-580"],
        **{"with": [dict(zip(("name", "version"), w.split("="), strict=True)) for w in NEW[:2]]},
    )
    assert (lines(told["changes"]), told["deviations"]) == (["tool 580.1-1>595.2-1"], [])


def test_a_dry_run_prefers_what_a_lock_will_prefer(branches):
    """The branch lock comes in an earlier transaction, which a dry run has not made."""
    request = {"install": OLD[:2], "extra_allowed": ["tool"]}
    naive = branches.simulate(**request)
    assert "tool >595.2-1" in lines(naive["changes"])
    told = branches.simulate(**request, prefer=["580.1-1"], prefer_in=str(branches.folder / "preferences"))
    assert "tool >580.1-1" in lines(told["changes"])

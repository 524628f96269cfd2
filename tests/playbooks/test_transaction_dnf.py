"""Transactions with the real dnf and rpm, in a root of their own."""

from __future__ import annotations

import subprocess

import mopt_sets
import pytest

from tests.playbooks.conftest import lines

pytestmark = [pytest.mark.slow, pytest.mark.root]

OLD = ["drv=3:580.1-1.el9", "kmod-open=3:580.1-1.el9", "libml=3:580.1-1.el9", "tool=3:580.1-1.el9"]
NEW = ["drv=3:610.2-1.el9", "kmod-open=3:610.2-1.el9", "drv-common=3:610.2-1.el9", "tool=3:610.2-1.el9"]


@pytest.fixture
def layout(dnf):
    """The layout change at 610: a library's package becomes part of another, that obsoletes it."""
    for version in ("580.1", "610.2"):
        full = f"{version}-1.el9"
        library = "libml" if version == "580.1" else "drv-common"
        dnf.package(
            "drv",
            full,
            epoch="3",
            extra=f"Requires: {library} = 3:{full}, kmod = 3:{version}, tool >= 3:{version}",
        )
        for kmod, other in (("kmod-open", "kmod-closed"), ("kmod-closed", "kmod-open")):
            dnf.package(
                kmod,
                full,
                epoch="3",
                extra=f"Provides: kmod = 3:{version}\nConflicts: {other}",
            )
        dnf.package("tool", full, epoch="3")
        dnf.package(
            library,
            full,
            epoch="3",
            extra="Obsoletes: libml < 3:610\nProvides: libml = 3:610.2" if library == "drv-common" else "",
        )
    dnf.publish()
    return dnf


def versions(names):
    return dict(word.split("=") for word in names)


def test_the_simulation_is_what_happens(layout):
    told = layout.simulate(install=OLD)
    assert told["failed"] == ""
    assert told["deviations"] == []
    done = layout.run(install=OLD)
    assert done["outcome"] == "done", done["failed"]
    assert lines(told["changes"]) == lines(done["changes"])
    assert layout.installed() == versions(OLD)


def test_a_second_time_nothing_is_left_to_do(layout):
    layout.run(install=OLD)
    assert layout.simulate(install=OLD)["changes"] == []


def test_a_package_that_is_not_named_floats_and_that_stops_it(layout):
    """`nvidia-modprobe` is required without an upper bound: the naive request takes the newest."""
    told = layout.simulate(install=OLD[:3])
    assert told["deviations"] == ["would add `tool` 3:610.2-1.el9"]
    assert layout.run(install=OLD[:3])["outcome"] == "unchanged"
    assert layout.installed() == {}


def test_up_over_a_change_of_layout_and_exactly_back(layout):
    """`dnf downgrade` of the driver alone ends well and is wrong: a library is missing then."""
    layout.run(install=OLD)
    up = layout.run(install=NEW, remove=["libml"], keep_in=str(layout.undo))
    assert up["outcome"] == "done", up["failed"]
    assert layout.installed() == versions(NEW)
    assert up["missing"] == []
    for path in layout.repository.glob("*580.1*.rpm"):
        path.unlink()
    layout.publish()
    files = {p.name.rpartition("-580.1")[0]: str(p) for p in layout.undo.glob("*.rpm")}
    back = [{"name": n, "version": v, "file": files[n]} for n, v in versions(OLD).items()]
    down = layout.run(install=back, remove=["drv-common"], allow_downgrade=True)
    assert down["outcome"] == "done", down["failed"]
    assert layout.installed() == versions(OLD)


def test_an_obsoleted_package_that_the_plan_does_not_name_stops_it(layout):
    layout.run(install=OLD)
    assert "would remove `libml` 3:580.1-1.el9" in layout.simulate(install=NEW)["deviations"]


def test_a_lower_version_is_refused_unless_it_is_planned(layout):
    layout.run(install=["tool=3:610.2-1.el9"])
    told = layout.simulate(install=["tool=3:580.1-1.el9"])
    assert "would downgrade tool" in told["failed"]
    assert layout.run(install=["tool=3:580.1-1.el9"], allow_downgrade=True)["outcome"] == "done"


def test_what_is_no_longer_needed_stays(dnf):
    """dnf would take it along; only what the plan names goes."""
    dnf.package("app", "1-1", extra="Requires: lib")
    dnf.package("lib", "1-1")
    dnf.publish()
    dnf.run(install=["app=1-1"], extra_allowed=["lib"])
    done = dnf.run(remove=["app"])
    assert lines(done["changes"]) == ["app 1-1>"]
    assert set(dnf.installed()) == {"lib"}


def test_a_package_that_no_repository_has(layout):
    assert layout.simulate(install=["nvidia-open=9-1"])["unknown"] is True
    assert layout.run(install=["nvidia-open=9-1"])["outcome"] == "unchanged"


def test_a_locked_package_is_respected(layout):
    layout.run(install=["tool=3:580.1-1.el9"])
    (layout.root / "etc/dnf/plugins/versionlock.list").write_text(
        "# mine\ntool-3:580.1-1.el9.*\nother-0:1-1.*\n"
    )
    assert "`tool` is held" in layout.simulate(install=["tool=3:610.2-1.el9"])["deviations"][0]
    done = layout.run(install=["tool=3:610.2-1.el9"], unlock=["tool"])
    assert done["outcome"] == "done", done["failed"]
    assert (layout.root / "etc/dnf/plugins/versionlock.list").read_text() == "# mine\nother-0:1-1.*\n"


def test_a_damaged_package_leaves_everything_as_it_was(layout):
    layout.run(install=["tool=3:580.1-1.el9"])
    path = layout.repository / "drv-common-610.2-1.el9.noarch.rpm"
    path.write_bytes(path.read_bytes()[:200])
    done = layout.run(install=NEW)
    assert done["outcome"] == "unchanged"
    assert set(layout.installed()) == {"tool"}


def test_several_of_one_name_stand_side_by_side(dnf):
    """Headers of two kernels: a version of `kernel-devel` is added, none is replaced."""
    for version in ("5.14.0-1.el9", "5.14.0-2.el9"):
        dnf.package("kernel-devel", version, extra="Provides: installonlypkg(kernel)")
    dnf.publish()
    assert dnf.run(install=["kernel-devel=5.14.0-2.el9"])["outcome"] == "done"
    done = dnf.run(install=["kernel-devel=5.14.0-1.el9"])
    assert done["outcome"] == "done", done["failed"]
    assert lines(done["changes"]) == ["kernel-devel >5.14.0-1.el9"]


def told_of(scene):
    """The scene's repository as a plan brings it, on a host that does not have it."""
    text = f"[new]\nname=new\nbaseurl=file://{scene.repository}\nenabled=1\ngpgcheck=0\nrepo_gpgcheck=0\n"
    row = {"name": "new.repo", "text": text, "keyring": "/k", "key": "", "conflicting": []}
    return {"foreseen": {"repositories": [row], "pins": []}, "foreseen_in": str(scene.folder / "foreseen")}


def everything_of(root):
    kept = (
        p for p in root.rglob("*") if p.is_file() and "var/dnf-" not in str(p) and "var/lib/rpm" not in str(p)
    )
    return {str(p.relative_to(root)): p.read_bytes() for p in kept}


def test_a_dry_run_sees_a_repository_that_is_not_there_yet(layout):
    (layout.root / "etc/yum.repos.d/test.repo").unlink()
    assert layout.simulate(install=OLD)["failed"]
    before = everything_of(layout.root)
    told = layout.simulate(install=OLD, **told_of(layout))
    assert (told["failed"], told["deviations"]) == ("", [])
    assert {c["name"]: c["after"] for c in told["changes"]} == versions(OLD)
    assert everything_of(layout.root) == before, "a dry run wrote on the host"
    assert not list(layout.root.glob("var/dnf-cachedir/new*"))


def test_a_repository_of_the_plan_that_cannot_be_read_ends_the_dry_run(layout):
    (layout.root / "etc/yum.repos.d/test.repo").unlink()
    foreseen = told_of(layout)
    row = foreseen["foreseen"]["repositories"][0]
    row["text"] = row["text"].replace("file://", "file:///nowhere")
    assert "Failed to download metadata" in layout.simulate(install=OLD, **foreseen)["failed"]


def test_a_dry_run_does_earlier_transactions_too_and_tells_them_once(layout):
    before = [{"name": "tool", "version": versions(OLD)["tool"]}]
    told = layout.simulate(install=OLD[:3], **{"with": before})
    assert (told["failed"], told["deviations"]) == ("", [])
    assert {c["name"] for c in told["changes"]} == {"drv", "kmod-open", "libml"}


def test_metadata_that_misled_a_run_are_read_anew(layout):
    """dnf would trust what it has for two days: a mirror that was renewed meanwhile would go on failing."""
    repository = layout.root / "etc/yum.repos.d/test.repo"
    repository.write_text(repository.read_text().replace("metadata_expire=0", "metadata_expire=never"))
    assert layout.simulate(install=["tool="])["changes"][0]["after"] == "3:610.2-1.el9"
    layout.package("tool", "700.1-1.el9", epoch="3")
    layout.publish()
    assert layout.simulate(install=["tool="])["changes"][0]["after"] == "3:610.2-1.el9"
    mark = layout.root / "var/lib/mopt-doctor/lists-are-stale"
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    assert layout.simulate(install=["tool="], may_update=False)["changes"][0]["after"] == "3:610.2-1.el9"
    assert layout.simulate(install=["tool="])["changes"][0]["after"] == "3:700.1-1.el9"
    assert not mark.exists()


HOLDER = """
import sys, time
import dnf.lock
with dnf.lock.build_rpmdb_lock(sys.argv[1], True):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize(("held_s", "outcome"), [(4, "done"), (30, "unchanged")])
def test_a_lock_is_waited_for(layout, held_s, outcome):
    """With plugins dnf cannot be started a second time in one process."""
    conf = layout.root / "etc/dnf/dnf.conf"
    conf.write_text(conf.read_text().replace("plugins=0", "plugins=1"))
    persistent = layout.root / "var/dnf-persistdir"
    persistent.mkdir(exist_ok=True)
    argv = ["/usr/bin/python3", "-c", HOLDER, str(persistent), str(held_s)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        done = layout.run(install=OLD, lock_timeout_s=120 if outcome == "done" else 2)
        holder.kill()
    assert done["outcome"] == outcome, done["failed"]
    if outcome == "unchanged":
        assert mopt_sets.cause_of(done["failed"]) == "prov.package_lock"


def test_a_dry_run_says_what_was_missing_the_first_time(layout):
    """Nothing is read anew for a second try, whose own failure would then be told instead."""
    (layout.root / "etc/yum.repos.d/test.repo").unlink()
    told = layout.simulate(install=["nowhere=1-1"], may_update=False, **told_of(layout))
    assert "nowhere" in told["failed"]
    assert told["unknown"]

"""Where runs, orders and locks lie, and whose they may be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from doctor.apply import places
from doctor.apply.lock import Lock, owner_of
from doctor.apply.order import ORDER, read_order, stop_asked, write_order, write_stop
from doctor.apply.places import lock_file, run_folder, runs_folder
from doctor.errors import ApplyError, UsageError
from tests.apply.site import Site

# --- folders --------------------------------------------------------------------------------------


def test_a_run_has_a_folder_that_is_its_users_alone(site: Site) -> None:
    before = os.umask(0o002)
    try:
        folder = run_folder("r2", create=True)
    finally:
        os.umask(before)
    assert folder == runs_folder() / "r2"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert run_folder("r2") == folder


def test_two_runs_do_not_share_a_folder(site: Site) -> None:
    run_folder("r2", create=True)
    with pytest.raises(ApplyError, match="File exists") as caught:
        run_folder("r2", create=True)
    assert caught.value.end == "unchanged"


def test_a_run_that_nobody_knows_is_said_to_be_so(site: Site) -> None:
    with pytest.raises(UsageError, match="no run `r9` is known here") as caught:
        run_folder("r9")
    assert "`mopt-doctor resume` lists them" in caught.value.hints


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b", ".hidden", "a" * 65, "a b", "a\n", "-x", "ä"])
def test_what_is_no_name_is_refused_before_it_is_a_path(site: Site, name: str) -> None:
    with pytest.raises(UsageError, match="is no name of a run"):
        run_folder(name, create=True)


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_is_refused(site: Site, mode: int) -> None:
    site.folder.chmod(mode)
    with pytest.raises(UsageError, match="not a folder that only you can write"):
        run_folder("r1")


def test_a_link_is_no_folder(site: Site) -> None:
    (runs_folder() / "r3").symlink_to(site.folder)
    with pytest.raises(UsageError, match="not a folder that only you can write"):
        run_folder("r3")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: somebody else's folder")
def test_a_folder_of_somebody_else_is_refused(site: Site) -> None:
    os.chown(site.folder, 65534, 65534)
    with pytest.raises(UsageError, match="not a folder that only you can write"):
        run_folder("r1")


# --- order and stop -------------------------------------------------------------------------------


def test_an_order_is_read_as_it_was_written(site: Site) -> None:
    order = site.order("resume", overlays=("/etc/site",), variable_files=("/etc/vars.yml",))
    assert read_order(site.folder) == order
    assert (site.folder / ORDER).stat().st_mode & 0o777 == 0o600


def test_an_order_is_whole_or_not_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = site.order()

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ApplyError, match="No space left") as caught:
        write_order(site.folder, msgspec.structs.replace(first, act="rollback"))
    assert caught.value.end == "unchanged"
    assert read_order(site.folder) == first


@pytest.mark.parametrize("text", [b"", b"{", b'{"run":"r1"}', b'{"run":"r1","act":"fly"}', b"\xff"])
def test_an_order_that_cannot_be_read_is_told(site: Site, text: bytes) -> None:
    (site.folder / ORDER).write_bytes(text)
    with pytest.raises(ApplyError, match="cannot be read") as caught:
        read_order(site.folder)
    assert caught.value.end == "half_way"


def test_a_stop_is_of_the_act_that_it_was_asked_of(site: Site) -> None:
    site.order()
    assert stop_asked(site.folder) == ""
    write_stop(site.folder, "step")
    write_stop(site.folder, "now")
    assert stop_asked(site.folder) == "now"
    site.order("resume")
    assert stop_asked(site.folder) == ""


# --- lock -----------------------------------------------------------------------------------------

_HOLDER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from doctor.apply import places
places._LOCKS = Path(sys.argv[2])
import os
os.environ["XDG_STATE_HOME"] = sys.argv[3]
from doctor.apply.lock import Lock
lock = Lock("localhost", "killed")
print("held", flush=True)
time.sleep(600)
"""


def test_a_second_owner_is_told_of_the_first_and_how_to_watch_it(site: Site) -> None:
    first = Lock("localhost", "first")
    assert owner_of("localhost") == f"run first (pid {os.getpid()})"
    with pytest.raises(ApplyError, match=r"run first \(pid \d+\) is changing this host") as caught:
        Lock("localhost", "second")
    assert caught.value.hints == ("`mopt-doctor resume first` watches it",)
    assert (caught.value.end, caught.value.exit_code) == ("unchanged", 4)
    first.release()
    assert owner_of("localhost") == ""
    Lock("localhost", "second").release()


def test_hosts_have_locks_of_their_own(site: Site) -> None:
    one, other = Lock("node1", "a"), Lock("node2", "b")
    assert owner_of("node1").startswith("run a ")
    assert owner_of("node2").startswith("run b ")
    one.release()
    other.release()
    assert lock_file("../../etc/passwd").parent == lock_file("node1").parent


def test_kill_9_frees_the_lock(site: Site) -> None:
    root = Path(__file__).parent.parent.parent
    argv = [sys.executable, "-I", "-c", _HOLDER, str(root), str(places._LOCKS), str(site.state)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert owner_of("localhost") == f"run killed (pid {holder.pid})"
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert owner_of("localhost") == "", "its name is in the file still, and nobody holds it"
    Lock("localhost", "next").release()


def test_whoever_asks_for_the_owner_does_not_keep_a_run_from_starting(site: Site) -> None:
    """Watchers ask five times a second, and hold the lock, shared, while they do."""
    import fcntl

    Lock("localhost", "old").release()
    asking = os.open(lock_file("localhost"), os.O_RDWR)
    fcntl.flock(asking, fcntl.LOCK_SH)
    began = time.monotonic()
    import threading

    threading.Timer(0.2, os.close, (asking,)).start()
    Lock("localhost", "new").release()
    assert 0.1 < time.monotonic() - began < 1


def test_a_place_for_locks_that_others_can_write_is_refused(site: Site) -> None:
    folder = lock_file("localhost").parent
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    with pytest.raises(UsageError, match="only you can write"):
        Lock("localhost", "r1")
    folder.chmod(0o700)

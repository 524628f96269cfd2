"""Everything that can hang, hangs at once: the report is whole and in time, and nothing is left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from doctor.errors import ProbeError
from doctor.evidence import live
from tests.evidence.conftest import COLLECTOR, collector_argv, processes_with

pytestmark = pytest.mark.slow  # each waits for a budget to run out

BUDGET_S = 2.5
MOUNT = Path(__file__).with_name("hanging_mount.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a private mount namespace")
needs_fuse = pytest.mark.skipif(
    not Path("/dev/fuse").exists(), reason="no /dev/fuse for reads that nothing can end"
)


def plant_trouble(planted) -> str:
    """Every kind of trouble in one root; returns the marker that all its sleepers carry."""
    marker = f"{31557600 + os.getpid()}.{time.monotonic_ns() % 1000003}"
    sleep = f"sleep {marker}"
    planted.tool("nvidia-smi", f"trap '' TERM INT HUP\nwhile :; do {sleep}; done")
    planted.tool("dkms", f"setsid sh -c \"trap '' TERM; {sleep}\" &\n{sleep}")
    planted.tool("mokutil", f"echo SecureBoot disabled\nsetsid {sleep} &\nexit 0")
    planted.tool("dmesg", "exec yes 'a kernel message that comes for ever'")
    planted.tool("gcc", "exec yes 'gcc (never ending)'")
    planted.tool("grubby", "exec yes 'on the error stream' >&2")
    planted.tool("modinfo", f"exec >&- 2>&-\n{sleep}")
    planted.tool("systemctl", "kill -SEGV $$")
    planted.tool("uname", "echo Linux host 6.8.0-45-generic x86_64")
    planted.file("/lib/modules/6.8.0-45-generic/modules.dep", "updates/dkms/nvidia.ko.zst: kernel/drm.ko\n")
    planted.file("/lib/modules/6.8.0-45-generic/updates/dkms/nvidia.ko.zst", b"module")
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c", "HANG_INIT")
    planted.library("/usr/lib64/libcuda.so.1", "cuda.c", "HANG_INIT")
    planted.file("/etc/os-release", 'ID=ubuntu\nVERSION_ID="24.04"\n')
    os.mkfifo(planted.place("/etc/debian_version"))
    os.mkfifo(planted.place("/etc/modprobe.d/a-fifo.conf"))
    planted.file("/etc/modprobe.d/nvidia.conf", "options nvidia NVreg_EnableGpuFirmware=1\n")
    planted.pci("0000:18:00.0")
    return marker


HUNG = {
    "command:nvidia-smi-q-x", "command:dkms-status", "nvml", "cuinit",
    "command:modinfo-_lib_modules_6.8.0-45-generic_updates_dkms_nvidia.ko.zst",
}  # fmt: skip


def check_the_rest(run) -> None:
    """What does not hang is all there, and each trouble has the status it deserves."""
    evidence = run.evidence
    status = {item.key: item.status for item in evidence.meta.items}
    assert status["file:/etc/os-release"] == "ok"
    assert evidence.file("/etc/modprobe.d/nvidia.conf").text.startswith("options nvidia")
    assert status["file:/sys/bus/pci/devices/0000:18:00.0/config"] == "ok"
    assert evidence.command("uname", "-a").text == "Linux host 6.8.0-45-generic x86_64\n"
    assert evidence.item("file:/etc/debian_version").detail == "not a regular file: fifo"
    assert status["file:/etc/modprobe.d/a-fifo.conf"] == "error"
    assert run.document("distro")["id"] == "ubuntu"
    secure_boot = evidence.command("mokutil", "--sb-state")
    assert (secure_boot.status, secure_boot.rc, secure_boot.text) == ("ok", 0, "SecureBoot disabled\n")
    assert "left a process behind" in secure_boot.item.detail
    assert evidence.command("gcc", "--version").status == "truncated"
    assert evidence.command("dmesg").status == "truncated"
    assert len(evidence.command("dmesg").data) == 512 * 1024
    assert evidence.command("grubby", "--default-kernel").status == "error"
    crashed = [i for i in evidence.meta.items if i.key.startswith("command:systemctl")]
    assert [(i.status, i.detail) for i in crashed] == [("error", "signal 11")]


def check_the_hung(run, keys: set[str]) -> None:
    """Exactly these timed out, each with process, state, and a wait channel where the kernel has one."""
    hung = {item.key: item for item in run.evidence.meta.items if item.status == "timeout"}
    assert set(hung) == keys
    for key, item in hung.items():
        assert item.pid > 1, key
        assert item.state in ("S", "D", "R"), key
        assert item.wchan, key
        assert item.wchan in item.detail


def test_everything_hangs_at_once(planted, collect, python):
    marker = plant_trouble(planted)
    run = collect(python, f"--budget={BUDGET_S}", f"--sysroot={planted}")
    assert run.elapsed_s < BUDGET_S + 1.0
    check_the_hung(run, HUNG)
    check_the_rest(run)
    assert run.document("nvml")["at"] == "nvmlInit"
    assert run.document("cuinit")["library_path"].endswith("/libcuda.so.1")
    assert "in cuInit" in run.evidence.item("cuinit").detail
    assert processes_with(marker) == []
    assert processes_with(str(planted)) == []


@needs_root
@needs_fuse
@pytest.mark.root
def test_what_cannot_be_killed_is_named_and_holds_nobody_up(planted, collect, python):
    """A read in the kernel that ignores SIGKILL, in the middle of everything else that hangs."""
    marker = plant_trouble(planted)
    stuck = planted.place("/proc/sys/kernel/-").parent
    stuck.mkdir(exist_ok=True)
    driver = ["unshare", "-m", sys.executable, str(MOUNT), str(stuck), "--"]
    run = collect(python, f"--budget={BUDGET_S}", f"--sysroot={planted}", before=driver)
    assert run.elapsed_s < BUDGET_S + 1.0
    check_the_hung(run, HUNG | {"file:/proc/sys/kernel/hostname"})
    check_the_rest(run)
    hostname = run.evidence.item("file:/proc/sys/kernel/hostname")
    assert hostname.wchan == "request_wait_answer"
    assert hostname.detail.endswith("still there after SIGKILL")
    assert run.evidence.file("/proc/sys/kernel/osrelease").text == "6.8.0-45-generic\n"
    failed = run.evidence.item("file:/proc/sys/kernel/tainted")
    assert (failed.status, failed.detail) == ("error", "Input/output error")
    assert processes_with(marker) == []
    wait_until_none(str(planted))


def wait_until_none(marker: str) -> None:
    """The unkillable one goes when its mount goes: at once, but not before the mount does."""
    limit = time.monotonic() + 5
    while processes_with(marker) and time.monotonic() < limit:
        time.sleep(0.02)
    assert processes_with(marker) == []


@needs_root
@needs_fuse
@pytest.mark.root
def test_the_reader_sees_the_end_while_the_unkillable_still_hangs(planted):
    """The stream ends with the collector, though a child of its is in the kernel for ever."""
    stuck = planted.place("/proc/sys/kernel/-").parent
    stuck.mkdir(exist_ok=True)
    report = planted.top / "report.tar"
    states = (
        'for p in /proc/[0-9]*; do read -r _ _ state _ < $p/stat && [ "$state" = D ] && cat $p/wchan; done'
    )
    command = " ".join(collector_argv(sys.executable, "--output=-", "--budget=1", f"--sysroot={planted}"))
    pipeline = f"{command} | cat > {report}; {states}; true"
    began = time.monotonic()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, MOUNT, stuck, "--", "sh", "-c", pipeline],
        capture_output=True, check=False, timeout=30, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert time.monotonic() - began < 5.0
    assert done.returncode == 0, done.stderr
    assert report.stat().st_size > 10_000
    assert done.stdout == b"request_wait_answer", "it still hung when the stream had ended"
    wait_until_none(f"sysroot={planted}")


def test_gpus_before_the_one_that_hangs_are_reported(planted, collect, python):
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c", "HANG_GPU=2")
    run = collect(python, "--budget=1", f"--sysroot={planted}")
    item, document = run.evidence.item("nvml"), run.document("nvml")
    assert item.status == "timeout"
    assert item.detail.endswith("in nvmlDeviceGetName of GPU 2")
    assert [gpu["index"] for gpu in document["gpus"]] == [0, 2]
    assert document["gpus"][0]["name"] == "NVIDIA H200"
    assert document["gpus"][1]["pci_info"]["bus_id"] == "00000000:1A:00.0"
    assert document["errors"]["gpu 1"] == {"code": 15, "text": "GPU is lost"}
    assert run.elapsed_s < 2.0


def test_a_slow_answer_is_waited_for_and_costs_the_others_nothing(planted, collect, python):
    planted.tool("uname", "sleep 0.8\necho slow but there")
    run = collect(python, "--budget=5", f"--sysroot={planted}")
    assert run.evidence.command("uname", "-a").text == "slow but there\n"
    assert run.elapsed_s < 3.0


def patched(python, patch: str, *arguments: str) -> list[str]:
    """The collector with one function replaced; `patch` is code that finds it as `c`."""
    start = f"import os, signal, sys, time\nsys.path.append({str(COLLECTOR.parent)!r})\n"
    start += f"import collector as c\n{patch}\n"
    argv = collector_argv(python, "--output=-", *arguments)
    return [*argv[:3], "-c", f"{start}c.program(sys.argv[1:])", *argv[4:]]


def evidence_of(argv: list[str]):
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60, env={})
    return live.evidence_from_stream(done.stdout), time.monotonic() - began


def test_more_files_hang_than_may_wait(planted, python):
    """Fifteen dead files in one directory cost their own items, a slow one nothing, the rest nothing."""
    for number in range(15):
        planted.file(f"/etc/apt/apt.conf.d/{number:02}-dead", "never read")
    planted.file("/etc/apt/apt.conf.d/99-slow", "read late")
    planted.file("/run/reboot-required.pkgs", "linux-image\n")
    planted.file("/etc/modprobe.d/slow.conf", "options slow")
    patch = """
read = c.read_file
def slow(root, path, cap, keep):
    time.sleep(1000 if path.endswith("-dead") else 0.7 if "slow" in path else 0)
    return read(root, path, cap, keep)
c.read_file = slow
for row in c.TABLE:
    row.timeout_s = 1.5"""
    evidence, elapsed_s = evidence_of(patched(python, patch, "--budget=9", f"--sysroot={planted}"))
    assert elapsed_s < 7
    dead = [item for item in evidence.below("/etc/apt/apt.conf.d/") if item.status == "timeout"]
    assert len(dead) == 15
    assert all(item.pid and item.wchan for item in dead)
    assert evidence.file("/etc/apt/apt.conf.d/99-slow").text == "read late"
    assert evidence.file("/etc/modprobe.d/slow.conf").text == "options slow"
    assert evidence.file("/run/reboot-required.pkgs").text == "linux-image\n"
    assert processes_with(str(planted)) == []


def test_a_directory_that_hangs_costs_its_own_items(planted, python):
    planted.file("/etc/modprobe.d/x.conf", "never listed")
    planted.file("/usr/lib/modprobe.d/y.conf", "options y")
    planted.file("/lib/modules/6.8.0-45-generic/modules.dep", "never read")
    planted.tool("/usr/local/cuda-13.0/bin/nvcc", "echo release 13.0")
    patch = """
def hang(real, part):
    def wrapped(root, path, *more):
        time.sleep(1000 if part in path else 0)
        return real(root, path, *more)
    return wrapped
c.Root.names = hang(c.Root.names, "/etc/modprobe.d")
c.Root.read = hang(c.Root.read, "modules.dep")"""
    evidence, elapsed_s = evidence_of(patched(python, patch, "--budget=3", f"--sysroot={planted}"))
    assert elapsed_s < 3.8
    hung = {item.key for item in evidence.meta.items if item.status == "timeout"}
    assert hung == {"stat:/etc/modprobe.d", "file:/lib/modules/6.8.0-45-generic/modules.dep"}
    assert evidence.file("/usr/lib/modprobe.d/y.conf").text == "options y"
    assert [r.text for r in evidence.commands("nvcc") if r.status == "ok"] == ["release 13.0\n"]


@pytest.mark.parametrize(
    ("what", "status"), [("time.sleep(1000)", "timeout"), ("os.kill(os.getpid(), 9)", "error")]
)
def test_witnesses_that_take_turns_do_not_take_each_other_down(python, what, status):
    patch = f"""
import witness_host
real = witness_host.testify
def turn(name, say, where):
    say(say={{"at": "the test"}})
    return {what} if name == "distro" else real(name, say, where)
witness_host.testify = turn
for row in c.TABLE:
    row.timeout_s = 1.0"""
    evidence, elapsed_s = evidence_of(patched(python, patch, "--budget=6"))
    assert elapsed_s < 4
    distro = evidence.item("distro")
    assert distro.status == status
    assert distro.detail.endswith("in the test")
    assert evidence.item("resources").status == "ok"
    assert b"memory" in evidence.blobs["resources.json"]


def test_a_reader_that_dies_costs_one_item(planted, python):
    planted.file("/etc/modprobe.d/x.conf", "options x")
    patch = """
read = c.read_file
def die(root, path, cap, keep):
    if path == "/proc/cmdline":
        os.kill(os.getpid(), signal.SIGKILL)
    return read(root, path, cap, keep)
c.read_file = die"""
    evidence, _ = evidence_of(patched(python, patch, "--budget=5", f"--sysroot={planted}"))
    lost = evidence.item("file:/proc/cmdline")
    assert (lost.status, lost.detail) == ("error", "its reader ended: signal 9")
    assert evidence.file("/etc/modprobe.d/x.conf").text == "options x"
    assert [item.key for item in evidence.meta.items if item.detail and "reader" in item.detail] == [lost.key]


def test_what_the_budget_did_not_reach_is_named(planted, python):
    patch = """
c.LATE_MAX = 0
read = c.read_file
def hang(root, path, cap, keep):
    time.sleep(1000)
c.read_file = hang"""
    evidence, elapsed_s = evidence_of(patched(python, patch, "--budget=1", f"--sysroot={planted}"))
    assert elapsed_s < 1.8
    unreached = {item.key for item in evidence.meta.items if item.detail == "not reached within the budget"}
    assert {"file:/proc/cmdline", "stat:/etc/modprobe.d", "stat:/var/lib/dkms", "stat:/dev"} <= unreached
    assert evidence.item("file:/etc/os-release").status == "timeout"


def test_a_sysroot_that_does_not_answer(planted, python):
    """Not even whether there is a running kernel to ask: said for each question that hangs on it."""
    planted.tool("uname", "echo never asked")
    patch = "c.Root.is_live = lambda self: time.sleep(1000)"
    evidence, elapsed_s = evidence_of(patched(python, patch, "--budget=1", f"--sysroot={planted}"))
    assert elapsed_s < 1.8
    asked = evidence.item("command:uname-a")
    assert (asked.status, asked.detail) == ("timeout", "not asked: /proc/version did not answer")
    assert evidence.item("nvml").status == "timeout"


def test_a_terminated_collector_takes_its_children_with_it(planted):
    marker = plant_trouble(planted)
    argv = collector_argv(sys.executable, "--output=-", "--budget=20", f"--sysroot={planted}")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={}) as process:
        wait_for(marker, lambda found: len(found) >= 3)
        process.terminate()
        assert process.wait(timeout=5) == 143
    assert processes_with(marker) == []
    assert processes_with(str(planted)) == []


def test_a_killed_collector_takes_its_children_with_it(planted):
    """Nobody is left to clean up: the kernel kills the children when their parent dies."""
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c", "HANG_INIT")
    planted.tool("nvidia-smi", f"exec sleep {os.getpid()}.271828")
    argv = collector_argv(sys.executable, "--output=-", "--budget=20", f"--sysroot={planted}")
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={}) as process:
        wait_for(f"{os.getpid()}.271828", bool)
        process.kill()
    wait_until_none(str(planted))
    wait_until_none(f"{os.getpid()}.271828")


def wait_for(marker: str, wanted) -> None:
    limit = time.monotonic() + 10
    while not wanted(processes_with(marker)):
        assert time.monotonic() < limit, "the planted programs did not start"
        time.sleep(0.02)


def test_live_gives_up_on_a_collector_that_does_not_end(tmp_path, monkeypatch):
    """Whatever becomes of the collector, the doctor goes on by budget and grace, and nothing stays."""
    marker = f"{os.getpid()}.314159"
    hanging = tmp_path / "python"
    hanging.write_text(f"#!/bin/sh\ntrap '' TERM\nsleep {marker}\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(hanging))
    began = time.monotonic()
    with pytest.raises(ProbeError, match=r"no report within its budget of 0\.3 s"):
        live.collect_live(budget_s=0.3, sysroot=None)
    assert time.monotonic() - began < 0.3 + live.COLLECT_GRACE_S + 1.0
    wait_until_none(str(hanging))
    wait_until_none(marker)

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
    shell = 'echo; cat > "$0"; ls -d /proc/[0-9]* | wc -l; grep -la "$1" /proc/[0-9]*/cmdline 2>/dev/null'
    command = " ".join(collector_argv(sys.executable, "--output=-", "--budget=1", f"--sysroot={planted}"))
    pipeline = f"{command} | sh -c '{shell}' {report} sysroot={planted}; sleep 0.1"
    began = time.monotonic()
    done = subprocess.run(
        ["unshare", "-m", sys.executable, MOUNT, stuck, "--", "sh", "-c", pipeline],
        capture_output=True, check=False, timeout=30, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert time.monotonic() - began < 3.0
    assert done.returncode == 0, done.stderr
    assert report.stat().st_size > 10_000
    assert "/proc/" in done.stdout.decode(), "the stuck reader was still there when the stream had ended"
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
    assert processes_with(str(COLLECTOR)) == []
    assert processes_with(str(hanging)) == []

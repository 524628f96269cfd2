"""The collector as a program: on this machine, on planted roots, under this Python and a real 3.6."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from doctor.core import evidence as core
from doctor.core.host import known
from doctor.evidence import live
from doctor.facts.read import read_host
from tests.evidence.conftest import COLLECTOR, collector_argv, load_collector, old_python

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: ownership by others is planted")
NOBODY = 65534

collector = load_collector()


def statuses(run) -> dict[str, str]:
    return {item.key: item.status for item in run.evidence.meta.items}


# --- this machine ---------------------------------------------------------------------------------


def test_this_machine(collect, python):
    run = collect(python, "--tool=test 1")
    meta, evidence = run.evidence.meta, run.evidence
    assert (meta.schema, meta.tool, meta.sysroot) == ("mopt.evidence/1", "test 1", None)
    assert meta.root is (os.geteuid() == 0)
    assert meta.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert evidence.file("/proc/version").data == Path("/proc/version").read_bytes()
    assert evidence.command("uname", "-a").text.split()[2] == os.uname().release
    assert evidence.item("stat:/sys/bus/pci/devices").kind == "dir"
    assert evidence.item("stat:/dev/nvidiactl") is not None
    assert run.document("distro")["id"]
    memory = run.document("resources")["memory"]["total"]
    assert memory == int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert run.document("resources")["limits"]["nofile"][0] > 0
    assert not [item for item in meta.items if item.status == "timeout"]
    assert len({item.key for item in meta.items}) == len(meta.items)


def test_every_path_of_an_item_is_in_the_bundle_and_has_its_size(collect):
    evidence = collect(sys.executable).evidence
    kept = [item for item in evidence.meta.items if item.path]
    assert len(kept) > 20
    assert all(len(evidence.blobs[item.path]) == item.bytes for item in kept)
    stray = set(evidence.blobs) - {item.path for item in kept}
    assert all(name.endswith(".err") for name in stray)


def test_a_directory_holds_what_the_stream_holds(collect, tmp_path, planted):
    planted.file("/etc/os-release", "ID=debian\n")
    out = tmp_path / "bundle"
    argv = collector_argv(sys.executable, f"--output={out}", f"--sysroot={planted}")
    subprocess.run(argv, check=True, env={}, timeout=60)
    meta = json.loads((out / "meta.json").read_bytes())
    stream = collect(sys.executable, f"--sysroot={planted}", env={})
    assert {item["key"] for item in meta["items"]} == {item.key for item in stream.evidence.meta.items}
    assert (out / "files/etc/os-release").read_text() == "ID=debian\n"
    assert stat.S_IMODE((out / "meta.json").stat().st_mode) == 0o600
    again = subprocess.run(argv, check=False, capture_output=True, timeout=60)
    assert again.returncode == 2
    assert b"not empty" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "--output is needed"),
        (["--output=-", "--budget=x"], "could not convert"),
        (["--output=-", "--budget=0"], "between 0.2 and 3600"),
        (["--output=-", "--nonsense=1"], "unknown argument: --nonsense"),
        (["--output"], "--output needs a value"),
    ],
)
def test_wrong_arguments_are_named(arguments, complaint):
    done = subprocess.run(
        [sys.executable, COLLECTOR, *arguments], capture_output=True, check=False, timeout=20
    )
    assert done.returncode == 2
    assert complaint in done.stderr.decode()
    assert done.stdout == b""


def test_the_table_can_be_listed(python):
    argv = [python, "-I", "-S", str(COLLECTOR), "--list-items"]
    listed = subprocess.run(argv, capture_output=True, check=True, timeout=20).stdout.decode()
    for row in collector.TABLE:
        assert row.text in listed


def test_a_table_row_is_used_once_and_says_why():
    asks = [row.ask for row in collector.TABLE]
    assert len(set(asks)) == len(asks)
    assert all(row.why and row.cap > 0 and row.timeout_s > 0 for row in collector.TABLE)
    assert {row.keep for row in collector.TABLE} == {"first", "last", "part"}


def test_names_are_those_the_readers_use():
    for row in collector.TABLE:
        if row.argv and not row.argv[0].startswith("<"):
            assert collector.command_name(row.argv) == core.command_name(row.argv)
    assert collector.SCHEMA == core.EVIDENCE_SCHEMA
    assert live.CALLER_VARIABLES == collector.CALLER_VARIABLES
    assert live._PREFIX == collector.CALLER_PREFIX


def test_the_fixed_path_ends_with_the_container_toolkits_directory():
    assert collector.COMMAND_DIRS[-1] == "/usr/local/nvidia/bin"
    assert not [name for name in collector.CLEAN_ENVIRONMENT if name.startswith("LD_")]


# --- planted roots --------------------------------------------------------------------------------


def test_a_planted_gpu_host(planted, collect, python):
    planted.pci("0000:18:00.0", current_link_speed="16.0 GT/s PCIe")
    planted.pci("0000:05:00.0", vendor="0x8086", **{"class": "0x020000"})
    planted.pci("0000:06:00.0", vendor="0x1a03", **{"class": "0x030000"})
    planted.link("/sys/bus/pci/devices/0000:18:00.0/driver", "../../../bus/pci/drivers/nvidia")
    planted.file("/sys/module/nvidia/version", "580.126.09\n")
    planted.file("/proc/driver/nvidia/gpus/0000:18:00.0/information", "Model: NVIDIA H200\n")
    planted.file("/lib/modules/6.8.0-45-generic/modules.dep", "updates/dkms/nvidia.ko.zst:\nkernel/x.ko:\n")
    planted.file("/lib/modules/6.8.0-45-generic/updates/dkms/nvidia.ko.zst", "module")
    planted.tool("modinfo", 'echo "argument: $1"')
    planted.file("/usr/local/cuda-13.0/bin/nvcc")
    planted.tool("/usr/local/cuda-13.0/bin/nvcc", "echo release 13.0")
    planted.tool("/usr/local/cuda-12.8/bin/nvcc", "echo release 12.8")
    planted.link("/usr/local/cuda", "/usr/local/cuda-13.0")
    planted.tool(
        "nvidia-smi", 'echo "<nvidia_smi_log/>"; echo "$PATH|$LC_ALL|$HOME|$LD_LIBRARY_PATH" >&2; exit 9'
    )
    run = collect(python, f"--sysroot={planted}")
    evidence = run.evidence
    functions = {item.key.split("/")[5] for item in evidence.below("/sys/bus/pci/devices/0000")}
    assert functions == {"0000:18:00.0", "0000:06:00.0"}
    assert evidence.file("/sys/bus/pci/devices/0000:18:00.0/config").data == bytes(range(64))
    assert evidence.item("file:/sys/bus/pci/devices/0000:18:00.0/config").status == "ok"
    assert evidence.item("stat:/sys/bus/pci/devices/0000:18:00.0/driver").link.endswith("drivers/nvidia")
    unbound = evidence.item("stat:/sys/bus/pci/devices/0000:06:00.0/driver")
    assert (unbound.status, unbound.exists) == ("missing", False)
    module = "/lib/modules/6.8.0-45-generic/updates/dkms/nvidia.ko.zst"
    assert evidence.command("modinfo", module).text == f"argument: {planted}{module}\n"
    toolkits = [(r.item.argv[0], r.text) for r in evidence.commands("nvcc") if r.status == "ok"]
    assert sorted(toolkits) == [
        ("/usr/local/cuda-12.8/bin/nvcc", "release 12.8\n"),
        ("/usr/local/cuda-13.0/bin/nvcc", "release 13.0\n"),
        ("/usr/local/cuda/bin/nvcc", "release 13.0\n"),
    ]
    smi = evidence.command("nvidia-smi", "-q", "-x")
    assert (smi.status, smi.rc, smi.text) == ("ok", 9, "<nvidia_smi_log/>\n")
    assert evidence.stderr(smi) == f"{collector.CLEAN_ENVIRONMENT['PATH']}|C|/|\n"
    assert evidence.file("/proc/driver/nvidia/gpus/0000:18:00.0/information").text == "Model: NVIDIA H200\n"
    assert evidence.item("resources") is None


def test_nvml_and_cuda_of_a_planted_root(planted, collect, python):
    planted.library("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09", "nvml.c")
    planted.link("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "libnvidia-ml.so.580.126.09")
    planted.library("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "cuda.c", "INIT_RESULT=803")
    run = collect(python, f"--sysroot={planted}")
    nvml = run.document("nvml")
    assert statuses(run)["nvml"] == "ok"
    assert nvml["driver_version"] == "580.126.09"
    assert nvml["library_path"].endswith("root/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.126.09")
    assert [gpu["index"] for gpu in nvml["gpus"]] == [0, 2]
    gpu = nvml["gpus"][0]
    assert gpu["ecc_mode"] == [1, 0]
    assert gpu["cuda_compute_capability"] == [9, 0]
    assert gpu["clock_info"] == {"sm": 345, "mem": 3201}
    assert gpu["total_ecc_errors"]["uncorrected_aggregate"] == 11
    assert gpu["current_clocks_event_reasons"] == 4, "from the older name of the call"
    assert "current_clocks_event_reasons" not in gpu["errors"]
    assert gpu["errors"]["mig_mode"] == "Not Supported"
    assert gpu["errors"]["max_clock_info.sm"] == "Function Not Found"
    assert nvml["errors"]["gpu 1"] == {"code": 15, "text": "GPU is lost"}
    cuda = run.document("cuinit")
    assert (cuda["result"], cuda["name"]) == (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")
    assert (cuda["driver_version"], cuda.get("device_count")) == (13000, None)


def test_a_refusing_nvml_is_an_answer(planted, collect):
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c", "INIT_RESULT=18")
    run = collect(sys.executable, f"--sysroot={planted}")
    assert statuses(run)["nvml"] == "ok"
    refusal = run.document("nvml")["errors"]["init"]
    assert refusal["code"] == 18
    assert "mismatch" in refusal["text"], "pynvml has its own words for this code"


def test_absent_libraries_are_missing_and_broken_ones_an_error(planted, collect):
    planted.file("/usr/lib64/libcuda.so.1", "not a library")
    run = collect(sys.executable, f"--sysroot={planted}")
    assert statuses(run)["nvml"] == "missing"
    assert run.evidence.item("cuinit").status == "error"
    assert (
        "invalid ELF header" in run.document("cuinit")["error"]
        or "file too short" in run.document("cuinit")["error"]
    )
    assert run.document("cuinit")["result"] is None


def test_witness_packages_that_are_not_there(planted):
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c")
    argv = [sys.executable, "-I", "-S", str(COLLECTOR), "--output=-", f"--sysroot={planted}"]
    stream = subprocess.run(argv, capture_output=True, check=True, env={}, timeout=60).stdout
    evidence = live.evidence_from_stream(stream)
    assert evidence.item("distro").status == "missing"
    assert "distro" in evidence.item("distro").detail
    assert evidence.item("nvml").status == "error", "the library is there: `missing` would be a wrong claim"
    assert "pynvml" in evidence.item("nvml").detail


def test_links_of_a_root_stay_inside_it(planted, collect, python):
    secret = planted.top.parent / "outside"
    secret.write_text("from outside")
    planted.file("/inner/os-release", "ID=inside\n")
    planted.link("/etc/os-release", "/inner/os-release")
    planted.link("/etc/debian_version", f"{secret}")
    planted.link("/etc/redhat-release", "../../../../../../../../../../../../etc/hostname")
    planted.link("/etc/modprobe.d", "../../../../../../../../../../../../etc/ssl")
    planted.link("/etc/dnf", "loop")
    planted.link("/etc/loop", "dnf")
    run = collect(python, f"--sysroot={planted}")
    found = statuses(run)
    assert run.evidence.file("/etc/os-release").text == "ID=inside\n"
    assert run.document("distro")["id"] == "inside"
    assert found["file:/etc/debian_version"] == "missing"
    assert found["file:/etc/redhat-release"] == "missing"
    assert found["stat:/etc/modprobe.d"] == "missing"
    assert run.evidence.item("file:/etc/dnf/automatic.conf").detail == "Too many levels of symbolic links"
    assert not [name for name, data in run.evidence.blobs.items() if b"from outside" in data]


def test_a_root_without_a_running_kernel(planted, collect):
    """A mounted disk: nothing is asked of this machine's kernel, and what /sys lacks is no finding."""
    planted.place("/proc/version").unlink()
    for name in ("dmesg", "uname", "nvidia-smi", "dpkg-query", "ldconfig"):
        planted.tool(name, 'echo "$@"')
    planted.file("/etc/os-release", "ID=debian\n")
    planted.file("/dev/shm/x")
    run = collect(sys.executable, f"--sysroot={planted}")
    found = statuses(run)
    assert not {
        "command:dmesg",
        "command:uname-a",
        "command:nvidia-smi-q-x",
        "nvml",
        "cuinit",
        "resources",
    } & set(found)
    assert not [key for key in found if key.startswith("env:")]
    assert "file:/proc/modules" not in found
    assert "stat:/sys/bus/pci/devices" not in found
    assert found["file:/etc/os-release"] == "ok"
    assert found["distro"] == "ok"
    dpkg = next(run.evidence.commands("dpkg-query"))
    assert dpkg.text.startswith(f"--admindir={planted}/var/lib/dpkg -W ")
    assert run.evidence.command("ldconfig", "-p").text == f"-C {planted}/etc/ld.so.cache -p\n"
    assert dpkg.item.argv[:2] == ("/usr/bin/dpkg-query", "-W")


def test_owners_of_libraries_are_asked_of_the_package_manager(planted, collect):
    planted.file("/usr/lib64/libcuda.so.580.126.09", "x")
    planted.link("/usr/lib64/libcuda.so.1", "libcuda.so.580.126.09")
    planted.tool("dpkg", 'echo "$@"')
    run = collect(sys.executable, f"--sysroot={planted}")
    asked = next(run.evidence.commands("dpkg"))
    assert asked.text == f"--admindir={planted}/var/lib/dpkg -S /usr/lib64/libcuda.so.580.126.09\n"
    assert run.evidence.item("stat:/usr/lib64/libcuda.so.1").link == "libcuda.so.580.126.09"


def test_caps(planted, collect, python):
    history = "".join(f"Start-Date: {n}\n" for n in range(40_000))
    planted.file("/var/log/apt/history.log", history)
    planted.file("/proc/cmdline", "x" * 300_000)
    planted.tool("dmesg", "seq 1 200000")
    planted.tool("ldconfig", "seq 1 500000")
    run = collect(python, f"--sysroot={planted}")
    log = run.evidence.file("/var/log/apt/history.log")
    assert (log.status, len(log.data)) == ("truncated", 256 * 1024)
    assert log.text.endswith("Start-Date: 39999\n")
    line = run.evidence.file("/proc/cmdline")
    assert (line.status, len(line.data)) == ("truncated", 256 * 1024)
    messages = run.evidence.command("dmesg")
    assert (messages.status, messages.rc, len(messages.data)) == ("truncated", 0, 512 * 1024)
    assert messages.text.endswith("\n200000\n")
    cache = run.evidence.command("ldconfig", "-p")
    assert (cache.status, len(cache.data)) == ("truncated", 1024 * 1024)
    assert cache.text.startswith("1\n2\n")


def test_hostile_names(planted, collect, python):
    """Names with newlines, bytes that are no UTF-8, and names too long for a plain tar header."""
    long = "/etc/modprobe.d/" + "n" * 200 + ".conf"
    planted.file(long, "long")
    planted.file("/etc/modprobe.d/new\nline.conf", "newline")
    broken = os.fsencode(planted.place("/etc/modprobe.d/x")).replace(b"/x", b"/\xff\xfe.conf")
    Path(os.fsdecode(broken)).write_text("bytes")
    run = collect(python, f"--sysroot={planted}")
    assert run.evidence.file(long).text == "long"
    assert run.evidence.file("/etc/modprobe.d/new\nline.conf").text == "newline"
    assert run.evidence.file("/etc/modprobe.d/\\xff\\xfe.conf").text == "bytes"
    again = live.evidence_from_stream(run.stream)
    assert again.blobs == run.evidence.blobs
    assert again.meta == run.evidence.meta


def test_the_newest_of_a_journal_is_asked_for(planted, collect):
    planted.tool("journalctl", 'echo "$@"')
    run = collect(sys.executable, f"--sysroot={planted}")
    assert run.evidence.command("journalctl", "-k", "-b", "0").text == "-k -b 0 -n 20000\n"
    assert run.evidence.command("journalctl", "-k", "-b", "-1").text == "-k -b -1 -n 20000\n"


def test_without_descriptors_or_processes_it_says_what_it_could_not_ask(planted, collect, python):
    planted.file("/etc/os-release", "ID=debian\n")
    planted.file("/proc/version", "Linux version 6.1.0\n")
    for tool in (
        "dkms",
        "ldconfig",
        "gcc",
        "nvcc",
        "dpkg-query",
        "rpm",
        "dmesg",
        "journalctl",
        "systemctl",
        "uname",
    ):
        planted.tool(tool, "sleep 0.3")
    limited = ["sh", "-c", 'ulimit -n 30; exec "$@"', "sh"]
    run = collect(python, f"--sysroot={planted}", before=limited)
    unasked = [i for i in run.evidence.meta.items if i.detail == "cannot be asked: Too many open files"]
    assert len(unasked) > 5
    assert {i.status for i in unasked} == {"error"}
    assert run.evidence.file("/etc/os-release").text == "ID=debian\n"


def test_it_travels_as_one_zip(planted, python, tmp_path):
    """Collector, witnesses and the pure-Python packages in one archive, as a remote host gets them."""
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c")
    planted.file("/etc/os-release", "ID=rocky\nVERSION_ID=8.10\n")
    archive = tmp_path / "probe.zip"
    with zipfile.ZipFile(archive, "w") as bundle:
        for source in (COLLECTOR, *COLLECTOR.parent.glob("witness_*.py")):
            bundle.write(source, source.name)
        bundle.write(importlib.util.find_spec("pynvml").origin, "pynvml.py")
        for source in Path(importlib.util.find_spec("distro").origin).parent.glob("*.py"):
            bundle.write(source, f"distro/{source.name}")
    start = (
        f"import sys; sys.path.insert(0, {str(archive)!r}); import collector; collector.program(sys.argv[1:])"
    )
    argv = [python, "-I", "-S", "-c", start, "--output=-", f"--sysroot={planted}", f"--site={archive}"]
    stream = subprocess.run(argv, capture_output=True, check=True, env={}, timeout=60).stdout
    evidence = live.evidence_from_stream(stream)
    assert json.loads(evidence.blobs["nvml.json"])["driver_version"] == "580.126.09"
    assert json.loads(evidence.blobs["distro.json"])["version"] == "8.10"


# --- trust ----------------------------------------------------------------------------------------


def make_unsafe(planted, how: str) -> None:
    tool = planted.place("/usr/bin/uname")
    if how == "file writable":
        tool.chmod(0o777)
    elif how == "file of another":
        os.chown(tool, NOBODY, NOBODY)
    elif how == "directory writable":
        tool.parent.chmod(0o777)
    elif how == "directory of another":
        os.chown(planted.top / "usr", NOBODY, NOBODY)
    elif how == "link to another's":
        target = planted.tool("/opt/uname", "echo ran")
        os.chown(target, NOBODY, NOBODY)
        tool.unlink()
        tool.symlink_to("/opt/uname")


@needs_root
@pytest.mark.parametrize(
    "how",
    ["file writable", "file of another", "directory writable", "directory of another", "link to another's"],
)
def test_a_program_others_can_change_is_not_run(planted, collect, how):
    planted.tool("uname", "echo ran")
    make_unsafe(planted, how)
    item = collect(sys.executable, f"--sysroot={planted}").evidence.item("command:uname-a")
    assert item.status == "error"
    assert item.detail.startswith("not run: /")
    assert "writable by others" in item.detail or "owned by uid 65534" in item.detail
    assert item.path is None


@needs_root
def test_a_library_others_can_change_is_not_loaded(planted, collect):
    library = planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c")
    os.chown(library, NOBODY, NOBODY)
    item = collect(sys.executable, f"--sysroot={planted}").evidence.item("nvml")
    assert item.status == "error"
    assert item.detail == f"not loaded: {library} is owned by uid 65534"


def test_a_slice_and_a_driver_container(planted, collect, python):
    planted.pci("0000:18:00.0")
    planted.pci("0000:18:00.4")
    planted.link("/sys/bus/pci/devices/0000:18:00.4/physfn", "../0000:18:00.0")
    planted.file("/run/nvidia/driver/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.09")
    evidence = collect(python, f"--sysroot={planted}").evidence
    assert evidence.item("stat:/sys/bus/pci/devices/0000:18:00.0/physfn").status == "missing"
    assert evidence.item("stat:/sys/bus/pci/devices/0000:18:00.4/physfn").link == "../0000:18:00.0"
    directory = "/run/nvidia/driver/usr/lib/x86_64-linux-gnu"
    assert evidence.item(f"stat:{directory}/libcuda.so.580.126.09").status == "ok"
    host = read_host(evidence)
    assert [d.is_virtual_function for d in host.pci.value] == [False, True]
    assert host.driver.container_root.value == "/run/nvidia/driver"
    assert known(host.driver.libraries) is None, "nothing else of a driver is here"


def test_nixos_keeps_its_libraries_where_the_loader_does_not_look(planted, collect):
    planted.library("/run/opengl-driver/lib/libnvidia-ml.so.1", "nvml.c")
    planted.library("/run/opengl-driver/lib/libcuda.so.1", "cuda.c")
    run = collect(sys.executable, f"--sysroot={planted}")
    assert run.document("nvml")["driver_version"] == "580.126.09"
    assert run.document("cuinit")["result"] == 0


def test_a_program_and_a_library_only_the_caller_names(planted, collect, python):
    planted.tool("/opt/tools/uname", "echo from the caller")
    planted.tool("nvidia-smi", 'echo "$LD_LIBRARY_PATH"')
    planted.library("/opt/driver/libnvidia-ml.so.1", "nvml.c")
    planted.library("/opt/driver/libcuda.so.1", "cuda.c")
    env = {"PATH": "/usr/bin:/opt/tools", "LD_LIBRARY_PATH": "relative:/opt/none:/opt/driver"}
    run = collect(python, f"--sysroot={planted}", env=env)
    evidence = run.evidence
    assert evidence.command("uname", "-a").text == "from the caller\n"
    assert evidence.item("command:uname-a").detail == "found through the caller's PATH: /opt/tools"
    assert evidence.item("nvml").detail == "found through the caller's LD_LIBRARY_PATH: /opt/driver"
    assert run.document("nvml")["driver_version"] == "580.126.09"
    assert evidence.command("nvidia-smi", "-q", "-x").text == f"{planted}/opt/driver\n"
    assert statuses(run)["cuinit"] == "missing"
    assert run.document("cuinit-caller")["result"] == 0
    assert evidence.item("env:LD_LIBRARY_PATH").value == env["LD_LIBRARY_PATH"]
    assert statuses(run)["env:CUDA_HOME"] == "missing"
    assert statuses(run)["stat:/opt/tools"] == "ok"
    assert statuses(run)["stat:/opt/none"] == "missing"


def test_the_callers_cuda_is_asked_only_when_it_is_another_file(planted, collect):
    planted.library("/usr/lib64/libcuda.so.1", "cuda.c")
    planted.link("/opt/same/libcuda.so.1", "/usr/lib64/libcuda.so.1")
    planted.library("/opt/other/libcuda.so.1", "cuda.c", "INIT_RESULT=803")
    same = collect(sys.executable, f"--sysroot={planted}", env={"LD_LIBRARY_PATH": "/opt/same"})
    assert same.evidence.item("cuinit-caller") is None
    other = collect(sys.executable, f"--sysroot={planted}", env={"LD_LIBRARY_PATH": "/opt/other"})
    assert other.document("cuinit")["result"] == 0
    assert other.document("cuinit-caller")["result"] == 803


def test_the_loaders_own_search_is_not_steered_by_the_caller(planted, collect, python):
    """The loader keeps the LD_LIBRARY_PATH a process was started with, whatever becomes of the variable."""
    if any(d.exists() for d in Path("/usr").glob("lib*/**/libcuda.so.1")):
        pytest.skip("this machine has a libcuda of its own")
    library = planted.library("/libs/libcuda.so.1", "cuda.c")
    run = collect(python, env={"LD_LIBRARY_PATH": str(library.parent), "CUDA_HOME": "/opt/cuda"})
    assert statuses(run)["cuinit"] == "missing"
    assert run.document("cuinit-caller")["library_path"] == str(library)
    assert run.evidence.item("env:LD_LIBRARY_PATH").value == str(library.parent)
    assert run.evidence.item("env:CUDA_HOME").value == "/opt/cuda"
    assert statuses(run)["env:PATH"] == "missing"


@needs_root
def test_a_directory_of_the_caller_that_others_can_change_is_not_used(planted, collect):
    planted.tool("/opt/tools/uname", "echo from the caller")
    (planted.top / "opt/tools").chmod(0o777)
    run = collect(sys.executable, f"--sysroot={planted}", env={"PATH": "/opt/tools"})
    assert run.evidence.item("command:uname-a").status == "error"
    item = run.evidence.item("stat:/opt/tools")
    assert item.status == "ok"
    assert item.detail.startswith("not used: ")
    assert item.detail.endswith("writable by others")


@needs_root
def test_without_root_what_needs_it_is_denied(planted, collect, tmp_path):
    """The planted root belongs to root; nobody looks at it with the system's own Python."""
    python = next((p for p in ("/usr/bin/python3", old_python()) if p and readable_by_all(p)), None)
    if python is None:
        pytest.skip("no Python here that an unprivileged user may run")
    # pytest's folders are the owner's alone, and a worker of xdist has one level more of them.
    for directory in [tmp_path, *tmp_path.parents]:
        if Path(tempfile.gettempdir()) in directory.parents:
            directory.chmod(0o755)
    if not readable_by_all(tmp_path):
        pytest.skip("pytest works in a folder that an unprivileged user may not enter")
    planted.file("/etc/os-release", "ID=debian\n")
    planted.file("/boot/grub2/grubenv", "saved_entry=x\n").chmod(0o600)
    planted.tool("dmesg", 'echo "dmesg: read kernel buffer failed: Operation not permitted" >&2; exit 1')
    script = tmp_path / "collector.py"
    script.write_bytes(COLLECTOR.read_bytes())
    script.chmod(0o644)
    done = subprocess.run(
        [python, "-I", "-S", script, "--output=-", f"--sysroot={planted}"],
        capture_output=True, check=True, env={}, timeout=60, user=NOBODY, group=NOBODY, extra_groups=(),
    )  # fmt: skip
    evidence = live.evidence_from_stream(done.stdout)
    assert evidence.meta.root is False
    assert evidence.item("file:/etc/os-release").status == "ok"
    assert evidence.item("file:/boot/grub2/grubenv").status == "denied"
    assert evidence.item("command:dmesg").status == "denied"
    assert "witness_gpu" in evidence.item("nvml").detail, (
        "copied by itself, it says which witness is not there"
    )


def readable_by_all(path: str) -> bool:
    real = Path(path).resolve()
    return real.exists() and all(p.stat().st_mode & 0o005 == 0o005 for p in [real, *real.parents])

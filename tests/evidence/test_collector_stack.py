"""What the collector asks about containers, fabric, network and the machine: planted roots, and here."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import socket
import struct
import sys
import threading
from pathlib import Path

import pytest

from doctor.facts.read import read_host
from tests.evidence.conftest import load_collector

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root: locks of others are named by their number"
)

SPEC = """cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  mounts:
  - hostPath: /usr/lib/libcuda.so.580.126.09
    containerPath: /usr/lib/libcuda.so.580.126.09
"""
BUS = "/sys/bus/pci/devices"


def host_of(run):
    return read_host(run.evidence)


# --- containers -----------------------------------------------------------------------------------


def test_a_host_with_containers(planted, collect, python):
    planted.tool("/usr/bin/dockerd", "exit 1")
    planted.file("/etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
    planted.file("/etc/nvidia-container-runtime/config.toml", '[nvidia-container-runtime]\nmode = "cdi"\n')
    planted.file("/etc/cdi/nvidia.yaml", SPEC)
    planted.file("/dev/nvidia0")
    planted.file("/dev/nvidiactl")
    planted.link("/dev/char/195:0", "../nvidia0")
    planted.file("/dev/char/1:3")
    planted.file("/sys/fs/cgroup/cgroup.controllers", "cpu memory")
    planted.file("/sys/fs/selinux/enforce", "1")
    planted.file("/sys/fs/selinux/booleans/container_use_devices", "0 0")
    planted.file(
        "/var/log/audit/audit.log", "type=LOGIN a\ntype=AVC avc:  denied  { read } path=/dev/nvidia0\n"
    )
    planted.tool("nvidia-ctk", 'echo "NVIDIA Container Toolkit CLI version 1.17.8"')
    run = collect(python, f"--sysroot={planted}")
    found = host_of(run).containers
    (engine,) = found.engines.value
    assert (engine.name, engine.runtimes) == ("docker", ("nvidia",))
    assert found.toolkit_config.value.mode == "cdi"
    assert str(found.toolkit_version.value) == "1.17.8"
    (spec,) = found.cdi_specs.value
    assert spec.missing_paths == ("/usr/lib/libcuda.so.580.126.09",)
    assert (found.char_links.value, found.cgroup_version.value) == (True, 2)
    assert (found.selinux.value, found.selinux_use_devices.value) == ("enforcing", False)
    assert (
        run.evidence.file("/var/log/audit/audit.log").text
        == "type=AVC avc:  denied  { read } path=/dev/nvidia0\n"
    )
    assert run.evidence.item("stat:/dev/char/1:3") is None
    assert run.evidence.item("docker") is None  # of a sysroot no daemon answers


def test_what_is_absent_costs_an_item_and_is_known(planted, collect):
    found = host_of(collect(sys.executable, f"--sysroot={planted}")).containers
    assert found.engines.value == ()
    assert found.cdi_specs.value == ()
    assert (found.selinux.value, found.selinux_use_devices.reason) == ("disabled", "not_installed")
    assert found.kubernetes.reason == found.toolkit_config.reason == "not_installed"


def test_a_specification_cannot_make_the_collector_look_everywhere(planted, collect):
    paths = "\n".join(f"  - hostPath: /srv/{n}/x" for n in range(5000))
    hostile = "  - hostPath: /etc/*/x\n  - hostPath: <pci>\n"
    planted.file("/etc/cdi/many.yaml", f"kind: a.b/c\ncontainerEdits:\n  mounts:\n{paths}\n{hostile}")
    run = collect(sys.executable, f"--sysroot={planted}")
    looked = list(run.evidence.below("/srv/", "stat"))
    assert len(looked) == load_collector().CDI_PATHS_MAX
    assert run.evidence.item("stat:/etc/*/x") is None


# --- the bus --------------------------------------------------------------------------------------


def two_gpus(planted):
    """Two GPUs below one bridge, as links of `/sys/bus`."""
    for gpu in ("0000:18:00.0", "0000:19:00.0"):
        top = f"/sys/devices/pci0000:15/0000:15:01.0/{gpu}"
        for name, value in {"vendor": "0x10de", "device": "0x2335", "class": "0x030200"}.items():
            planted.file(f"{top}/{name}", value)
        planted.file(f"{top}/iommu_group/type", "DMA-FQ\n")
        planted.link(f"{BUS}/{gpu}", f"../../../devices/pci0000:15/0000:15:01.0/{gpu}")
    space = bytearray(4096)
    struct.pack_into("<IHH", space, 0x100, 0x000D | 1 << 16, 0x1F, 0x1D)
    bridge = "/sys/devices/pci0000:15/0000:15:01.0"
    planted.file(f"{bridge}/vendor", "0x8086")
    planted.file(f"{bridge}/class", "0x060400")
    planted.file(f"{bridge}/config", bytes(space))
    planted.link(f"{BUS}/0000:15:01.0", "../../../devices/pci0000:15/0000:15:01.0")


def test_bridges_above_two_gpus(planted, collect, python):
    two_gpus(planted)
    machine = host_of(collect(python, f"--sysroot={planted}")).machine
    (bridge,) = machine.acs_bridges.value
    assert (bridge.address, bridge.redirects) == ("0000:15:01.0", True)
    assert machine.iommu_domain.value == "DMA-FQ"


def test_the_bridge_above_one_gpu_is_left_asleep(planted, collect):
    two_gpus(planted)
    (planted.top / BUS.lstrip("/") / "0000:19:00.0").unlink()
    run = collect(sys.executable, f"--sysroot={planted}")
    assert run.evidence.item(f"file:{BUS}/0000:15:01.0/config") is None
    assert host_of(run).machine.acs_bridges.reason == "not_installed"


def test_infiniband(planted, collect):
    top = "/sys/class/infiniband/mlx5_0"
    for name, value in {
        "fw_ver": "28.43.2026",
        "ports/1/state": "4: ACTIVE",
        "ports/1/rate": "400 Gb/sec",
    }.items():
        planted.file(f"{top}/{name}", f"{value}\n")
    planted.link(f"{top}/device", "../../../0000:18:00.0")
    (port,) = host_of(collect(sys.executable, f"--sysroot={planted}")).network.ports.value
    assert (port.device, port.state, port.rate_gbps, port.pci_address) == (
        "mlx5_0",
        "ACTIVE",
        400.0,
        "0000:18:00.0",
    )


# --- GPUs by NVML ---------------------------------------------------------------------------------


def test_links_and_load_of_gpus(planted, collect, python):
    planted.library("/usr/lib64/libnvidia-ml.so.1", "nvml.c")
    run = collect(python, f"--sysroot={planted}")
    first, third = run.document("nvml")["gpus"]
    assert first["nvlinks"] == {"states": [1, 1, 1, 0], "errors": {"replay": 6, "recovery": 6, "crc": 6}}
    assert third["nvlinks"] == {"states": [1, 1, 1, 1], "errors": {"replay": 70}}
    assert first["utilization_rates"] == {"gpu": 40, "memory": 5}
    host = host_of(run)
    assert [(link.active, link.inactive, link.errors) for link in host.fabric.nvlinks.value] == [
        (3, 1, 18),
        (4, 0, 70),
    ]
    assert [gpu.utilisation_percent for gpu in host.driver.nvml.value.gpus] == [40, 42]


# --- the machine ----------------------------------------------------------------------------------


def test_repositories_and_the_keys_they_name(planted, collect):
    planted.file(
        "/etc/apt/sources.list", "deb [signed-by=/usr/share/keyrings/gone.gpg] http://a.example.org /\n"
    )
    planted.file(
        "/etc/apt/sources.list.d/b.sources",
        "URIs: http://b.example.org\nSuites: x\nSigned-By: /etc/apt/b.gpg\n",
    )
    planted.file("/etc/apt/b.gpg")
    planted.file("/etc/apt/sources.list.d/notes.txt", "deb x y z")
    planted.file(
        "/etc/dnf/modules.d/nvidia-driver.module", "[nvidia-driver]\nstream=580-open\nstate=enabled\n"
    )
    machine = host_of(collect(sys.executable, f"--sysroot={planted}")).machine
    assert [(r.suite, r.key_present) for r in machine.repositories.value] == [("/", False), ("x", True)]
    assert machine.module_streams.value[0].stream == "580-open"


def test_the_limits_of_a_session(planted, collect):
    planted.file("/proc/self/cgroup", "0::/user.slice/session-1.scope\n")
    planted.file("/sys/fs/cgroup/cgroup.controllers")
    planted.file("/sys/fs/cgroup/user.slice/memory.max", "8589934592\n")
    planted.file("/sys/fs/cgroup/user.slice/session-1.scope/memory.max", "max\n")
    machine = host_of(collect(sys.executable, f"--sysroot={planted}")).machine
    assert machine.cgroup_memory_limit_bytes.value == 8 * 2**30


def test_commands_wait_for_what_they_are_about(planted, collect):
    planted.tool("mokutil", 'echo "$1"')
    planted.tool("journalctl", 'echo "$@"')
    without = collect(sys.executable, f"--sysroot={planted}").evidence
    item = without.item("command:mokutil-list-enrolled")
    assert (item.status, item.detail) == ("missing", "not asked: /sys/firmware/efi is not there")
    assert without.command("journalctl", "-u", "nvidia-fabricmanager", "-b", "0").status == "missing"
    planted.file("/sys/firmware/efi/fw_platform_size", "64")
    planted.tool("nv-fabricmanager", "exit 0")
    asked = collect(sys.executable, f"--sysroot={planted}").evidence
    assert asked.command("mokutil", "--list-enrolled").text == "--list-enrolled\n"
    assert asked.command("journalctl", "-u", "nvidia-fabricmanager", "-b", "0").text.startswith(
        "-u nvidia-fabric"
    )


def test_a_file_behind_a_condition_is_asked_only_there(planted, collect):
    planted.file("/proc/devices", "195 nvidia\n")
    assert collect(sys.executable, f"--sysroot={planted}").evidence.item("file:/proc/devices") is None
    planted.file("/sys/module/nvidia/version", "580.126.09\n")
    assert collect(sys.executable, f"--sysroot={planted}").evidence.file("/proc/devices").has_data


def test_the_witness_of_the_machine(collect, python):
    told = collect(python).document("machine")
    assert isinstance(told["governors"], dict)
    assert told["iommu_groups"] >= 0 if Path("/sys/kernel/iommu_groups").is_dir() else True
    assert told["clock"]["synchronised"] is (told["clock"]["max_error_us"] < 16_000_000)
    assert told["package_locks"] == []


def test_the_clock_is_read_as_the_kernel_has_it(collect):
    """The fields of `struct timex` by a second way: `ntp_gettime(3)` gives the same largest error."""

    class Gettime(ctypes.Structure):
        _fields_ = (
            ("seconds", ctypes.c_long),
            ("micros", ctypes.c_long),
            ("maxerror", ctypes.c_long),
            ("rest", ctypes.c_long * 8),
        )

    told = Gettime()
    ctypes.CDLL(None).ntp_gettime(ctypes.byref(told))
    # It grows by 500 a second while nobody sets the clock.
    assert abs(collect(sys.executable).document("machine")["clock"]["max_error_us"] - told.maxerror) < 10_000


@needs_root
@pytest.mark.skipif(not Path("/var/lib/dpkg/lock-frontend").exists(), reason="no dpkg here")
def test_who_holds_the_lock_of_dpkg(collect):
    with Path("/var/lib/dpkg/lock-frontend").open("r+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pytest.skip("a package manager is at work here")
        held = collect(sys.executable).document("machine")["package_locks"]
    assert [(row["lock"], row["pid"]) for row in held] == [("/var/lib/dpkg/lock-frontend", os.getpid())]
    assert held[0]["process_name"] == Path("/proc/self/comm").read_text().strip()


# --- Docker ---------------------------------------------------------------------------------------


class Where:
    """Of the collector's `Where` what the witness needs."""

    def __init__(self) -> None:
        self.root = load_collector().Root("/")


@pytest.fixture
def witness(monkeypatch, tmp_path):
    """The witness with a socket and a pid file of the test's own; `answers` are what the daemon sends."""
    from doctor.evidence import witness_host

    pid_file = tmp_path / "docker.pid"
    pid_file.write_text(str(os.getpid()))
    monkeypatch.setattr(witness_host, "DOCKER_SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setattr(witness_host, "DOCKER_PID_FILES", (str(pid_file),))
    monkeypatch.setattr(witness_host, "DOCKER_TIMEOUT_S", 0.5)
    monkeypatch.setattr(witness_host, "_process_name", lambda _root, _pid: "dockerd")
    return witness_host


def ask(witness, answer: bytes | None):
    """What the witness says of a daemon with this answer: (document, item, what it was asked)."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(witness.DOCKER_SOCKET)
    server.listen(1)
    asked = []

    def serve() -> None:
        link, _ = server.accept()
        with link:
            asked.append(link.recv(4096))
            if answer is None:
                link.recv(4096)  # until the other side gives up
            else:
                link.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    document, item = {}, {}
    witness.testify(
        "docker",
        lambda **head: (document.update(head.get("say", {})), item.update(head.get("item", {}))),
        Where(),
    )
    thread.join(5)
    server.close()
    return document, item, b"".join(asked)


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n".encode() + body


def test_docker_is_asked_over_its_socket(witness):
    word = {
        "ServerVersion": "28.5.1",
        "Name": "secret-host",
        "HttpProxy": "http://u:p@proxy",
        "CDISpecDirs": ["/etc/cdi"],
    }
    document, item, asked = ask(witness, http(json.dumps(word).encode()))
    assert asked.startswith(b"GET /info HTTP/1.0\r\n")
    assert item == {}
    del document["at"], document["pid_file"]
    assert document == {"ServerVersion": "28.5.1", "CDISpecDirs": ["/etc/cdi"]}


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (http(b"{}", "500 Internal Server Error"), "it answered: HTTP/1.0 500 Internal Server Error"),
        (http(b"[1]"), "it answered: HTTP/1.0 200 OK"),
        (b"", "it answered: "),
        (None, "timed out"),
    ],
    ids=["an error", "a list", "nothing", "silence"],
)
def test_a_docker_that_does_not_answer(witness, answer, detail):
    _, item, _ = ask(witness, answer)
    assert item == {"status": "error", "detail": detail}


def test_a_docker_that_sleeps_is_not_woken(witness, monkeypatch):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(witness.DOCKER_SOCKET)
    server.listen(1)
    monkeypatch.setattr(witness, "_process_name", lambda _root, _pid: "")
    item = {}
    witness.testify("docker", lambda **head: item.update(head.get("item", {})), Where())
    assert item["status"] == "missing"
    assert "no daemon runs" in item["detail"]
    server.settimeout(0.05)
    with pytest.raises(TimeoutError):
        server.accept()
    server.close()

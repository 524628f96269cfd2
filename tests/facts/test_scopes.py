"""Facts by scope: what is read for one side is never told of another, and environments are named."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.evidence import Evidence, Item, Meta, command_name
from doctor.core.host import Environment, known
from doctor.facts.environment import environment_path, read_environment
from doctor.facts.read import read_host, read_scopes
from doctor.report.machine import to_json
from doctor.report.saved import from_json
from tests.facts.evidence import evidence

BOX = "container:4f2a"
LOG = "[    1.000000] NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n"


def told(text: str) -> Evidence:
    return evidence(commands={("collect-env",): (0, text)})


def relabelled(one: Evidence, scope: str) -> Evidence:
    """The same evidence, asked in another scope."""
    items = tuple(
        msgspec.structs.replace(i, scope=scope, path=None if i.path is None else f"{i.path}@{scope}")
        for i in one.meta.items
    )
    blobs = {f"{name}@{scope}": data for name, data in one.blobs.items()}
    return Evidence(msgspec.structs.replace(one.meta, items=items), blobs, hand_made=one.hand_made)


def together(*parts: Evidence) -> Evidence:
    items = tuple(item for part in parts for item in part.meta.items)
    return Evidence(Meta(items=items), {k: v for part in parts for k, v in part.blobs.items()})


HOST = evidence(
    files={"/proc/sys/kernel/hostname": "node7\n", "/etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n'},
    commands={("systemd-detect-virt",): (1, "none\n"), ("dmesg",): (0, LOG)},
    stats={"/dev/nvidiactl": {"kind": "char"}, "/lib/modules/6.8.0-1-generic": {"kind": "dir"}},
    env={"LD_LIBRARY_PATH": "/host/lib"},
    absent={"nvml": "timeout", "file:/proc/modules": "denied"},
)
INSIDE = evidence(
    files={"/proc/sys/kernel/hostname": "4f2a\n", "/etc/os-release": 'ID=debian\nVERSION_ID="12"\n'},
    cuinit={"result": 803, "name": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    env={"LD_LIBRARY_PATH": "/image/lib"},
    absent={"command:dmesg": "denied"},
)
BOTH = together(relabelled(INSIDE, BOX), HOST)


# --- one scope's view -----------------------------------------------------------------------------


def test_the_host_comes_first_and_each_scope_has_its_own_facts() -> None:
    host, box = read_scopes(BOTH)
    assert (host.scope, box.scope) == ("host", BOX)
    assert [known(h.system.hostname) for h in (host, box)] == ["node7", "4f2a"]
    assert [known(h.system.os).id for h in (host, box)] == ["ubuntu", "debian"]
    assert [h.system.environment["LD_LIBRARY_PATH"] for h in (host, box)] == ["/host/lib", "/image/lib"]
    assert (known(host.cuda.probe), known(box.cuda.probe).result) == (None, 803)
    assert [len(known(h.driver.device_nodes) or ()) for h in (host, box)] == [1, 0]
    assert known(host.kernel.logs)[0].xids
    assert box.kernel.logs.reason == "denied"
    assert known(host.kernel.installed)
    assert known(box.kernel.installed) is None
    assert ([s.key for s in host.collection.stuck], host.collection.denied) == (
        ["nvml"],
        ("file:/proc/modules",),
    )
    assert (box.collection.stuck, box.collection.denied) == ((), ("command:dmesg",))


def test_each_scope_is_read_as_if_it_were_alone() -> None:
    host, box = read_scopes(BOTH)
    alone = read_host(INSIDE)
    assert host == read_host(HOST) == read_host(BOTH)
    inside = msgspec.structs.replace(alone.system, virtualisation=box.system.virtualisation)
    assert msgspec.structs.replace(alone, scope=BOX, system=inside) == box


def test_evidence_of_one_scope_is_not_copied() -> None:
    assert HOST.only("host") is HOST
    assert Evidence(Meta(), {}).only("host").meta.items == ()
    assert BOTH.scopes == ("host", BOX)
    assert BOTH.only("container:none").meta.items == ()


def test_no_items_at_all_is_a_host_of_which_nothing_is_known() -> None:
    (host,) = read_scopes(Evidence(Meta(), {}))
    assert host == read_host(Evidence(Meta(), {}))


@pytest.mark.parametrize("key", ["command:uname-a", f"command:{command_name(('uname', '-a'), BOX)}"])
def test_a_commands_key_may_repeat_its_scope(key: str) -> None:
    item = Item(key=key, scope=BOX, status="ok", path="commands/x")
    box = read_scopes(Evidence(Meta(items=(item,)), {"commands/x": b"Linux box 6.8.0-1-generic #1\n"}))[0]
    assert (box.scope, known(box.kernel.release)) == (BOX, "6.8.0-1-generic")


@pytest.mark.parametrize(
    ("words", "kind", "name"),
    [({}, "container", ""), ({("systemd-detect-virt",): (1, "none\n")}, "container", "")],
)
def test_a_container_is_one_even_when_nothing_in_it_says_so(words, kind, name) -> None:
    part = evidence(files={"/etc/os-release": "ID=debian\n"}, commands=words)
    place = known(read_scopes(relabelled(part, BOX))[0].system.virtualisation)
    assert (place.kind, place.name) == (kind, name)


def test_what_the_container_says_of_itself_stays() -> None:
    docker = relabelled(evidence(stats={"/.dockerenv": {"kind": "file"}}), BOX)
    assert known(read_scopes(docker)[0].system.virtualisation).name == "docker"
    release = {"/proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}
    wsl = relabelled(evidence(files=release), BOX)
    assert known(read_scopes(wsl)[0].system.virtualisation).kind == "wsl2"


# --- environments ---------------------------------------------------------------------------------

VLLM = """Collecting environment information...
==============================
        System Info
==============================
OS                           : Ubuntu 22.04.5 LTS (x86_64)
Libc version                 : glibc-2.35
==============================
       PyTorch Info
==============================
PyTorch version              : 2.9.0+cu128
CUDA used to build PyTorch   : 12.8
==============================
      Python Environment
==============================
Python version               : 3.12.11 (main, Jun  4 2025, 08:56:18) [GCC 11.4.0] (64-bit runtime)
Python platform              : Linux-6.8.0-60-generic-x86_64-with-glibc2.35
==============================
       CUDA / GPU Info
==============================
Is CUDA available            : True
GPU models and configuration :
GPU 1: NVIDIA L4
GPU 0: NVIDIA L40S

Nvidia driver version        : 580.95.05
==============================
Versions of relevant libraries
==============================
[pip3] numpy==2.2.6
[pip3] nvidia-cublas-cu12==12.8.4.1
[pip3] nvidia_nccl_cu12==2.27.5
[pip3] tensorrt==10.13.3.9
[pip3] tensorrt_llm==1.2.1
[pip3] torch==2.9.0
[conda] torch                     1.0.0                    pypi_0    pypi
[conda] nvidia-cudnn-cu12         9.10.2.21                pypi_0    pypi
==============================
         vLLM Info
==============================
vLLM Version                 : 0.11.1 (git sha: 0123abc)
==============================
     Environment Variables
==============================
LD_LIBRARY_PATH=/opt/venv/lib/python3.12/site-packages/cv2/../../lib64:/usr/local/cuda/lib64
"""


def test_everything_the_text_says_of_the_environment() -> None:
    inside = known(read_environment(told(VLLM)))
    said = {name: getattr(inside, name) for name in Environment.__struct_fields__ if getattr(inside, name)}
    assert {name: str(said.pop(name)) for name in ("python", "glibc", "torch_cuda")} == {
        "python": "3.12.11",
        "glibc": "2.35",
        "torch_cuda": "12.8",
    }
    assert said.pop("packages") == {
        "numpy": "2.2.6",
        "nvidia-cublas-cu12": "12.8.4.1",
        "nvidia-cudnn-cu12": "9.10.2.21",
        "nvidia-nccl-cu12": "2.27.5",
        "tensorrt": "10.13.3.9",
        "tensorrt-llm": "1.2.1",
        "torch": "2.9.0",
    }
    assert said == {
        "is_meant": True,
        "torch_build": "cuda",
        "torch": "2.9.0+cu128",
        "vllm": "0.11.1",
        "tensorrt": "10.13.3.9",
        "tensorrt_llm": "1.2.1",
        "wheels": {
            "nvidia-cublas-cu12": "12.8.4.1",
            "nvidia-cudnn-cu12": "9.10.2.21",
            "nvidia-nccl-cu12": "2.27.5",
        },
        "is_cuda_available": True,
        "gpus": ("NVIDIA L40S", "NVIDIA L4"),
    }


def test_the_machine_stays_the_hosts_and_the_packages_are_the_environments() -> None:
    host, inside = read_scopes(told(VLLM))
    assert (host.scope, inside.scope) == ("host", "venv:/opt/venv")
    assert known(host.kernel.release) == "6.8.0-60-generic"
    assert len(known(host.driver.smi).gpus) == 2
    assert known(host.environment) is None
    assert known(inside.environment).torch == "2.9.0+cu128"
    assert known(inside.kernel.release) is None
    assert known(inside.driver.smi) is None
    assert from_json(to_json(inside)) == inside


def test_what_the_script_could_not_tell_is_not_told() -> None:
    text = (
        VLLM.replace(": True", ": N/A").replace("2.9.0+cu128", "N/A").replace("12.8\n", "Could not collect\n")
    )
    inside = known(read_environment(told(text.replace("[pip3] torch==2.9.0\n", ""))))
    assert (inside.is_cuda_available, inside.torch_cuda) == (None, None)
    assert inside.torch == "1.0.0", "the list of packages still names it"
    bare = known(read_environment(told("PyTorch version: N/A\nIs CUDA available: False\n")))
    assert bare == Environment(is_cuda_available=False, is_meant=True)
    assert read_environment(evidence()).reason == "not_collected"
    assert len(read_scopes(evidence(absent={"command:collect-env": "error"}))) == 1


@pytest.mark.parametrize(
    ("lines", "path"),
    [
        ("", "unnamed"),
        ("VIRTUAL_ENV=/home/ann/vllm/\n", "/home/ann/vllm"),
        ("CONDA_PREFIX=/opt/conda/envs/llm\n", "/opt/conda/envs/llm"),
        (
            "/root/.venv/lib/python3.11/site-packages/torch/cuda/__init__.py:61: FutureWarning: x\n",
            "/root/.venv",
        ),
        ("LD_LIBRARY_PATH=/usr/local/lib/python3.12/dist-packages/torch/lib\n", "/usr/local"),
        ("A=/a/lib/python3.12/site-packages/x:/a/lib64/python3.12/site-packages/y\n", "/a"),
        # Two environments: which of them it was cannot be told.
        ("A=/a/lib/python3.12/site-packages/x:/b/lib/python3.12/site-packages/y\n", "unnamed"),
        # The variable decides over what lies on search paths.
        ("VIRTUAL_ENV=/b\nA=/a/lib/python3.12/site-packages/x\n", "/b"),
        ("VIRTUAL_ENV=relative/x\n", "unnamed"),
        ("see lib/python3.12/site-packages/torch\n", "unnamed"),
    ],
)
def test_the_path_of_an_environment(lines: str, path: str) -> None:
    assert environment_path(told(f"PyTorch version: 2.9.0\n{lines}")) == path


def test_an_environment_inside_a_container_says_which() -> None:
    mixed = together(HOST, told(VLLM), relabelled(told(VLLM.replace("0.11.1", "0.12.0")), BOX))
    hosts = {h.scope: h for h in read_scopes(mixed)}
    assert list(hosts) == ["host", BOX, "venv:/opt/venv", f"venv:/opt/venv@{BOX}"]
    assert known(hosts["venv:/opt/venv"].environment).vllm == "0.11.1"
    assert known(hosts[f"venv:/opt/venv@{BOX}"].environment).vllm == "0.12.0"


def test_what_was_asked_in_the_environment_itself_counts_first() -> None:
    asked = relabelled(told(VLLM.replace("0.11.1", "0.13.0")), "venv:/opt/venv")
    host, inside = read_scopes(together(told(VLLM), asked))
    assert (host.scope, inside.scope, known(inside.environment).vllm) == ("host", "venv:/opt/venv", "0.13.0")
    assert known(inside.kernel.release) is None, "the machine is not told of by its environments"


def test_long_and_hostile_texts_are_read_in_time() -> None:
    lines = ["[pip3] nvidia-x" + "y" * 90 + f"{n}==1.{n}" for n in range(2000)] + [
        "/" + "a" * 199 + "/lib/python3.1/site-packages"
    ] * 2000
    inside = known(read_environment(told("PyTorch version: 9\n" + "\n".join(lines))))
    assert len(inside.wheels) == 500
    assert environment_path(told("PyTorch version: 9\n" + "/" * 200_000)) == "unnamed"

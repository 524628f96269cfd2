"""Questions for `lower`: machines by name, their stacks, and hosts on which a plan was carried out.

`python -m tests.core.lowering` writes the reference variables in `tests/data/vars`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from doctor.commands.derive import choose_stack
from doctor.core.goal import parse_goal, parse_term
from doctor.core.host import Host, Package, Packages, PciDevice
from doctor.core.lower import Choices, Ground, lower
from doctor.core.lower.named import host_of
from doctor.core.matrix import Matrix
from doctor.core.solve.universe import Universe
from doctor.core.stages import PackageVersion, Stage, Variables
from doctor.core.target import make_target
from doctor.edition.load import load_matrix
from doctor.report.machine import to_json
from tests.core.hosts import known_of, put

FOLDER = Path(__file__).parent.parent / "data" / "vars"

KERNELS = {
    "ubuntu-22.04": "6.8.0-60-generic",
    "ubuntu-24.04": "6.8.0-60-generic",
    "ubuntu-26.04": "7.0.0-30-generic",
    "rocky-8": "4.18.0-553.el8_10.x86_64",
    "rocky-9": "5.14.0-611.el9_7.x86_64",
    "rocky-10": "6.12.0-124.el10_1.x86_64",
}
OPEN_580 = "driver==580.126.20,kernel-modules==open"
OPEN_595 = "driver==595.71.05,kernel-modules==open"
PROPRIETARY_580 = "driver==580.126.20,kernel-modules==proprietary"
CUDA_STACK = (
    f"{OPEN_580},cuda-toolkit==13.0,cudnn==9.20.0.48,nccl==2.28.9,tensorrt==10.13.3.9"
    ",container-toolkit==1.20.0,dcgm==4.6.0"
)
EL_STACK = (
    f"{OPEN_580},cuda-toolkit==13.0,cudnn==9.20.0.48,nccl==2.28.9,container-toolkit==1.20.0,dcgm==4.6.0"
)


class Question(NamedTuple):
    """A machine, and what it is for."""

    os: str
    gpu: str
    goal: str
    have: tuple[str, ...] = ()
    choices: Choices = Choices(origin="nvidia")


_MIRROR = "https://mirror.example/cuda/ubuntu2404/"
_AIRGAP = Choices(
    origin="airgap",
    mirrors={"cuda": _MIRROR, "container-toolkit": "https://mirror.example/toolkit/"},
    keys={"cuda": "file:site.asc#0123456789ABCDEF", "container-toolkit": "file:site.asc#0123456789ABCDEF"},
    wheelhouse="/srv/wheels",
)

UBUNTU = "ubuntu-24.04-h100-580-open"
ROCKY = "rocky-9-h100-580-open"

#: Reference variables by name: every system, and every family of GPUs where it makes a difference.
QUESTIONS: dict[str, Question] = {
    "ubuntu-22.04-h100-580-open": Question("ubuntu-22.04", "H100x8", OPEN_580),
    "ubuntu-22.04-l40s-595-open": Question("ubuntu-22.04", "L40Sx2", OPEN_595),
    "ubuntu-24.04-h100-580-open": Question("ubuntu-24.04", "H100x8", OPEN_580),
    "ubuntu-24.04-h100-595-open": Question("ubuntu-24.04", "H100x8", OPEN_595),
    "ubuntu-24.04-l40s-535-open": Question("ubuntu-24.04", "L40Sx2", "driver==535.261.03"),
    "ubuntu-24.04-l40s-580-proprietary": Question("ubuntu-24.04", "L40Sx2", PROPRIETARY_580),
    "ubuntu-24.04-v100-580-proprietary": Question("ubuntu-24.04", "V100x4", "driver==580.126.20,dcgm==4.6.0"),
    "ubuntu-24.04-b200-595-open": Question("ubuntu-24.04", "B200x8", f"{OPEN_595},dcgm==4.7.0"),
    "ubuntu-24.04-h100-580-stack": Question("ubuntu-24.04", "H100x8", CUDA_STACK, ("docker==27.0",)),
    "ubuntu-24.04-l40s-580-canonical": Question(
        "ubuntu-24.04", "L40Sx2", "driver==580.173.02", ("secure-boot==on",), Choices(origin="canonical")
    ),
    "ubuntu-24.04-l40s-580-vllm": Question("ubuntu-24.04", "L40Sx2", f"{OPEN_580},vllm==0.33.0"),
    "ubuntu-24.04-l40s-580-airgap": Question(
        "ubuntu-24.04", "L40Sx2", f"{OPEN_580},container-toolkit==1.20.0", ("podman==5.0",), _AIRGAP
    ),
    "ubuntu-26.04-h100-595-open": Question("ubuntu-26.04", "H100x8", OPEN_595),
    "rocky-8-h100-580-open": Question("rocky-8", "H100x8", OPEN_580),
    "rocky-9-h100-580-open": Question("rocky-9", "H100x8", OPEN_580),
    "rocky-9-h100-595-open": Question("rocky-9", "H100x8", OPEN_595),
    "rocky-9-l40s-535-open": Question("rocky-9", "L40Sx2", "driver==535.261.03"),
    "rocky-9-l40s-580-proprietary": Question("rocky-9", "L40Sx2", PROPRIETARY_580),
    "rocky-9-v100-580-proprietary": Question("rocky-9", "V100x4", "driver==580.126.20,dcgm==4.6.0"),
    "rocky-9-b200-595-open": Question("rocky-9", "B200x8", f"{OPEN_595},dcgm==4.7.0"),
    "rocky-9-h100-580-stack": Question("rocky-9", "H100x8", EL_STACK, ("podman==5.0",)),
    "rocky-10-h100-580-open": Question("rocky-10", "H100x8", OPEN_580),
    "rocky-10-b200-595-open": Question("rocky-10", "B200x8", OPEN_595),
}


@cache
def matrix() -> Matrix:
    return load_matrix()


@cache
def universe() -> Universe:
    return Universe(matrix())


def ground_of(question: Question) -> Ground:
    """The question with a host of which only its name is known."""
    target = make_target(
        matrix(),
        gpus=[question.gpu],
        os=question.os,
        kernel=KERNELS[question.os],
        have=[parse_term(text) for text in question.have],
    )
    stack = choose_stack(universe(), target, parse_goal(question.goal), question.choices.origin)
    assert stack.compatible == "yes", stack.conflict
    return Ground(matrix=matrix(), stack=stack, host=host_of(target), choices=question.choices)


@cache
def ground(name: str) -> Ground:
    return ground_of(QUESTIONS[name])


@cache
def driver_ground(system: str, gpu: str, version: str, flavour: str) -> Ground:
    return ground_of(Question(system, gpu, f"driver=={version},kernel-modules=={flavour}"))


@cache
def variables(name: str) -> Variables:
    return lower(ground(name))


def with_host(question: Ground, host: Host, **choices: Any) -> Ground:
    """The same question for another host, or with other choices."""
    return Ground(
        matrix=question.matrix,
        stack=question.stack,
        host=host,
        choices=replace(question.choices, **choices),
    )


def stage(document: Variables, name: str) -> Stage:
    return next(one for one in document.mopt_stages if one.id == name)


def packages_of(document: Variables, which: str) -> list[PackageVersion]:
    """What a stage installs."""
    return [package for one in stage(document, which).packages for package in one.install]


def names(document: Variables, which: str) -> list[str]:
    """What a stage installs, by name."""
    return [package.name for package in packages_of(document, which)]


def removed(document: Variables, which: str) -> list[str]:
    """What a stage removes."""
    return [name for one in stage(document, which).packages for name in one.remove]


def installed(document: Variables) -> list[PackageVersion]:
    """Everything that some transaction installs, in order."""
    return [package for one in document.mopt_stages for t in one.packages for package in t.install]


def packages(
    manager: str, rows: dict[str, str] | list[tuple[str, str]], vendor: str = "", holds: tuple[str, ...] = ()
) -> Packages:
    pairs = rows.items() if isinstance(rows, dict) else rows
    origin = vendor or ("cudatools <cudatools@nvidia.com>" if manager == "dpkg" else "NVIDIA")
    return Packages(
        manager="dpkg" if manager == "dpkg" else "rpm",
        installed=tuple(Package(name=name, version=version, origin=origin) for name, version in pairs),
        holds=known_of(holds),
    )


def carried_out(document: Variables, host: Host) -> Host:
    """The host once every transaction is done; an open version becomes some version."""
    rows = [(one.name, one.version or "1.2-3") for one in installed(document)]
    manager = "dpkg" if document.mopt_target.manager == "apt" else "rpm"
    signed = any(name.endswith("-server") for name, _version in rows)
    vendor = "Ubuntu Kernel Team <kernel-team@lists.ubuntu.com>" if signed else ""
    return put(host, "packages", packages(manager, rows, vendor, stage(document, "lock").hold))


def on_bus(host: Host, device_id: str) -> Host:
    device = PciDevice(address="0000:41:00.0", device_id=device_id, class_code="030200", driver="")
    return put(host, "pci", (device,))


def write() -> None:
    for name in QUESTIONS:
        (FOLDER / f"{name}.json").write_bytes(to_json(variables(name)))


if __name__ == "__main__":
    write()

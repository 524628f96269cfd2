"""Environments for tests: one that runs on the healthy machine of `tests/core/hosts.py`, and changes to it.

vLLM 0.32.0 with torch 2.13.0 for CUDA 13.0, in a venv of Ubuntu 24.04's Python.
"""

from __future__ import annotations

from typing import Any

import msgspec

from doctor.core.finding import CheckReport, Finding
from doctor.core.host import Environment, Host
from doctor.core.host_engine import Bundled, Requirement
from doctor.core.judge import judge_scopes
from doctor.core.versions import Dotted
from tests.core.hosts import healthy, known_of, matrix, put

SCOPE = "venv:/opt/vllm"
PACKAGES = {
    "nvidia-cublas": "13.1.0.3",
    "nvidia-cuda-runtime": "13.0.96",
    "nvidia-nccl-cu13": "2.29.7",
    "torch": "2.13.0",
    "triton": "3.7.1",
    "vllm": "0.32.0",
}
TORCH_PIN = Requirement(by="vllm", name="torch", spec="==2.13.0")
VLLM_C = Bundled(
    path="vllm/_C.abi3.so",
    needs=("libcudart.so.13", "libc10.so", "libc.so.6"),
    glibc=Dotted("2.34"),
    glibcxx=Dotted("3.4.30"),
)


def environment(**fields: Any) -> Environment:
    """The environment, with other fields; `packages` given here are added, those that are None taken out."""
    packages = {**PACKAGES, **fields.pop("packages", {})}
    values: dict[str, Any] = {
        "kind": "venv",
        "prefix": "/opt/vllm",
        "is_meant": True,
        "python": Dotted("3.12.3"),
        "glibc": Dotted("2.39"),
        "torch": "2.13.0+cu130",
        "torch_cuda": Dotted("13.0"),
        "torch_build": "cuda",
        "vllm": "0.32.0",
        "is_listed": True,
        "requires": (TORCH_PIN, Requirement(by="torch", name="nvidia-nccl-cu13", spec="==2.29.7")),
        "glibc_tag": Dotted("2.28"),
        "glibc_tag_of": "torch",
        "bundled": (VLLM_C,),
        "ptxas": Dotted("13.0"),
        "has_headers": True,
        "compilers": ("/usr/bin/gcc",),
        "mpi": "",
    }
    given = {**values, **fields, "packages": {n: v for n, v in packages.items() if v is not None}}
    wheels = {n: v for n, v in given["packages"].items() if n.startswith("nvidia-")}
    return Environment(**{"wheels": wheels, **given})


def inside(host: Host | None = None, **fields: Any) -> Host:
    """A host that is an environment as well: judged alone, it is its own machine."""
    return put(host or healthy(), "environment", known_of(environment(**fields)))


def scoped(scope: str = SCOPE, **fields: Any) -> Host:
    """The environment as a scope of its own."""
    return Host(scope=scope, environment=known_of(environment(**fields)))


def judged(machine: Host, *environments: Host) -> CheckReport:
    """The machine and its environments side by side."""
    return judge_scopes((machine, *environments), matrix())


def finding(report: CheckReport, check_id: str, scope: str = SCOPE) -> list[Finding]:
    """What one check said of one scope."""
    return [f for f in report.findings if f.id == check_id and f.scope == scope]


def with_(base: Environment, **fields: Any) -> Environment:
    return msgspec.structs.replace(base, **fields)

"""The Python environment that `collect_env` ran in: interpreter, torch, engines, NVIDIA's wheels.

What the same text says of kernel, driver and GPUs is the machine's, and `facts/collectenv.py` reads it.
"""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence
from doctor.core.host import Environment, Fact, Known
from doctor.core.host_engine import TorchBuild
from doctor.core.pattern import pattern
from doctor.facts.collectenv import env_field, env_gpus, env_reading
from doctor.facts.sitepackages import canonical, cuda_of
from doctor.facts.source import absent, dotted

__all__ = ["UNNAMED", "environment_path", "read_environment"]

#: The scope of an environment whose text shows no path.
UNNAMED = "unnamed"

_PACKAGES_MAX = 500

#: `[pip3] torch==2.9.1` and `[conda] torch  2.9.1  pypi_0  pypi`.
_PACKAGE = pattern(
    r"^\[(?:pip3?|conda|uv)\][ \t]+([A-Za-z0-9][\w.-]{0,100})(?:==|[ \t]+)(\d[\w.+!-]{0,60})", re.MULTILINE
)
_VARIABLE = pattern(r"^(?:VIRTUAL_ENV|CONDA_PREFIX)=(/[^\s:;,\"'<>@]{1,250})[ \t]*$", re.MULTILINE)
#: Where a package of the environment lies: in warnings that torch prints, in LD_LIBRARY_PATH.
_SITE = pattern(r"(?<![\w./-])(/[^\s:;,\"'<>@]{1,200}?)/lib(?:64)?/python3\.\d{1,2}/(?:site|dist)-packages\b")
_BUILT = pattern(r"^CUDA used to build PyTorch[ \t]*:[ \t]*None[ \t]*$", re.MULTILINE)
_VERSION = pattern(r"\d[\w.+!-]{0,80}")


def read_environment(evidence: Evidence) -> Fact[Environment]:
    """The environment that `collect_env` describes; absent where it was not run."""
    reading = env_reading(evidence)
    if not reading.has_data:
        return absent(reading)
    packages = _packages(reading.text)
    said = env_field(evidence, "Is CUDA available").lower()
    environment = Environment(
        is_meant=True,
        torch_build=_build(evidence, packages),
        packages=packages,
        python=dotted(env_field(evidence, "Python version").partition(" ")[0]),
        glibc=dotted(env_field(evidence, "Libc version").removeprefix("glibc-")),
        torch=_version(env_field(evidence, "PyTorch version")) or packages.get("torch", ""),
        torch_cuda=dotted(env_field(evidence, "CUDA used to build PyTorch"))
        or cuda_of(packages.get("torch", "")),
        vllm=_version(env_field(evidence, "vLLM Version")) or packages.get("vllm", ""),
        tensorrt=packages.get("tensorrt", ""),
        tensorrt_llm=packages.get("tensorrt-llm", ""),
        wheels={name: packages[name] for name in sorted(packages) if name.startswith("nvidia-")},
        is_cuda_available={"true": True, "false": False}.get(said),
        gpus=env_gpus(evidence),
    )
    return Known(value=environment, origin=reading.origin)


def environment_path(evidence: Evidence) -> str:
    """The directory of that environment where the text shows one and only one, else `unnamed`."""
    reading = env_reading(evidence)
    text = reading.text if reading.has_data else ""
    named = {path.rstrip("/") for path in _VARIABLE.findall(text)} or set(_SITE.findall(text))
    return named.pop() if len(named) == 1 else UNNAMED


def _build(evidence: Evidence, packages: dict[str, str]) -> TorchBuild:
    """What torch was built for: once it loaded, the script prints the CUDA of its build, or `None`."""
    reading = env_reading(evidence)
    said = _BUILT.search(reading.text)
    if env_field(evidence, "CUDA used to build PyTorch"):
        return "cuda"
    if env_field(evidence, "ROCM used to build PyTorch"):
        return "rocm"
    return "cpu" if said is not None or packages.get("torch", "").endswith("+cpu") else ""


def _version(text: str) -> str:
    """Without the commit that vLLM appends in parentheses; empty for words that are no version."""
    found = _VERSION.match(text)
    return found.group(0) if found is not None else ""


def _packages(text: str) -> dict[str, str]:
    """Name, as the package index spells it, to version. The first line that names one counts."""
    found: dict[str, str] = {}
    for match in _PACKAGE.finditer(text):
        if len(found) >= _PACKAGES_MAX:
            break
        found.setdefault(canonical(match.group(1)), match.group(2))
    return found

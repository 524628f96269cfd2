"""What `vllm collect-env` and torch's `collect_env` say of the host below them.

The script runs inside some Python environment, often in a container: the distribution is that one's,
kernel and driver are the host's. GPUs come as names without addresses.
"""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Fact, Gpu, GpuReport, Known, Os
from doctor.core.pattern import pattern
from doctor.facts.source import dotted

__all__ = [
    "env_field",
    "env_gpus",
    "env_reading",
    "env_text",
    "hypervisor_by_env",
    "os_by_env",
    "release_by_env",
    "report_by_env",
]

_NONE = ("could not collect", "no cuda", "n/a", "none", "")
_GPU = pattern(
    r"^(?:GPU models and configuration\s*:)?[ \t]*GPU (\d{1,3}): (\S.{0,100}?)[ \t]*$", re.MULTILINE
)
_PLATFORM = pattern(r"Linux-(?P<release>\S+?)-(?:x86_64|aarch64|arm64)-with-\S+")
_OS = pattern(r"(?P<name>[A-Za-z][A-Za-z ./!_-]*?)\s+(?P<version>\d+(?:\.\d+)*)(?P<rest>[^()]*)")
_IDS = {
    "ubuntu": "ubuntu",
    "debian": "debian",
    "rocky": "rocky",
    "almalinux": "almalinux",
    "centos": "centos",
    "fedora": "fedora",
    "red": "rhel",
    "amazon": "amzn",
    "opensuse": "opensuse-leap",
    "sles": "sles",
}


def env_reading(evidence: Evidence) -> Reading:
    """What the script printed."""
    return evidence.command("collect-env")


def env_text(evidence: Evidence) -> str:
    """All that it printed; empty where it was not run."""
    reading = env_reading(evidence)
    return reading.text if reading.has_data else ""


def env_field(evidence: Evidence, name: str) -> str:
    """A value by its label, which vllm pads. Empty where the script could not tell."""
    reading = env_reading(evidence)
    found = (
        re.search(rf"^{re.escape(name)}[ \t]*:[ \t]*(.*)$", reading.text, re.MULTILINE)
        if reading.has_data
        else None
    )
    value = found.group(1).strip()[:300] if found is not None else ""
    return "" if value.lower() in _NONE else value


def os_by_env(evidence: Evidence) -> Fact[Os] | None:
    """`OS: Ubuntu 22.04.5 LTS (x86_64)`: name and version of the system the script ran in."""
    text = env_field(evidence, "OS")
    found = _OS.match(text)
    name = _IDS.get(found["name"].split()[0].lower()) if found is not None else None
    if found is None or name is None:
        return None
    version = found["version"]
    if name == "ubuntu":
        version = ".".join(version.split(".")[:2])
    pretty = text.partition(" (")[0]
    return Known(value=Os(id=name, version=version, pretty_name=pretty), origin=env_reading(evidence).origin)


def release_by_env(evidence: Evidence) -> Fact[str] | None:
    """The running kernel, out of Python's platform string."""
    found = _PLATFORM.match(env_field(evidence, "Python platform"))
    return Known(value=found["release"], origin=env_reading(evidence).origin) if found is not None else None


def hypervisor_by_env(evidence: Evidence) -> str:
    """The hypervisor that `lscpu` names, lower case; empty when it names none, or was not asked."""
    return env_field(evidence, "Hypervisor vendor").lower()


def report_by_env(evidence: Evidence) -> Fact[GpuReport] | None:
    """GPUs and driver as nvidia-smi told the script; None when it could not run that."""
    reading = env_reading(evidence)
    version = dotted(env_field(evidence, "Nvidia driver version"))
    if version is None:
        return None
    gpus = _gpus(reading)
    rows = tuple(Gpu(index=i, pci_address="", name=gpus[i]) for i in sorted(gpus))
    return Known(value=GpuReport(driver_version=version, gpus=rows), origin=reading.origin)


def env_gpus(evidence: Evidence) -> tuple[str, ...]:
    """The names of the GPUs, by index; empty where it listed none."""
    gpus = _gpus(env_reading(evidence))
    return tuple(gpus[index] for index in sorted(gpus))


def _gpus(reading: Reading) -> dict[int, str]:
    found = _GPU.findall(reading.text) if reading.has_data else []
    return {int(number): _name(name) for number, name in found}


def _name(text: str) -> str:
    """Without the UUID that `nvidia-smi -L` adds."""
    return text.partition(" (UUID")[0].strip()

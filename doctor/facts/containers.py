"""What decides whether a container gets its GPUs: toolkit, CDI, cgroups, SELinux, Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Absent, Fact, Known, Packages, Unit
from doctor.core.host_container import Containers, Kubernetes, SelinuxMode, ToolkitConfig
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.cdi import read_cdi_specs
from doctor.facts.engines import package_version, read_engines
from doctor.facts.source import (
    absent,
    at,
    document,
    dotted,
    first_usable,
    integer,
    is_newest_part,
    is_present,
    line_of,
    stat_of,
)
from doctor.facts.toml import read_toml

__all__ = ["read_containers"]

_TOOLKIT_PACKAGES = ("nvidia-container-toolkit", "nvidia-container-toolkit-base")
#: The second is where the GPU Operator puts what it brings.
_CONFIGS = tuple(
    f"{top}/nvidia-container-runtime/config.toml" for top in ("/etc", "/usr/local/nvidia/toolkit/.config")
)
_RUNTIMES = ("/usr/bin/nvidia-container-runtime", "/usr/bin/nvidia-container-runtime-hook")
_CGROUP_2 = "/sys/fs/cgroup/cgroup.controllers"
_SELINUX = "/sys/fs/selinux"
_OPERATOR = ("/run/nvidia/driver", "/run/nvidia/validations")
_PLUGINS = "/var/lib/kubelet/device-plugins"
_NODES = ("/dev/nvidiactl", "/dev/nvidia0")
#: Names of the nodes and libraries, and the type that SELinux's policy gives the nodes.
_OURS = pattern(r"nvidia|libcuda|xserver_misc_device_t")
_AVC = "avc:  denied"
_DENIALS_MAX = 50
#: Distribution of Kubernetes -> marks on disk, and systemd units. The more particular one first.
_KUBERNETES = (
    ("rke2", ("/usr/local/bin/rke2", "/opt/rke2/bin/rke2"), ("rke2-server.service", "rke2-agent.service")),
    ("k3s", ("/usr/local/bin/k3s",), ("k3s.service", "k3s-agent.service")),
    ("microk8s", ("/snap/microk8s/current",), ("snap.microk8s.daemon-kubelite.service",)),
    ("kubelet", ("/usr/bin/kubelet",), ("kubelet.service",)),
)


def read_containers(
    evidence: Evidence, packages: Fact[Packages], units: Fact[tuple[Unit, ...]], *, in_container: bool = False
) -> Containers:
    """The facts of `Host.containers`. Inside a container, no `/sys/fs/selinux` says nothing of the kernel."""
    selinux = _selinux(evidence, in_container=in_container)
    return Containers(
        engines=read_engines(evidence, packages),
        toolkit_version=_toolkit_version(evidence, packages),
        toolkit_config=_toolkit_config(evidence),
        cdi_specs=read_cdi_specs(evidence),
        cgroup_version=_cgroup_version(evidence),
        char_links=_char_links(evidence),
        selinux=selinux,
        selinux_denials=_denials(evidence, selinux),
        selinux_use_devices=_use_devices(evidence),
        kubernetes=_kubernetes(evidence, units),
        runtime_hook_present=_hook(evidence),
    )


# --- NVIDIA Container Toolkit ---------------------------------------------------------------------


def _toolkit_version(evidence: Evidence, packages: Fact[Packages]) -> Fact[Dotted]:
    version = package_version(packages, _TOOLKIT_PACKAGES)
    if version is not None and isinstance(packages, Known):
        return Known(value=version, origin=packages.origin)
    reading = evidence.command("nvidia-ctk", "--version")
    found = (
        re.search(r"version v?(\d{1,4}(?:\.\d{1,4}){1,3})", reading.text[:2000]) if reading.has_data else None
    )
    version = dotted(found[1]) if found is not None else None
    if version is not None:
        return Known(value=version, origin=reading.origin)
    return absent(reading, "it names no version" if reading.has_data else "")


def _toolkit_config(evidence: Evidence) -> Fact[ToolkitConfig]:
    reading = first_usable(*(evidence.file(path) for path in _CONFIGS))
    if not reading.has_data:
        return absent(reading)
    toml = read_toml(reading.text)
    cli, runtime = "nvidia-container-cli", "nvidia-container-runtime"
    value = ToolkitConfig(
        path=reading.origin.removeprefix("file:"),
        mode=toml.text(runtime, "mode"),
        no_cgroups=toml.flag(cli, "no-cgroups"),
        ldconfig=toml.text(cli, "ldconfig"),
        ldconfig_there=_ldconfig_there(evidence, toml.text(cli, "ldconfig") or ""),
        allows_ldconfig_of_image=toml.flag("features", "allow-ldconfig-from-container"),
        root=toml.text(cli, "root"),
        swarm_resource=toml.text("swarm-resource"),
        debug=toml.text(runtime, "debug") or toml.text(cli, "debug"),
        fault=toml.fault,
    )
    return Known(value=value, origin=reading.origin)


def _ldconfig_there(evidence: Evidence, value: str) -> tuple[str, ...] | None:
    if not value.startswith("@"):
        return None
    plain = value[1:].removesuffix(".real")
    said = {path: is_present(evidence, path) for path in (plain, f"{plain}.real")}
    return None if None in said.values() else tuple(path for path, answer in said.items() if answer)


def _hook(evidence: Evidence) -> Fact[bool]:
    return _any_of(evidence, _RUNTIMES)


def _any_of(evidence: Evidence, paths: Iterable[str]) -> Fact[bool]:
    """Whether one of the paths is there; false only when all were looked for."""
    said = {path: is_present(evidence, path) for path in paths}
    there = next((path for path, answer in said.items() if answer), None)
    if there is not None:
        return Known(value=True, origin=f"stat:{there}")
    if all(answer is False for answer in said.values()):
        return Known(value=False, origin=f"stat:{next(iter(said))}")
    return absent(first_usable(*(stat_of(evidence, path) for path in said)))


# --- the kernel's side ----------------------------------------------------------------------------


def _cgroup_version(evidence: Evidence) -> Fact[int]:
    unified = is_present(evidence, _CGROUP_2)
    if unified is not None:
        return Known(value=2 if unified else 1, origin=f"stat:{_CGROUP_2}")
    told = evidence.read("docker")
    said = _integer_of(at(document(told.data), "CgroupVersion")) if told.has_data else None
    if said in (1, 2):
        return Known(value=said, origin=told.origin)
    return absent(stat_of(evidence, _CGROUP_2))


def _integer_of(value: object) -> int | None:
    """A JSON number, or a text that is one: Docker writes `"2"`."""
    return int(value) if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value) else integer(value)


def _char_links(evidence: Evidence) -> Fact[bool]:
    """NVIDIA's nodes have the major number 195 (devices.txt of the kernel)."""
    links = [item for item in evidence.below("/dev/char/195:", "stat") if item.status == "ok"]
    if any("nvidia" in (item.link or "") for item in links):
        return Known(value=True, origin=links[0].key)
    nodes = [is_present(evidence, path) for path in _NODES]
    folder = stat_of(evidence, "/dev/char")
    if folder.status in ("ok", "missing") and True in nodes:
        return Known(value=False, origin=folder.origin)
    if folder.status in ("ok", "missing") and all(answer is False for answer in nodes):
        return Absent(reason="not_installed", origin=folder.origin, detail="there are no NVIDIA nodes")
    return Absent(reason="not_collected", origin=folder.origin) if folder.status == "ok" else absent(folder)


def _selinux(evidence: Evidence, *, in_container: bool) -> Fact[SelinuxMode]:
    enforce = evidence.file(f"{_SELINUX}/enforce")
    word = line_of(enforce) if enforce.has_data else ""
    if word in ("0", "1"):
        return Known(value="enforcing" if word == "1" else "permissive", origin=enforce.origin)
    told = evidence.command("getenforce")
    mode = _mode(line_of(told)) if told.has_data else None
    if mode is not None:
        return Known(value=mode, origin=told.origin)
    if is_present(evidence, _SELINUX) is False and not in_container:
        return Known(value="disabled", origin=f"stat:{_SELINUX}")
    return absent(first_usable(enforce, told))


def _mode(word: str) -> SelinuxMode | None:
    modes: dict[str, SelinuxMode] = {
        "enforcing": "enforcing",
        "permissive": "permissive",
        "disabled": "disabled",
    }
    return modes.get(word.lower())


def _use_devices(evidence: Evidence) -> Fact[bool]:
    """The file holds the value and the one to come: `0 0`; `getsebool` prints `NAME --> off`."""
    reading = evidence.file(f"{_SELINUX}/booleans/container_use_devices")
    word = line_of(reading).split() if reading.has_data else []
    if word and word[0] in ("0", "1"):
        return Known(value=word[0] == "1", origin=reading.origin)
    told = evidence.command("getsebool", "container_use_devices")
    found = re.search(r"--> (on|off)", told.text[:2000]) if told.has_data else None
    if found is not None:
        return Known(value=found[1] == "on", origin=told.origin)
    if reading.status is None and is_present(evidence, _SELINUX) is False:
        return Absent(reason="not_installed", origin=f"stat:{_SELINUX}")
    return absent(first_usable(reading, told))


def _denials(evidence: Evidence, selinux: Fact[SelinuxMode]) -> Fact[tuple[str, ...]]:
    """From the audit log, and from the kernel's, where no daemon takes them out of it."""
    audit = evidence.file("/var/log/audit/audit.log")
    logs = [audit, evidence.command("dmesg"), evidence.command("journalctl", "-k", "-b", "0")]
    found = dict.fromkeys(line for log in logs if log.has_data for line in _avc_lines(log))
    if found:
        return Known(value=tuple(found)[-_DENIALS_MAX:], origin=next(r.origin for r in logs if r.has_data))
    if isinstance(selinux, Known) and selinux.value == "disabled":
        return Absent(reason="not_installed", origin=selinux.origin)
    # Where auditd runs it keeps denials out of the kernel's log: that log alone says nothing then.
    silent = audit if audit.has_data or audit.status != "missing" else first_usable(*logs[1:])
    return Known(value=(), origin=silent.origin) if is_newest_part(silent) else absent(silent)


def _avc_lines(log: Reading) -> list[str]:
    if _AVC.encode() not in log.data:
        return []
    lines = (line.strip() for line in log.text.splitlines() if _AVC in line)
    return [line[:600] for line in lines if _OURS.search(line)][-_DENIALS_MAX:]


# --- Kubernetes -----------------------------------------------------------------------------------


def _kubernetes(evidence: Evidence, units: Fact[tuple[Unit, ...]]) -> Fact[Kubernetes]:
    operator = _any_of(evidence, _OPERATOR)
    plugin = _plugin_socket(evidence)
    name = _distribution(evidence, units)
    marks = [is_present(evidence, path) for _, paths, _ in _KUBERNETES for path in paths]
    has_operator = operator.value if isinstance(operator, Known) else None
    if name or has_operator or plugin:
        value = Kubernetes(
            distribution=name, has_nvidia_operator=has_operator, has_device_plugin_socket=plugin
        )
        return Known(value=value, origin=operator.origin or "stat:/usr/bin/kubelet")
    if any(answer is False for answer in marks):
        return Absent(reason="not_installed", origin="stat:/usr/bin/kubelet")
    return absent(stat_of(evidence, "/usr/bin/kubelet"))


def _distribution(evidence: Evidence, units: Fact[tuple[Unit, ...]]) -> str:
    active = {u.name for u in units.value if u.active == "active"} if isinstance(units, Known) else set()
    for name, paths, services in _KUBERNETES:
        if not active.isdisjoint(services) or any(is_present(evidence, path) for path in paths):
            return name
    return ""


def _plugin_socket(evidence: Evidence) -> bool | None:
    items = evidence.below(f"{_PLUGINS}/nvidia", "stat")
    if any(item.exists for item in items):
        return True
    return False if stat_of(evidence, _PLUGINS).status in ("ok", "missing") else None

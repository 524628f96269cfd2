"""Container engines: which are there, and what their configuration and their own word say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from doctor.core.evidence import Evidence, Reading
from doctor.core.host import Fact, Known, Packages
from doctor.core.host_container import ContainerEngine, EngineName
from doctor.core.versions import Dotted
from doctor.facts.docker import DOCKER_BINARIES, read_docker
from doctor.facts.source import absent, dotted, first_usable, is_present
from doctor.facts.toml import Toml, read_toml

__all__ = ["package_version", "read_engines"]

_RUNTIMES_MAX = 64
_NAME_MAX = 200
#: Where the binary of an engine may lie.
_BINARIES: dict[EngineName, tuple[str, ...]] = {
    "docker": DOCKER_BINARIES,
    "containerd": ("/usr/bin/containerd", "/usr/local/bin/containerd"),
    "podman": ("/usr/bin/podman",),
    "crio": ("/usr/bin/crio", "/usr/local/bin/crio"),
    "k3s": ("/usr/local/bin/k3s",),
    "rke2": ("/usr/local/bin/rke2", "/opt/rke2/bin/rke2"),
}
_PACKAGES: dict[EngineName, tuple[str, ...]] = {
    "docker": ("docker-ce", "docker.io", "moby-engine", "docker-engine", "docker"),
    "containerd": ("containerd.io", "containerd", "moby-containerd"),
    "podman": ("podman",),
    "crio": ("cri-o",),
}
#: containerd's plugin that runs pods: of its versions 3, 2 and 1 of the configuration.
_CRI = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")


def read_engines(evidence: Evidence, packages: Fact[Packages]) -> Fact[tuple[ContainerEngine, ...]]:
    """All engines; an empty tuple where they were looked for and none is there."""
    versions = {
        name: v for name, names in _PACKAGES.items() if (v := package_version(packages, names)) is not None
    }
    found = [
        *read_docker(evidence, versions.get("docker")),
        *_containerd(evidence, versions.get("containerd")),
        *_toml_engine(evidence, "podman", versions.get("podman")),
        *_toml_engine(evidence, "crio", versions.get("crio")),
        *_rancher(evidence, "k3s"),
        *_rancher(evidence, "rke2"),
    ]
    binaries = [path for paths in _BINARIES.values() for path in paths]
    asked = [evidence.read(f"stat:{path}") for path in binaries]
    if found:
        origin = found[0].config_path
        first = first_usable(evidence.file(origin), *asked) if origin else first_usable(*asked)
        return Known(value=tuple(found), origin=first.origin)
    if any(is_present(evidence, path) is False for path in binaries):
        return Known(value=(), origin=first_usable(*asked).origin)
    return absent(first_usable(*asked))


def package_version(packages: Fact[Packages], names: Iterable[str]) -> Dotted | None:
    """The upstream part of the first of these packages that is installed: `28.1.1` of `5:28.1.1-1~ubuntu`."""
    if not isinstance(packages, Known):
        return None
    installed = {p.name: p.version for p in packages.value.installed}
    for name in names:
        match = re.match(r"(?:\d{1,4}:)?v?(\d{1,9}(?:\.\d{1,9}){0,5})", installed.get(name, ""))
        if match is not None:
            return dotted(match[1])
    return None


def _binary(evidence: Evidence, name: EngineName) -> tuple[str, bool]:
    """(path, whether all places were looked at and hold none)."""
    said = {path: is_present(evidence, path) for path in _BINARIES[name]}
    path = next((p for p, answer in said.items() if answer), "")
    return path, not path and False in said.values()


# --- engines that are configured in TOML ----------------------------------------------------------


def _containerd(evidence: Evidence, version: Dotted | None) -> Iterator[ContainerEngine]:
    path, is_absent = _binary(evidence, "containerd")
    config = evidence.file("/etc/containerd/config.toml")
    if path or (config.has_data and not is_absent):
        yield _cri_engine(evidence, "containerd", config, path=path, version=version)


def _rancher(evidence: Evidence, name: EngineName) -> Iterator[ContainerEngine]:
    """k3s and RKE2 bring a containerd of their own and write its configuration at each start."""
    path, is_absent = _binary(evidence, name)
    config = evidence.file(f"/var/lib/rancher/{name}/agent/etc/containerd/config.toml")
    if path or (config.has_data and not is_absent):
        yield _cri_engine(evidence, name, config, path=path, version=None)


def _cri_engine(
    evidence: Evidence, name: EngineName, config: Reading, *, path: str, version: Dotted | None
) -> ContainerEngine:
    files = _parsed(config)
    if files:
        files += [
            (place, toml)
            for place, toml in _drop_ins(evidence, "/etc/containerd/conf.d/")
            if _is_imported(files[0][1], place)
        ]
    fault = next(
        (f"{place}: {t.fault}" if i else t.fault for i, (place, t) in enumerate(files) if t.fault), ""
    )
    fields = _cri_fields([toml for _, toml in files]) if files else _unread(config)
    return ContainerEngine(
        name=name,
        version=version,
        path=path,
        is_snap=False if path else None,
        config_path=files[0][0] if files else "",
        config_fault=fault,
        **fields,
    )


def _parsed(reading: Reading) -> list[tuple[str, Toml]]:
    return [(reading.origin.removeprefix("file:"), read_toml(reading.text))] if reading.has_data else []


def _drop_ins(evidence: Evidence, directory: str) -> list[tuple[str, Toml]]:
    return [pair for item in evidence.below(directory) for pair in _parsed(evidence.read(item.key))][:32]


def _is_imported(main: Toml, place: str) -> bool:
    return any(fnmatchcase(place, pattern[:400]) for pattern in (main.texts("imports") or ())[:32])


def _unread(config: Reading) -> dict[str, Any]:
    nothing = () if config.status == "missing" else None
    return {"runtimes": nothing, "configured_runtimes": nothing}


def _cri_fields(files: list[Toml]) -> dict[str, Any]:
    """Later files win, key by key, as containerd merges what it imports."""
    runtimes: dict[str, str] = {}
    fields: dict[str, Any] = {
        "default_runtime": None,
        "cdi_enabled": None,
        "cdi_dirs": None,
        "cgroup_driver": None,
    }
    disabled: tuple[str, ...] = ()
    for toml in files:
        disabled = toml.texts("disabled_plugins") or disabled
        for plugin in _CRI:
            top = ("plugins", plugin)
            for name in toml.names_below(*top, "containerd", "runtimes")[:_RUNTIMES_MAX]:
                runtimes.setdefault(name[:_NAME_MAX], "")
                binary = toml.text(*top, "containerd", "runtimes", name, "options", "BinaryName")
                runtimes[name[:_NAME_MAX]] = binary or runtimes[name[:_NAME_MAX]]
            said = {
                "default_runtime": toml.text(*top, "containerd", "default_runtime_name"),
                "cdi_enabled": toml.flag(*top, "enable_cdi"),
                "cdi_dirs": toml.texts(*top, "cdi_spec_dirs"),
                "cgroup_driver": _cgroup_driver(toml, top),
            }
            fields.update({key: value for key, value in said.items() if value is not None})
    return {
        **fields,
        "runtimes": tuple(runtimes),
        "configured_runtimes": tuple(runtimes),
        "runtime_paths": {name: path for name, path in runtimes.items() if path},
        "disabled_plugins": tuple(p[:_NAME_MAX] for p in disabled[:64]),
    }


def _cgroup_driver(toml: Toml, top: tuple[str, ...]) -> str | None:
    flag = toml.flag(*top, "containerd", "runtimes", "runc", "options", "SystemdCgroup")
    return None if flag is None else "systemd" if flag else "cgroupfs"


def _toml_engine(evidence: Evidence, name: EngineName, version: Dotted | None) -> Iterator[ContainerEngine]:
    """Podman and CRI-O: one file, and drop-ins that win over it."""
    is_podman = name == "podman"
    main = "/etc/containers/containers.conf" if is_podman else "/etc/crio/crio.conf"
    path, is_absent = _binary(evidence, name)
    files = [*_parsed(evidence.file(main)), *_drop_ins(evidence, f"{main}.d/")]
    if not path and (is_absent or not files):
        return
    top = ("engine",) if is_podman else ("crio", "runtime")
    fields = _engine_fields(
        [toml for _, toml in files], top, key="runtime" if is_podman else "default_runtime"
    )
    yield ContainerEngine(
        name=name,
        version=version,
        path=path,
        is_snap=False if path else None,
        config_path=files[0][0] if files else "",
        config_fault=next((f"{place}: {toml.fault}" for place, toml in files if toml.fault), ""),
        **(fields if files else _unread(evidence.file(main))),
    )


def _engine_fields(files: list[Toml], top: tuple[str, ...], *, key: str) -> dict[str, Any]:
    runtimes: dict[str, str] = {}
    fields: dict[str, Any] = {"default_runtime": None, "cgroup_driver": None, "cdi_dirs": None}
    for toml in files:
        for name in toml.names_below(*top, "runtimes")[:_RUNTIMES_MAX]:
            places = toml.texts(*top, "runtimes", name) or ()
            path = toml.text(*top, "runtimes", name, "runtime_path") or next(iter(places), "")
            runtimes[name[:_NAME_MAX]] = path or runtimes.get(name[:_NAME_MAX], "")
        said = {
            "default_runtime": toml.text(*top, key),
            "cgroup_driver": toml.text(*top, "cgroup_manager"),
            "cdi_dirs": toml.texts(*top, "cdi_spec_dirs"),
        }
        fields.update({name: value for name, value in said.items() if value is not None})
    return {
        **fields,
        "runtimes": tuple(runtimes),
        "configured_runtimes": tuple(runtimes),
        "runtime_paths": {name: path[:400] for name, path in runtimes.items() if path},
    }

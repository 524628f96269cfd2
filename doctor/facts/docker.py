"""Docker: its daemon's configuration, and its own word where a daemon runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from doctor.core.evidence import Evidence, Reading
from doctor.core.host_container import ContainerEngine
from doctor.core.versions import Dotted
from doctor.facts.source import at, document, dotted, is_present, string

__all__ = ["DOCKER_BINARIES", "read_docker"]

_RUNTIMES_MAX = 64
_NAME_MAX = 200
#: `docker` alone is a client, or Podman under its name.
DOCKER_BINARIES = ("/usr/bin/dockerd", "/usr/local/bin/dockerd")
_SNAP = "/snap/bin/docker"
_SNAP_CONFIG = "/var/snap/docker/current/config/daemon.json"
_CONFIG = "/etc/docker/daemon.json"


def read_docker(evidence: Evidence, version: Dotted | None) -> Iterator[ContainerEngine]:
    """The engine of a package and that of a snap: a host may have both."""
    word = evidence.read("docker")
    told = document(word.data) if word.has_data else None
    is_snaps = "snap" in (string(at(told, "pid_file")) or "")
    said = {place: is_present(evidence, place) for place in DOCKER_BINARIES}
    path = next((place for place, answer in said.items() if answer), "")
    is_absent = not path and False in said.values()
    config = evidence.file(_CONFIG)
    if path or (told is not None and not is_snaps) or (config.has_data and not is_absent):
        own = None if is_snaps else told
        client = "/usr/bin/docker" if is_present(evidence, "/usr/bin/docker") else path
        yield _docker_engine(config, own, path=client, version=version, users=_has_user_socket(evidence))
    if is_present(evidence, _SNAP):
        yield _docker_engine(
            evidence.file(_SNAP_CONFIG), told if is_snaps else None, path=_SNAP, version=None, users=False
        )


def _has_user_socket(evidence: Evidence) -> bool:
    """True where a user has a Docker socket and the system has none."""
    if is_present(evidence, "/run/docker.sock") is not False:
        return False
    sockets = evidence.below("/run/user/", "stat")
    return any(i.key.endswith("/docker.sock") and i.exists for i in sockets)


def _docker_engine(
    config: Reading, told: dict[str, object] | None, *, path: str, version: Dotted | None, users: bool
) -> ContainerEngine:
    fields = _daemon_json(config)
    own = _docker_word(told)
    paths = {**fields.pop("runtime_paths", {}), **own.pop("runtime_paths", {})}
    fields.update({key: value for key, value in own.items() if value is not None})
    fields.setdefault("is_rootless", True if users else None)
    return ContainerEngine(
        name="docker",
        path=path,
        is_snap=path.startswith("/snap/") if path else None,
        runtime_paths=paths,
        **{"version": version, **fields},
    )


def _docker_word(told: dict[str, object] | None) -> dict[str, Any]:
    """What `/info` says; a daemon that knows no CDI, or has it switched off, names no directory for it."""
    if told is None:
        return {}
    runtimes = at(told, "Runtimes")
    options = at(told, "SecurityOptions")
    dirs = at(told, "CDISpecDirs")
    driver = string(at(told, "CgroupDriver"), 40)
    return {
        "version": dotted(string(at(told, "ServerVersion"), 60)),
        "runtimes": _names(runtimes) if isinstance(runtimes, dict) else None,
        "runtime_paths": _paths(runtimes),
        "default_runtime": string(at(told, "DefaultRuntime"), _NAME_MAX),
        "cgroup_driver": driver if driver in ("systemd", "cgroupfs") else None,
        "is_rootless": any("rootless" in str(o) for o in options) if isinstance(options, list) else None,
        "cdi_enabled": bool(dirs),
        "cdi_dirs": _texts(dirs),
    }


def _names(table: object) -> tuple[str, ...]:
    return (
        tuple(str(name)[:_NAME_MAX] for name in list(table)[:_RUNTIMES_MAX])
        if isinstance(table, dict)
        else ()
    )


def _paths(table: object) -> dict[str, str]:
    found = {name: string(at(table, name, "path"), 400) for name in _names(table)}
    return {name: path for name, path in found.items() if path}


def _texts(value: object) -> tuple[str, ...] | None:
    return tuple(str(v)[:400] for v in value[:64] if isinstance(v, str)) if isinstance(value, list) else None


def _daemon_json(reading: Reading) -> dict[str, Any]:
    """Fields out of `daemon.json`; where it is known not to exist, no runtime is configured."""
    path = reading.origin.removeprefix("file:")
    if not reading.has_data:
        nothing = () if reading.status == "missing" else None
        return {"runtimes": nothing, "configured_runtimes": nothing}
    fault, doc = _json_object(reading.data)
    if doc is None:
        return {"config_path": path, "config_fault": fault}
    runtimes, features = doc.get("runtimes"), doc.get("features")
    if runtimes is not None and not isinstance(runtimes, dict):
        return {"config_path": path, "config_fault": "`runtimes` is no object of names"}
    options = _texts(doc.get("exec-opts")) or ()
    driver = next((o.partition("=")[2] for o in options if o.startswith("native.cgroupdriver=")), None)
    cdi = at(features, "cdi")
    return {
        "config_path": path,
        "runtimes": _names(runtimes),
        "configured_runtimes": _names(runtimes),
        "runtime_paths": _paths(runtimes),
        "default_runtime": string(doc.get("default-runtime"), _NAME_MAX),
        "cgroup_driver": driver if driver in ("systemd", "cgroupfs") else None,
        "cdi_enabled": cdi if isinstance(cdi, bool) else None,
        "cdi_dirs": _texts(doc.get("cdi-spec-dirs")),
    }


def _json_object(data: bytes) -> tuple[str, dict[str, object] | None]:
    """(why not, object). An empty file is one that Docker refuses, too."""
    if not data.strip():
        return "it is empty, which is no JSON", None
    try:
        doc = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        place = re.search(r"\(byte (\d{1,9})\)", str(error))
        line = data.count(b"\n", 0, int(place[1])) + 1 if place is not None else 0
        where = f"line {line}: " if line else ""
        return f"{where}no JSON: {str(error)[:200]}", None
    return ("", doc) if isinstance(doc, dict) else ("no JSON object", None)

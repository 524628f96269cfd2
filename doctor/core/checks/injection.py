"""Checks of how a container gets the GPU, at both sides: CDI and SELinux on the host, and what is inside."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import asked, inside_container, on_gpu_host, outside_containers
from doctor.core.checks.container import grave, on_engines
from doctor.core.checks.told import fact_untold
from doctor.core.claims.cdi import cdi_specs, cdi_unseen, driver_of_containers, stale_words
from doctor.core.claims.container import (
    reload_loss_open,
    reload_loss_seen,
    selinux_enforces,
    selinux_refusal_seen,
    shm_small,
    shm_total_bytes,
)
from doctor.core.claims.running import nvml_answers
from doctor.core.host import known
from doctor.core.views import report

__all__ = ["CHECKS"]

_SPECS = asked("containers.cdi_specs", "CDI specifications")
_ON_HOST = (on_gpu_host, outside_containers)


@check(
    "container.cdi_spec",
    "CDI specification of this driver",
    needs=("containers.cdi_specs",),
    applies=(*_ON_HOST, _SPECS),
)
def cdi_spec(case: Case) -> Iterator[Outcome]:
    """It names libraries by version: a driver update leaves it behind until it is written anew."""
    driver = driver_of_containers(case)
    for spec in cdi_specs(case) or ():
        wanted = f"driver {driver}" if driver else "the installed driver"
        named = ", ".join(spec.driver_versions)
        if not spec.is_read:
            yield unknown(spec.fault, subject=spec.path)
        elif spec.fault:
            yield grave(case)(spec.fault, subject=spec.path, wanted="a specification that can be read")
        elif named and driver is None:
            yield unknown(f"driver {named}; the installed one is not known", subject=spec.path)
        elif named and "names driver" in stale_words(case, spec):
            why = ("containers get paths that are gone: write it anew after each driver update",)
            yield grave(case)(f"driver {named}", subject=spec.path, wanted=wanted, why=why)
        else:
            yield passed(f"driver {named}" if named else "it names no version", subject=spec.path)
    if not cdi_specs(case):
        yield skipped("no CDI specification of the GPUs")


@check(
    "container.cdi_paths",
    "what CDI names is there",
    needs=("containers.cdi_specs",),
    applies=(*_ON_HOST, _SPECS),
)
def cdi_paths(case: Case) -> Iterator[Outcome]:
    """Files and nodes of the host that a specification mounts; a missing one stops the container."""
    for spec in cdi_specs(case) or ():
        missing = spec.missing_paths
        if missing is None:
            yield skipped("nobody looked for them", subject=spec.path)
        elif missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            found = f"`{missing[0]}`{more} missing"
            yield grave(case)(found, subject=spec.path, wanted="every path of it on this host")
        else:
            yield passed(f"{len(spec.host_paths)} paths", subject=spec.path)
    if not cdi_specs(case):
        yield skipped("no CDI specification of the GPUs")


@check(
    "container.cdi_dirs",
    "engines see the CDI specification",
    needs=("containers.engines",),
    applies=(*on_engines, _SPECS),
)
def cdi_dirs(case: Case) -> Iterator[Outcome]:
    """The engine reads its directory, and is new enough for the version it is written in."""
    claim, wanted = cdi_unseen(case), "a specification that the engine reads"
    readers = [e for e in known(case.host.containers.engines) or () if e.name == "podman" or e.cdi_enabled]
    if not readers:
        yield skipped("no engine here uses CDI")
    elif claim.holds:
        yield grave(case)(claim.because, wanted=wanted)
    elif claim.holds is None:
        yield unknown("the specifications were not read", wanted=wanted)
    elif not cdi_specs(case):
        yield skipped("nothing here is given by CDI")
    else:
        yield passed(", ".join(e.name for e in readers), wanted=wanted)


@check(
    "container.cgroup_devices",
    "systemd knows the GPU devices",
    needs=("containers.engines",),
    applies=on_engines,
)
def cgroup_devices(case: Case) -> Iterator[Outcome]:
    """With the legacy hook, `systemctl daemon-reload` takes devices away that systemd was never told of."""
    seen, is_open = reload_loss_seen(case), reload_loss_open(case)
    if seen.holds and is_open.holds:
        why = ("after a `systemctl daemon-reload` running containers get `NVML: Unknown Error`",)
        wanted = "CDI, or links in `/dev/char`"
        yield warned(f"{seen.because}; {is_open.because}", wanted=wanted, why=why)
    elif seen.holds and is_open.holds is None:
        yield unknown(f"{seen.because}; whether `/dev/char` has links was not read")
    elif seen.holds:
        yield passed("`/dev/char` has links to the NVIDIA nodes")
    elif seen.holds is None:
        words = "nothing tells how GPUs are given"
        yield fact_untold(case.host.containers.toolkit_config, "the toolkit's configuration", absent=words)
    else:
        yield passed("the legacy hook is not used under systemd's cgroups")


@check(
    "container.selinux",
    "SELinux lets containers use the GPU",
    needs=("containers.selinux",),
    applies=(*_ON_HOST, asked("containers.selinux", "SELinux")),
)
def selinux(case: Case) -> Iterator[Outcome]:
    """Only a refusal that was logged counts: enforcing is as it should be."""
    mode = known(case.host.containers.selinux)
    seen, enforces = selinux_refusal_seen(case), selinux_enforces(case)
    if mode in (None, "disabled"):
        yield skipped("SELinux is not in use")
    elif seen.holds and enforces.holds:
        yield grave(case)(seen.because, wanted="no refusal of an NVIDIA device", why=(enforces.because,))
    elif seen.holds:
        yield passed(f"{mode}; a refusal was logged", why=(seen.because,))
    elif seen.holds is None and enforces.holds is not False:
        fact = case.host.containers.selinux_denials
        yield fact_untold(fact, "the audit log", absent="there is no audit log")
    else:
        yield passed(f"{mode}, no refusal logged" if seen.holds is False else str(mode))


@check(
    "container.gpu_visible",
    "container given a GPU",
    needs=("driver.nvml|driver.smi",),
    applies=(on_gpu_host, inside_container),
)
def gpu_visible(case: Case) -> Iterator[Outcome]:
    """By what name it asked for devices, and for which parts of the driver."""
    variables, answers = case.host.system.environment, nvml_answers(case)
    devices, parts = variables.get("NVIDIA_VISIBLE_DEVICES"), variables.get("NVIDIA_DRIVER_CAPABILITIES")
    wanted = "a GPU that the driver lists inside"
    answered = report(case)
    if answers.holds and answered:
        yield _parts_outcome(parts, len(answered.gpus))
    elif devices in ("", "none", "void"):
        found = f"NVIDIA_VISIBLE_DEVICES is `{devices}`: none was asked for"
        yield failed(found, wanted=wanted)
    elif answers.holds is None:
        yield unknown("the driver was not asked inside", wanted=wanted)
    else:
        yield skipped("the driver lists none inside: see `driver.nvml`")


def _parts_outcome(parts: str | None, count: int) -> Outcome:
    """Without `compute` libcuda is not mounted, and nvidia-smi works all the same."""
    words = {word.strip() for word in (parts or "").split(",")} - {""}
    if words and not words & {"compute", "all"}:
        found = f"NVIDIA_DRIVER_CAPABILITIES is `{parts}`"
        return warned(found, wanted="`compute` among them", why=("libcuda is not mounted without it",))
    return passed(f"{count} GPU(s)")


@check(
    "container.shm",
    "shared memory for several GPUs",
    needs=("system.resources",),
    applies=(on_gpu_host, inside_container, asked("system.resources", "memory and file systems")),
)
def shm(case: Case) -> Iterator[Outcome]:
    """NCCL and torch's loaders talk through `/dev/shm`; an engine gives a container 64 MiB of it."""
    small, total = shm_small(case), shm_total_bytes(case)
    if total is None:
        yield skipped("`/dev/shm` was not measured")
    elif small.holds:
        why = ("NCCL cannot make its segments there as soon as work uses several GPUs",)
        yield warned(small.because, wanted="some GiB, or the host's (`--ipc=host`)", why=why)
    elif small.holds is None:
        yield unknown(f"{total // 1024**2} MiB; how many GPUs use it was not read")
    else:
        yield passed(f"{total // 1024**2} MiB")


#: What has happened stands before what may.
CHECKS = (cdi_spec, cdi_paths, cdi_dirs, selinux, cgroup_devices, gpu_visible, shm)

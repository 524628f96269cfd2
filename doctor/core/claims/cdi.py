"""Claims about CDI: specifications of the GPUs, what they name, and whether the engines can use them."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.host import Known, is_not_there, known
from doctor.core.host_container import CdiSpec, ContainerEngine, Kubernetes
from doctor.core.sets import VersionSet
from doctor.core.versions import Dotted
from doctor.core.views import same_version

__all__ = [
    "cdi_specs",
    "cdi_stale",
    "cdi_unseen",
    "driver_of_containers",
    "engine",
    "kubernetes",
    "operator_manages",
    "stale_words",
    "toolkit_present",
    "unseen_words",
]

#: The matrix's names of engines, where they differ.
_COMPONENTS = {"crio": "cri-o"}


def engine(case: Case, name: str) -> ContainerEngine | None:
    """The engine of that name; None when it is not there or nobody looked."""
    return next((e for e in known(case.host.containers.engines) or () if e.name == name), None)


def kubernetes(case: Case) -> Kubernetes | None:
    """What shows of a Kubernetes node; None where there is none, or nobody looked."""
    node = known(case.host.containers.kubernetes)
    return node if node is not None and (node.distribution or node.has_nvidia_operator) else None


def operator_manages(case: Case) -> bool:
    """Whether the GPU Operator brings toolkit and configuration here, in containers of its own."""
    node = known(case.host.containers.kubernetes)
    return bool(node and node.has_nvidia_operator) or isinstance(case.host.driver.container_root, Known)


def toolkit_present(case: Case) -> bool | None:
    """Whether the NVIDIA Container Toolkit is on this host; None when that was not read."""
    version, hook = case.host.containers.toolkit_version, known(case.host.containers.runtime_hook_present)
    if isinstance(version, Known) or hook:
        return True
    return False if is_not_there(version) or hook is False else None


def cdi_specs(case: Case) -> tuple[CdiSpec, ...] | None:
    """The CDI specifications for NVIDIA's GPUs; None when nobody looked for any."""
    fact = case.host.containers.cdi_specs
    if is_not_there(fact):
        return ()
    specs = known(fact)
    return None if specs is None else tuple(s for s in specs if _is_of_gpus(s))


def _is_of_gpus(spec: CdiSpec) -> bool:
    """By its kind; by its name where it could not be read."""
    return spec.kind == "nvidia.com/gpu" or (not spec.kind and "nvidia" in spec.path.rpartition("/")[2])


def driver_of_containers(case: Case) -> Dotted | None:
    """The driver whose libraries a specification has to name: what is on disk, else what is loaded."""
    return known(case.host.driver.userspace_version) or known(case.host.driver.kernel_version)


def stale_words(case: Case, spec: CdiSpec) -> str:
    """Why a specification belongs to another driver; empty when nothing says so."""
    driver = driver_of_containers(case)
    if driver is not None and spec.driver_versions:
        named = [Dotted(text) for text in spec.driver_versions]
        if not any(same_version(version, driver) for version in named):
            return f"`{spec.path}` names driver {', '.join(spec.driver_versions)}, installed is {driver}"
    gone = [path for path in spec.missing_paths or () if "nvidia" in path or "libcuda" in path]
    return f"`{spec.path}` names `{gone[0]}`, which is not there" if gone else ""


def cdi_stale(case: Case) -> Claimed:
    """A CDI specification names what an earlier driver brought."""
    specs = cdi_specs(case)
    if specs is None:
        return UNTOLD
    words = [text for spec in specs if (text := stale_words(case, spec))]
    if words:
        return yes(words[0])
    is_told = all(
        s.missing_paths is not None or (s.driver_versions and driver_of_containers(case)) for s in specs
    )
    return no() if is_told else UNTOLD


def unseen_words(case: Case, one: ContainerEngine, spec: CdiSpec) -> str:
    """Why an engine cannot use a specification; empty when nothing says so."""
    folder = spec.path.rpartition("/")[0]
    folders = {_plain(path) for path in one.cdi_dirs or ()}
    if folders and _plain(folder) not in folders:
        return f"`{one.name}` reads {', '.join(sorted(folders))}, and `{spec.path}` lies elsewhere"
    if one.name == "podman" and spec.folder_mode.isdigit() and not int(spec.folder_mode, 8) & 0o001:
        return f"`{folder}` has mode {spec.folder_mode}: Podman without root does not find `{spec.path}`"
    component = _COMPONENTS.get(one.name, one.name)
    for row in case.matrix.edition.relations:
        if row.id != f"cdi-spec-{spec.cdi_version}-{component}" or one.version is None:
            continue
        floor = row.requires.get(component, "*")
        if one.version not in VersionSet(floor, "dotted"):
            return f"`{one.name}` {one.version} does not read CDI {spec.cdi_version} (it needs {floor})"
    return ""


def _plain(path: str) -> str:
    """`/var/run` is a link to `/run`."""
    return path.rstrip("/").replace("/var/run/", "/run/")


def cdi_unseen(case: Case) -> Claimed:
    """An engine that gives GPUs by CDI has no specification that it can use."""
    specs, engines = cdi_specs(case), known(case.host.containers.engines)
    if specs is None or engines is None:
        return UNTOLD
    readers = [e for e in engines if e.name == "podman" or e.cdi_enabled]
    if not specs:
        is_wanted = any(not any(n.startswith("nvidia") for n in e.runtimes or ()) for e in readers)
        is_alone = is_wanted and toolkit_present(case) and not operator_manages(case)
        return either(bool(is_alone), "no CDI specification for the GPUs is on this host")
    words = [[unseen_words(case, e, s) for s in specs] for e in readers]
    blocked = [row[0] for row in words if row and all(row)]
    if blocked:
        return yes(blocked[0])
    if not all(s.is_read for s in specs):
        return UNTOLD
    faulty = [s for s in specs if s.fault]
    return either(len(faulty) == len(specs), f"`{specs[0].path}`: {specs[0].fault}")

"""Claims about the NVIDIA Container Toolkit: its packages, its mode, its ldconfig, its bulletins."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.cdi import cdi_specs
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.claims.container import is_since
from doctor.core.host import Known, is_not_there, known
from doctor.core.rows.relation import Advisory
from doctor.core.sets import VersionSet
from doctor.core.views import on_jetson

__all__ = [
    "toolkit_bulletins",
    "toolkit_ldconfig_unfit",
    "toolkit_mode_known",
    "toolkit_mode_unfit",
    "toolkit_named",
    "toolkit_packages",
    "toolkit_parts_differ",
]

#: Where the GPU Operator's driver container mounts its driver; its configuration may outlive it.
_OPERATOR_ROOT = "/run/nvidia/driver"


def toolkit_mode_unfit(case: Case) -> Claimed:
    """The toolkit's configuration cannot be read, or sets what does not work on this host."""
    mode, ldconfig = toolkit_mode_known(case), toolkit_ldconfig_unfit(case)
    if mode.holds or ldconfig.holds:
        return mode if mode.holds else ldconfig
    return no() if mode.holds is False and ldconfig.holds is False else UNTOLD


def toolkit_ldconfig_unfit(case: Case) -> Claimed:
    """The program that is to write library caches is not on this host, or the toolkit refuses to take it.

    A path with `@` is the host's. From one release on others are refused, and the name without `.real` stands
    in for the one with it.
    """
    fact = case.host.containers.toolkit_config
    config, version = known(fact), known(case.host.containers.toolkit_version)
    if config is None:
        return no() if is_not_there(fact) else UNTOLD
    value = config.ldconfig or ""
    if not value or config.allows_ldconfig_of_image or (config.root or "").startswith(_OPERATOR_ROOT):
        return no()
    if not value.startswith("@"):
        words = f"`{config.path}` sets ldconfig `{value}`, without `@`: toolkit {version} refuses it"
        is_refused = is_since(case, version, "host-relative")
        return UNTOLD if is_refused is None else either(is_refused, words)
    there = config.ldconfig_there
    if there is None:
        return UNTOLD
    if not there:
        return yes(f"`{config.path}` sets ldconfig `{value}`, and it is not on this host")
    return no() if value[1:] in there or is_since(case, version, "ldconfig.real") else UNTOLD


def toolkit_mode_known(case: Case) -> Claimed:
    """The toolkit's configuration cannot be read, or sets a mode or root that does not work here."""
    fact = case.host.containers.toolkit_config
    config = known(fact)
    if config is None:
        return no() if is_not_there(fact) else UNTOLD
    if config.fault:
        return yes(f"`{config.path}`: {config.fault}")
    if (config.root or "").startswith(_OPERATOR_ROOT) and is_not_there(case.host.driver.container_root):
        return yes(f"`{config.path}` looks for the driver in `{config.root}`, and none is there")
    if config.mode == "csv":
        return either(not on_jetson(case), f"`{config.path}` sets mode `csv`, and this is no Jetson")
    if config.mode != "cdi":
        return no()
    specs = cdi_specs(case)
    return UNTOLD if specs is None else either(not specs, "mode `cdi` is set, and there is no specification")


def toolkit_packages(case: Case) -> dict[str, str]:
    """The packages of the toolkit -> their version, without epoch and revision."""
    packages = known(case.host.packages)
    return {
        p.name: p.version.rpartition(":")[2].partition("-")[0].partition("~")[0]
        for p in (packages.installed if packages else ())
        if p.name.startswith(("nvidia-container-toolkit", "libnvidia-container"))
    }


def toolkit_parts_differ(case: Case) -> Claimed:
    """Packages of the toolkit, which are made together, have different versions."""
    if known(case.host.packages) is None:
        return UNTOLD
    found = toolkit_packages(case)
    words = ", ".join(f"{name} {version}" for name, version in sorted(found.items()))
    return either(len(set(found.values())) > 1, words)


def toolkit_bulletins(case: Case) -> list[Advisory]:
    """The security bulletins that name this host's release of the toolkit, oldest first."""
    version = known(case.host.containers.toolkit_version)
    rows = [a for a in case.matrix.edition.advisories if a.component == "container-toolkit" and a.affected]
    if version is None:
        return []
    # Its numbers are plain; the scheme of Python packages would load `packaging`.
    return [a for a in rows if version in VersionSet(a.affected, "dotted")]


def toolkit_named(case: Case) -> Claimed:
    """A security bulletin names this release of the toolkit."""
    version = case.host.containers.toolkit_version
    if not isinstance(version, Known):
        return no() if is_not_there(version) else UNTOLD
    hits = toolkit_bulletins(case)
    return either(bool(hits), f"bulletin {hits[-1].bulletin} names toolkit {version.value}" if hits else "")

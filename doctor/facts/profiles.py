"""The user space's version by the name of a file that it installs: `nvidia-application-profiles-V-rc`."""

from __future__ import annotations

from doctor.core.evidence import Evidence
from doctor.core.host import Fact, Known
from doctor.core.pattern import pattern
from doctor.core.versions import Dotted
from doctor.facts.source import dotted, exists

__all__ = ["version_by_profile"]

_PROFILE = pattern(r"stat:(/usr/share/nvidia/nvidia-application-profiles-(\d[\d.]{2,30})-rc)")


def version_by_profile(evidence: Evidence) -> Fact[Dotted] | None:
    """The one version that such files name; None when there are none, or leftovers of several versions."""
    found: dict[Dotted, str] = {}
    for item in evidence.below("/usr/share/nvidia/nvidia-application-profiles-", "stat"):
        name = _PROFILE.fullmatch(item.key)
        version = dotted(name.group(2)) if name is not None and exists(evidence, name.group(1)) else None
        if version is not None:
            found[version] = item.key
    if len(found) != 1:
        return None
    version, origin = next(iter(found.items()))
    return Known(value=version, origin=origin)

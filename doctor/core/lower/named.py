"""A host of which only words are known: what the options of a command line say, and nothing more."""

from __future__ import annotations

from typing import Literal

from doctor.core.host import NOT_COLLECTED, Fact, Host, Kernel, Known
from doctor.core.target import Target

__all__ = ["host_of"]

_ORIGIN = "option"


def host_of(target: Target) -> Host:
    """Facts of the target's kernel and Secure Boot. Packages stay unread: the plan names the whole set."""
    return Host(kernel=Kernel(release=_said(target.kernel), secure_boot=_secure_boot(target)))


def _said(text: str) -> Fact[str]:
    return Known(value=text, origin=_ORIGIN) if text else NOT_COLLECTED


def _secure_boot(target: Target) -> Fact[Literal["enabled", "disabled", "unsupported"]]:
    word = target.version("secure-boot")
    if not word:
        return NOT_COLLECTED
    return Known(value="enabled" if word == "on" else "disabled", origin=_ORIGIN)

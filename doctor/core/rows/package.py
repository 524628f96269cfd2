"""Software by release: what a release was built with and asks for, and the GPUs that a line supports."""

from __future__ import annotations

from typing import Literal

import msgspec

from doctor.core.rows.base import Row
from doctor.core.versions import Dotted, Pep440

__all__ = ["AnsibleLine", "Component", "HardwareSupport", "Release", "ToolRelease"]


class Component(Row, frozen=True, kw_only=True):
    """A thing with versions, or with a closed set of words, that relations speak of."""

    component: str
    """As goals name it: `tensorrt-llm`."""
    scheme: Literal["pep440", "dotted", "name"]
    binds: Literal["host", "environment"]
    """Where a constraint on it holds: on the host, or in a virtual environment or container of its own."""
    meaning: str
    package: str = ""
    """Its name in the Python package index."""
    words: tuple[str, ...] = ()
    """With the scheme `name`: the words there are, where the set is closed."""
    complete_since: str = ""
    """Every final release from this one up to the edition's day has a row: another was never released."""


class Release(Row, frozen=True, kw_only=True):
    """A release of a Python package as the package index carries it, and what it asks for."""

    component: str
    version: Pep440
    released: str
    """Day of upload, `2026-11-02`."""
    delivery: Literal["wheel", "sdist", "stub"] = "wheel"
    """`stub`: a source package that fetches the real files from NVIDIA's index when it is built."""
    cuda: Dotted | None = None
    """The toolkit it was compiled with; one number where only the major is known."""
    cuda_variants: tuple[str, ...] = ()
    """The CUDA majors it is built for under names of their own: `("cu12", "cu13")`."""
    unsuffixed_variant: str = ""
    """The variant that the name without a suffix installs."""
    compute_capability: tuple[str, ...] = ()
    """Capabilities with machine code in the default x86-64 wheel."""
    ptx: str = ""
    """The capability whose PTX it carries; a driver older than `cuda` cannot compile it."""
    cpu: tuple[str, ...] = ()
    """`("x86_64", "aarch64")`."""
    interpreters: tuple[str, ...] = ()
    """Python versions it has compiled parts for, where it is not built for the stable ABI."""
    glibc_tag: str = ""
    """The glibc that the wheel's name claims, where what it needs is newer (`requires`)."""
    engine_backend: Literal["default", "legacy", "removed", ""] = ""
    """TensorRT-LLM: how the TensorRT engine backend stands in it."""
    requires: dict[str, str] = msgspec.field(default_factory=dict)
    """PEP 440 sets (or words) by component; `*` where any version will do."""
    size_bytes: int | None = None


class ToolRelease(Row, frozen=True, kw_only=True):
    """A release of a tool that is installed as system packages."""

    component: str
    version: Dotted
    released: str = ""
    """Day of its tag; empty where no source says."""
    requires: dict[str, str] = msgspec.field(default_factory=dict)
    changes: str = ""
    """What matters to a host in it."""


class AnsibleLine(Row, frozen=True, kw_only=True):
    """A line of ansible-core: the Python it runs under, and the Python it needs on a target."""

    line: Dotted
    controller_python: str
    target_python: str
    ends: str = ""
    """Month its support ended."""
    release_seen: str = ""
    """The newest release of the line that was read."""
    manages_el8_dnf: bool
    """Whether its `dnf` module works on Enterprise Linux 8, whose bindings exist for Python 3.6 only."""


class HardwareSupport(Row, frozen=True, kw_only=True):
    """The compute capabilities that a line of a component supports by its documentation."""

    component: str
    versions: str
    """The line, as a PEP 440 set."""
    min_compute_capability: str = ""
    """The floor, where one is stated: below it, no."""
    compute_capability: tuple[str, ...] = ()
    """The list, where one is stated: what is not on it is untested by the vendor, not refused."""
    gpus: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()

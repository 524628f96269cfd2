"""What lowering stands on: stack, host and choices, and the few things that every stage asks of them."""

from __future__ import annotations

import re
from functools import cached_property

import msgspec

from doctor.core.goal import Goal, parse_goal
from doctor.core.host import Host, known
from doctor.core.lower.catalogue import Catalogue
from doctor.core.lower.pins import Pin
from doctor.core.matrix import Matrix
from doctor.core.rows.install import Origin
from doctor.core.stack import StackReport
from doctor.core.target import Target, system_of
from doctor.core.versions import Dotted

__all__ = ["Choices", "Ground"]

#: Components that the stack has because something in a virtual environment wants them: no system packages.
_OF_THE_ENVIRONMENT = ("tensorrt", "cudnn", "nccl")


class Choices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an operator decides besides the goal."""

    origin: Origin
    profile: str = ""
    """`compute` or `full`; empty: what is installed now, else `compute`."""
    mirrors: dict[str, str] = {}
    """Repository -> the address that takes the place of the published one."""
    keys: dict[str, str] = {}
    """Repository -> address (or `file:NAME` among the role's files) of its key, and `#FINGERPRINT`."""
    change_origin: bool = False
    """Packages of another origin are replaced, where that would otherwise be refused."""
    reload: bool = False
    """Modules are loaded again instead of a reboot, where nothing uses them."""
    engine_root: str = "/opt/mopt-doctor/engines"
    index_url: str = ""
    extra_index_url: str = ""
    wheelhouse: str = ""
    engine_locks: dict[str, tuple[Pin, ...]] = {}
    """File -> the pins in it, for the engine that it has among them."""


class Ground(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One question to lower."""

    matrix: Matrix
    stack: StackReport
    host: Host
    choices: Choices

    @property
    def target(self) -> Target:
        return self.stack.target

    @cached_property
    def goal(self) -> Goal:
        return parse_goal(self.stack.goal)

    @cached_property
    def system(self) -> str:
        """As rows name it: `rocky-9` for Rocky 9.6. Empty where the matrix has no such system."""
        row = system_of(self.matrix, self.target.os)
        name = re.sub(r"[\s_]+", "-", self.target.os.strip().casefold())
        # A row speaks for RHEL as well, but repositories of Rocky are none of RHEL's.
        return row.system if row is not None and name.startswith(row.system.rpartition("-")[0] + "-") else ""

    @cached_property
    def catalogue(self) -> Catalogue:
        return Catalogue(self.matrix, self.choices.origin, self.system, self.target.arch)

    def version(self, component: str) -> str:
        """What the stack has of a component; empty where it is none of the host's business."""
        raw = self.stack.components.get(component, "")
        if component in self.wanted or not raw:
            return raw
        if component in _OF_THE_ENVIRONMENT:
            return ""
        # What stays as it is and was not asked for is left alone, whatever packages it came in.
        return "" if self.target.version(component) == raw else raw

    @cached_property
    def wanted(self) -> frozenset[str]:
        """Components that the goal names."""
        return frozenset(term.component for term in self.goal.terms)

    @property
    def driver(self) -> str:
        """The driver to be installed; empty where the one that is there stays."""
        modules = self.target.version("kernel-modules")
        if "kernel-modules" in self.wanted or modules not in ("", self.flavour):
            return self.stack.components.get("driver", "")
        return self.version("driver")

    @property
    def flavour(self) -> str:
        return self.stack.components.get("kernel-modules") or "open"

    @cached_property
    def cuda(self) -> str:
        """The CUDA of system libraries: of the toolkit that is installed, else of the stack."""
        return self.stack.components.get("cuda-toolkit") or self.stack.components.get("cuda", "")

    @cached_property
    def driver_cuda_major(self) -> str:
        """Of the highest CUDA that the driver speaks."""
        driver = self.stack.components.get("driver", "")
        branch = self.matrix.branch(Dotted(driver)) if driver else None
        return (
            str(branch.cuda_version.major) if branch and branch.cuda_version else self.cuda.partition(".")[0]
        )

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """The running kernel, and the one that boots next where that is another."""
        running = known(self.host.kernel.release) or self.target.kernel
        following = known(self.host.kernel.next_release) or running
        return tuple(dict.fromkeys(release for release in (running, following) if release))

    @property
    def kernel_flavour(self) -> str:
        """As Ubuntu's metapackages name it: `generic`, `generic-hwe-24.04`, `aws`."""
        row = system_of(self.matrix, self.target.os)
        match = re.search(r"-\d+-([a-z][a-z0-9-]*)$", self.kernels[0]) if self.kernels else None
        if match is None or row is None:
            return ""
        is_later = Dotted(self.kernels[0]).parts[:2] > row.kernel.parts[:2]
        hwe = f"-hwe-{row.system.rpartition('-')[2]}" if is_later and match.group(1) == "generic" else ""
        return f"{match.group(1)}{hwe}"

    @cached_property
    def installed(self) -> dict[str, tuple[str, ...]] | None:
        """Package -> its versions; None where nobody read the package database."""
        packages = known(self.host.packages)
        if packages is None:
            return None
        found: dict[str, list[str]] = {}
        for package in packages.installed:
            found.setdefault(package.name, []).append(package.version.removeprefix("0:"))
        return {name: tuple(sorted(versions)) for name, versions in sorted(found.items())}

    @cached_property
    def held(self) -> tuple[str, ...]:
        """Names on hold, or patterns of version locks."""
        packages = known(self.host.packages)
        holds = known(packages.holds) if packages else None
        return tuple(sorted(holds or ()))

    @property
    def values(self) -> dict[str, str]:
        """What stands for the words in braces, whatever the component."""
        driver = self.driver
        return {
            "branch": driver.partition(".")[0],
            "cuda_major": self.cuda.partition(".")[0],
            "driver_cuda_major": self.driver_cuda_major,
            "kernel_flavour": self.kernel_flavour,
        }

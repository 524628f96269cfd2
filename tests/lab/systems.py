"""What each lab system calls itself, and the kernels that it has."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SYSTEM_FACTS", "SystemFacts"]


@dataclass(frozen=True, kw_only=True)
class SystemFacts:
    """An operating system as the lab shows it. Kernel releases are plausible, not audited."""

    name: str
    version: str
    full: str
    code: str
    nick: str
    kernels: tuple[str, ...]
    """The first one is installed and runs; the others are in the archive."""
    cuda_dir: str
    debian: str = ""

    @property
    def is_rocky(self) -> bool:
        return self.name.startswith("rocky")

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]


SYSTEM_FACTS = {
    s.name: s
    for s in (
        SystemFacts(
            name="ubuntu-22.04", version="22.04", full="22.04.5 LTS", code="jammy", nick="Jammy Jellyfish",
            kernels=("6.8.0-60-generic", "6.8.0-62-generic"), cuda_dir="ubuntu2204", debian="bookworm/sid",
        ),
        SystemFacts(
            name="ubuntu-24.04", version="24.04", full="24.04.3 LTS", code="noble", nick="Noble Numbat",
            kernels=("6.8.0-60-generic", "6.8.0-62-generic"), cuda_dir="ubuntu2404", debian="trixie/sid",
        ),
        SystemFacts(
            name="ubuntu-26.04", version="26.04", full="26.04 LTS", code="resolute", nick="Resolute Raccoon",
            kernels=("7.0.0-30-generic", "7.0.0-31-generic"), cuda_dir="ubuntu2604", debian="forky/sid",
        ),
        SystemFacts(
            name="rocky-8", version="8.10", full="8.10", code="", nick="Green Obsidian",
            kernels=("4.18.0-553.el8_10.x86_64", "4.18.0-553.5.1.el8_10.x86_64"), cuda_dir="rhel8",
        ),
        SystemFacts(
            name="rocky-9", version="9.7", full="9.7", code="", nick="Blue Onyx",
            kernels=("5.14.0-611.el9_7.x86_64", "5.14.0-611.5.1.el9_7.x86_64"), cuda_dir="rhel9",
        ),
        SystemFacts(
            name="rocky-10", version="10.1", full="10.1", code="", nick="Red Quartz",
            kernels=("6.12.0-124.el10_1.x86_64", "6.12.0-125.1.el10_1.x86_64"), cuda_dir="rhel10",
        ),
    )
}  # fmt: skip

"""The forms of pasted output: how each begins, and how far it goes."""

from __future__ import annotations

import re

__all__ = ["Form", "form_of", "goes_on"]


class Form:
    """A tool's output. Without `each` it runs to the next border; with it, every line has to match."""

    __slots__ = (
        "argv",
        "begins",
        "each",
        "name",
        "path",
    )

    def __init__(
        self,
        name: str,
        begins: str,
        *,
        argv: tuple[str, ...] = (),
        path: str = "",
        each: str | None = None,
    ) -> None:
        self.name = name
        self.begins = re.compile(begins)
        self.argv = argv
        self.path = path
        self.each = re.compile(each) if each is not None else None

    def argv_of(self, lines: list[str]) -> tuple[str, ...]:
        """The command that prints these lines; a listing with details came from a longer one."""
        if self.name == "lspci":
            return (*self.argv, "-nnk" if any(line[:1].isspace() for line in lines) else "-nn")
        if self.name == "modinfo":
            return (*self.argv, lines[0].partition(":")[2].strip())
        return self.argv


_STAMP = (
    r"(?:<\d{1,3}>)?\[ *\d{1,12}\.\d{1,9}(?: <\s*\d{1,12}\.\d{1,9}>)?\] "
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} [\d:]{8} \d{4}\] "
    # `dmesg -H` and `-d`: a date now and then, and steps between.
    r"|\[[A-Z][a-z]{2} ?\d{1,2} \d\d:\d\d\] |\[ *[+<] *\d{1,12}\.\d{1,9}>?\] "
)
_SYSLOG = r"(?:\S{1,12} +\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S{0,16}) \S{1,255} kernel: "
_OURS = r"(?:NVRM: |nvidia[ :-])"
#: The kernel's answer to a load, in the words of the tool that asked.
_REFUSED = r"(?:modprobe|insmod): (?:ERROR|FATAL): .*\bnvidia"
_LSPCI = r"(?:[0-9a-fA-F]{4}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7] \S"
_DKMS = r"[\w.+-]{1,80}(?:/|, )[\w.+~-]{1,60}(?:, \S{1,200}?){0,2}: (?:added|built|installed|broken)\b"
_OS_RELEASE = r"(?:PRETTY_NAME|NAME|ID|ID_LIKE|VERSION|VERSION_ID|VERSION_CODENAME)="

#: In this order: the first that begins with a line takes it.
_FORMS = (
    Form(
        "nvidia-smi -q -x",
        r"<\?xml\b|<nvidia_smi_log>",
        argv=("nvidia-smi", "-q", "-x"),
    ),
    Form("nvidia-smi -q", r"=+NVSMI LOG=+\s*$", argv=("nvidia-smi", "-q")),
    Form(
        "nvidia-smi -L",
        r"GPU \d{1,3}: \S.{0,120} \(UUID: GPU-",
        argv=("nvidia-smi", "-L"),
        each=r"GPU \d{1,3}: |\s+MIG ",
    ),
    Form("nvidia-smi", r"\|\s*NVIDIA-SMI \S", argv=("nvidia-smi",), each=r"[|+]|\s*$"),
    Form(
        "nvidia-smi",
        (
            r"NVIDIA-SMI has failed because|NVIDIA-SMI couldn't find|Failed to initialize NVML: "
            r"|No devices were found|Unable to determine the device handle for"
        ),
        argv=("nvidia-smi",),
        each=r"NVML library version|Unable to determine|Reboot the system|\S.*(?:NVIDIA driver|your system)",
    ),
    Form("collect-env", r"Collecting environment information\.|PyTorch version\s*: ", argv=("collect-env",)),
    Form("collect-env", r" *System Info\s*$", argv=("collect-env",)),
    Form("journal", _SYSLOG + r"|-- Boot [0-9a-f]{8,40} --|-- Reboot --", each=_SYSLOG + r"|-- |\s+NVRM:"),
    Form("dmesg", _STAMP + r"|NVRM: |kernel: " + _OURS, each=_STAMP + r"|\s*NVRM: |kernel: " + _OURS),
    Form("dmesg", _REFUSED, each=r"(?!)"),
    Form("lspci", _LSPCI, argv=("lspci",), each=_LSPCI + r"|\s+\S"),
    Form("modinfo", r"filename:\s+/\S+/nvidia[\w-]*\.ko", argv=("modinfo",), each=r"\w+:"),
    Form("dkms status", _DKMS, argv=("dkms", "status"), each=_DKMS),
    Form(
        "/proc/driver/nvidia/version",
        r"NVRM version: NVIDIA UNIX",
        path="/proc/driver/nvidia/version",
        each=r"GCC version:|\s",
    ),
    Form("os-release", _OS_RELEASE, path="/etc/os-release", each=r"[A-Z][A-Z_]*="),
    Form(
        "uname -a",
        r"Linux \S{1,255} \d+\.\d+\S* .*(?:x86_64|aarch64|GNU/Linux)",
        argv=("uname", "-a"),
        each=r"(?!)",
    ),
    Form("mokutil", r"SecureBoot (?:enabled|disabled)\s*$", argv=("mokutil", "--sb-state"), each=r"(?!)"),
)
#: One look for all: most lines of a long paste open nothing.
_ANY = re.compile("|".join(f"(?:{form.begins.pattern})" for form in _FORMS))
#: Their lines look like the openings of other forms.
_GREEDY = ("nvidia-smi -q -x", "nvidia-smi -q")


def form_of(text: str, inside: Form | None) -> Form | None:
    """The form that a line opens; None when it opens none, or goes on with the one it stands in."""
    if inside is not None and inside.each is not None and inside.each.match(text):
        return None
    if not text or _ANY.match(text) is None:
        return None
    for form in _FORMS:
        if form.begins.match(text):
            is_same = inside is not None and form.name == inside.name
            is_within = inside is not None and inside.name in _GREEDY and form.name not in _GREEDY[:1]
            return None if is_same or (is_within and not text.startswith("|")) else form
    return None


def goes_on(form: Form, text: str) -> bool:
    """Whether a line still belongs to the form it stands in."""
    return form.each is None or form.each.match(text) is not None

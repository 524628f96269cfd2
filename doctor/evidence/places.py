"""Places in logs, command lines and comments that say what stands there: a host, a user, a serial."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["CONTAINER", "IN_PLACE", "LOGIN_AT", "POD_UUID", "PROCESS", "WELL_KNOWN", "Place", "pointed_out"]


class Place(NamedTuple):
    """A pattern with the groups `head`, which stays, and `value`, which is an identity of this kind."""

    kind: str
    pattern: re.Pattern[str]


def _place(kind: str, head: str, value: str, tail: str = "") -> Place:
    return Place(kind, re.compile(f"(?P<head>{head})(?P<value>{value}){tail}", re.MULTILINE))


#: A host's name; four numbers with dots are an address, which another rule replaces.
_HOST = r"(?!\d+(?:\.\d+){3}(?![\w.-]))[A-Za-z0-9](?:[A-Za-z0-9._-]{0,250}[A-Za-z0-9])?"
_USER = r"[A-Za-z_][\w.-]{0,62}[\w-]|[A-Za-z_]"
#: Letters and at least one digit, as makers number things.
_NUMBERED = r"(?=[A-Za-z-]{0,40}\d)[A-Za-z0-9-]{5,40}(?![\w/])"
_PART = r"(?:\[[^\]\s]{0,64}\]|[^\s:\[]{0,64})"
_MAC = r"[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\3[0-9A-Fa-f]{2}){4}(?![0-9A-Fa-f:-])"

#: What these point out is replaced there and wherever else it occurs.
_EVERYWHERE = (
    # Kernel command line (nfsroot.rst, dracut.cmdline(7)): `ip=CLIENT:SERVER:GATEWAY:MASK:HOST:…`.
    _place("host", rf"\bip={_PART}(?::{_PART}){{3}}:", _HOST),
    _place(
        "host",
        r"\b(?:nfsroot|netroot|root)=(?:nfs4?:)?|\bnfs4?:",
        rf"(?!live:|iscsi:|nbd:|zfs:){_HOST}",
        "(?=:/)",
    ),
    _place("host", r"\bhost=", _HOST, r"(?=, {1,20}domain=)"),
    _place("domain", r", {1,20}domain=", _HOST, r"(?=, {1,20}nis-domain=)"),
    # systemd, audit, network file systems.
    _place(
        "host",
        r"\bsystemd\.hostname=|\b(?:Set hostname|Hostname set) to <"
        r"|\bChanged (?:\w{1,10} )?host ?name to ['\"<]|\bhostname=[\"']?"
        r"|\b(?:nfs|NFS|lockd)[\w:]{0,12} server ",
        _HOST,
    ),
    _place("host", r"\bnode=", _HOST, r"(?= type=[A-Z])"),
    _place("host", r"(?<![\\\w:])\\\\", _HOST, r"(?=\\)"),
    _place("host", r"\bCIFS:[^\n]{0,120}?\s//", _HOST, "(?=/)"),
    _place("user", r"\bUser Slice of (?:UID \d+ \()?", rf"(?!UID\b)(?:{_USER})"),
    _place("user", r"\b[Ss]ession (?:\S{1,20} of|opened for|closed for) user ", _USER),
    _place("user", r"\bby ", _USER, r"(?=\(uid=\d)"),
    _place("user", r"\bsudo(?:\[\d+\])?: {1,8}", _USER, "(?= : )"),
    _place("user", r"\bCRON\[\d+\]: \(", _USER, r"(?=\))"),
    # Numbers of boards, machines, ports and disks.
    _place("serial", r"(?i:\bserial(?:[ _](?:number|num|no\.?))?[ ]?[:=#][ ]?)", _NUMBERED),
    _place("serial", r"(?i:\b(?:service|asset)[ _-]?tags?|\basset)[ :=#]{1,8}", rf"{_NUMBERED}|[A-Z]{{7}}\b"),
    _place("serial", r"\bS/?N[:=#-][ ]?", r"(?=[A-Z]{0,30}\d)[A-Z0-9]{6,30}\b"),
    _place(
        "serial",
        r"(?i:\b(?:\w{1,16}_)?guid[ :=]{1,3})",
        r"(?i:(?:0x)?[0-9a-f]{16}|[0-9a-f]{4}(?::[0-9a-f]{4}){3})(?![\w:])",
    ),
    _place(
        "serial",
        r"(?i:\bww(?:id|pn|nn|n)[ :=]{1,3}(?:naa\.|eui\.)?|\bnaa\.|\beui\.|\bwwn-"
        r"|\bsas[ _]?addr(?:ess)?[(:= ]{1,3})",
        r"(?i:(?:0x)?[0-9a-f]{16,32}|[0-9a-f]{2}(?::[0-9a-f]{2}){7})(?![\w:])",
    ),
    _place("serial", r"/etc/pki/entitlement/", r"\d{6,40}(?=(?:-key)?\.pem)"),
    _place("serial", r"/by-id/(?:ata|nvme|scsi|usb|virtio|google|dm-uuid)-", r"[^\s\"',;:]{6,200}"),
)

#: What these point out is replaced there only: elsewhere it may be a word.
_HERE = (
    _place("secret", r"\b(?:rd\.)?luks\.key(?:dev)?=|\bcryptkey=", r"[^\s\"']+"),
    _place("mac", r"\bBOOTIF=[0-9A-Fa-f]{2}-|\bifname=[^\s:]{1,32}:|\bip=\S{0,200}?:", _MAC),
    _place("name", r"\b[in]qn\.", r"\d{4}-\d\d\.(?!org\.nvmexpress)[^\s,;\"'<>]{1,240}"),
    _place("interface", "", r"\b(?:veth|cali|lxc|tap|br-)[0-9a-f]{6,12}(?![0-9A-Za-z])"),
    _place(
        "person",
        r"^\s{0,20}[#;].{0,200}?\b(?:by|[Oo]wner|[Aa]uthor|[Cc]ontact|[Mm]aintainer)[: ]{1,3}",
        r"[A-Z\u00c0-\u024f][\w.'-]{0,40}(?: [A-Z\u00c0-\u024f][\w.'-]{0,40}){1,2}",
    ),
    # Three labels and a top-level domain that ends no file's name, or two where only houses use it.
    _place(
        "fqdn",
        r"(?<![\w.@/\\%+-])",
        r"(?=[\d-]{0,60}[A-Za-z])(?:(?:[A-Za-z0-9-]{1,63}\.){2,8}(?:com|org|net|edu|gov|mil|int|io|ai|dev|cloud|tech"
        r"|app|arpa|uk|de|fr|ch|nl|it|es|eu|cn|jp|kr|au|ca|us|se|no|fi|dk|cz|at|be|tw|sg|il|hk)"
        r"|(?!rc\.)(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:local|lan|corp|internal|intra|intranet))",
        r"(?![\w@=(-]|\.\w)",
    ),
)

IN_PLACE = (*_EVERYWHERE, *_HERE)

#: The id of a container, in its cgroup, its paths and its scope; a digest (`sha256:…`) is none.
CONTAINER = re.compile(r"(?<![0-9A-Za-z])(?<!sha256:)(?<=[-/:=])[0-9a-f]{64}(?![0-9A-Za-z])")

#: A UUID behind `pod`, and one with `_`, as systemd's slices need it.
POD_UUID = re.compile(
    r"(?:(?<=\bpod)|(?<![0-9A-Za-z]))[0-9a-f]{8}([-_])(?:[0-9a-f]{4}\1){3}[0-9a-f]{12}(?![0-9A-Za-z])",
    re.IGNORECASE,
)

#: `user@host` as ssh and make write it. No unit (`getty@tty1`), interface (`veth1@if5`), symbol (`f@plt`),
#: scope (`nvml@venv:…`) or node of a device tree (`serial@fe201000`).
LOGIN_AT = re.compile(
    r"(?<![\w.@+/%-])(?!systemd-|getty@|serial-getty@|modprobe@|user@)(?P<user>[A-Za-z_][\w.-]{0,31})@"
    r"(?!(?:plt|gotpcrel|container|venv|(?:if|eth|bond|ib|en[sop])\d\w*|[0-9a-f]*\d[0-9a-f]*)(?![\w.-]))"
    r"(?P<host>[A-Za-z][A-Za-z0-9-]{0,62}(?![\w.@\\-])|(?=\d{1,3}(?:\.\d{1,3}){3}(?![\w.])))",
    re.IGNORECASE,
)

_OOM_ROW = r"\[ *\d{1,8}\] +\d{1,8} +\d{1,8}(?: +-?\d{1,12}){5,9} +"

#: Names of programs that ran: what somebody calls a job is theirs.
PROCESS = (
    _place(
        "process",
        r"\bpid='?\d+'?, name=|<process_name>|\"process_name\":\s?\"",
        r"[^\n,<\"]+",
    ),
    _place("process", r"\bComm: ", r"[^\n]{1,20}?", r"(?= +(?:Tainted|Not tainted|Kdump)|\s*$)"),
    _place("process", r"\b(?:[Kk]ill(?:ed|ing)?|reaped) process \d+,?(?: UID \d+,)? \(", r"[^\n)]{1,20}"),
    _place("process", r"\btask ", r"[^\n]{1,20}?", r"(?=:\d+ blocked)"),
    _place("process", r"\bstuck for \d+s! \[", r"[^\]\n]{1,20}?", r"(?=:\d+\])"),
    _place("process", r",task=", r"[^,\n]{1,20}", "(?=,pid=)"),
    _place("process", r"\bcomm=\"", r"[^\"\n]{1,40}"),
    _place("process", r"\bprocess [`']", r"[^'`\n]{1,80}", "(?=')"),
    # The words of saved answers and facts: `system.oom_kills`, `gpu.memory_in_use`, `system.package_lock`.
    _place("process", "`", r"[^\n]{1,20}?", "(?=` was killed)"),
    _place(
        "process", r"(?:\bused by |\(pid \d{1,10}\), )", r"(?!a process \()[^\n]{1,200}?", r"(?= \(pid \d)"
    ),
    _place("process", "`", r"[^`\n]{1,40}", r"(?=` (?:\(pid \d{1,10}\) )?holds )"),
    _place("process", r"\"process\":\s?\"|\"pid\":\s?\d{1,10},\s?\"name\":\s?\"", r"[^\n\"]{1,200}"),
    _place("process", _OOM_ROW, r"\S[^\n]{0,19}", "$"),
    _place(
        "process",
        r"(?<!\S)",
        r"[^\s\[:]{1,20}",
        r"(?=\[\d+\]:? (?:segfault|general protection|trap )| invoked oom-killer|: page allocation failure)",
    ),
)

#: Programs that everybody runs: they say what happened and nothing about whose host it is.
WELL_KNOWN = re.compile(
    r"<.*|nvidia-\S*|nv_\S*|nv-hostengine|nvcc|cuda\S*|dcgm\S*|nsys|ncu|python[\d.]*|pt_main_thread|vllm(?:::\S*)?"
    r"|raylet|tritonserver|trtllm-\S*|mpirun|orted|slurm\S*|kubelet|dockerd|containerd\S*|runc\S*|conmon"
    r"|kworker\S*|ksoftirqd\S*|migration/\d+|swapper\S*|rcu_\w*|irq/\S*|kswapd\d+|khugepaged|khungtaskd|kcompactd\d+"
    r"|unattended-upgr\S*|packagekitd?|aptd?|apt\.systemd\S*|rpm-ostree\S*|microdnf|platform-python\S*"
    r"|systemd\S*|\(udev-worker\)|init|modprobe|insmod|rmmod|depmod|kmod|dkms|dpkg|apt(?:-get)?|dnf|yum|rpm|gcc|cc1"
    r"|make|ld|Xorg|Xwayland|X|gnome-shell|bash|sh|sudo|sshd|cron|lspci|dmesg",
    re.IGNORECASE,
)


def pointed_out(text: str) -> Iterator[tuple[str, str]]:
    """Identities that a text's wording points out and that are to be replaced everywhere: (kind, value)."""
    for kind, pattern in _EVERYWHERE:
        yield from ((kind, match["value"]) for match in pattern.finditer(text))

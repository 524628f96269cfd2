"""What an identity looks like, and where formats say that something is one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from doctor.core.evidence import Evidence, Item
from doctor.evidence.places import pointed_out

__all__ = [
    "ASSIGNED_SECRET",
    "AUTHORED",
    "BUILDER",
    "COMMON",
    "DMI_IDENTITY",
    "EMAIL",
    "HEX_RUN",
    "HOME",
    "JOURNAL",
    "JOURNAL_HOST",
    "LOGIN",
    "MAC",
    "MACHINE_ID",
    "MAC_IN_NAME",
    "MOK_LIST",
    "NO_SERIAL",
    "ORGANISATION",
    "PEERS",
    "SCOPE_HOME",
    "SECRET_NAME",
    "SERIAL",
    "STRUCTURE",
    "TOKEN",
    "UNAME",
    "UNIT",
    "URL",
    "USER_NAME",
    "UUID",
    "V4",
    "V6",
    "VERSIONED",
    "VERSION_BEFORE",
    "Text",
    "decode",
    "encode",
    "is_public",
    "of_item",
    "of_text",
    "stack_words",
    "texts",
]

#: Names of accounts and words of the stack, which say nothing about whose host it is.
COMMON = frozenset(
    re.findall(
        r"\S+",
        """
    root daemon bin sys adm video render nobody nogroup nvidia nvidia-persistenced tty disk wheel
    kvm users staff systemd-network messagebus syslog dialout shared sudo admin user ubuntu debian
    rocky centos rhel fedora almalinux ec2-user cloud-user azureuser core opc localhost localdomain
    linux kernel driver module gpu cuda nccl cudnn vllm tensorrt torch python python3 docker
    containerd lxc vm host node server build test work data dev lib lib64 opt usr var home local
    x86_64 aarch64 generic open none true false yes
    venv container conda miniconda3 anaconda3 envs bin tmp cache models datasets scratch projects
    serial process domain redacted example com uuid host-1
    """,
    )
)

#: Where versions stand: in the output of these tools and in these files four numbers with dots
#: are no address.
VERSIONED = re.compile(
    r"command:(?:dpkg|rpm|ldconfig|gcc|nvcc|modinfo|dkms|nvidia-smi|uname|grubby)"
    r"|(?:nvml|cuinit|cuinit-caller|distro)$"
    r"|file:/(?:var/log/(?:apt|dnf)|var/lib/dkms|usr/local/cuda|proc/(?:driver|version|modules|cpuinfo)"
    r"|sys/module|etc/(?:os-release|redhat-release|debian_version)|usr/lib/os-release|run/reboot-required)"
    r"|file:.*versionlock"
)

#: Where names and addresses are the authors' of public software.
AUTHORED = re.compile(
    r"command:(?:dpkg|rpm|modinfo)|file:/(?:etc/os-release|usr/lib/os-release|etc/redhat-release)"
)

JOURNAL = re.compile(r"command:journalctl|file:/var/log/(?:syslog|messages|kern)")

SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|APIKEY|API_KEY|ACCESS_KEY|PRIVATE|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE
)
USER_NAME = re.compile(r"USER|LOGNAME|USERNAME|SUDO_USER")

UUID = re.compile(
    r"(?<![0-9A-Za-z])(?P<head>(?:GPU-|MIG-){0,3})"
    r"(?P<uuid>[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})(?![0-9A-Za-z])"
)
#: Certificates of machine owner keys: numbers, fingerprints and signatures name the machine that made them,
#: a subject's organisation and place its owner. Distributions' and vendors' own are the same everywhere.
MOK_LIST = re.compile(r"command:mokutil-list")
HEX_RUN = re.compile(r"(?<![0-9A-Fa-f:])[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){7,127}(?![0-9A-Fa-f])")
ORGANISATION = re.compile(
    r"(?P<head>(?:[,:] ?)(?:OU?|L|ST|emailAddress)\s?=\s?)"
    r"(?!(?:Canonical|Microsoft|Red Hat|Fedora|Debian|SUSE|Oracle|Rocky|AlmaLinux|Amazon|NVIDIA|org-\d))"
    r"(?P<value>[^,\n=]{1,120})"
)
#: One peer of IMEX a line, as an address or a name.
PEERS = re.compile(r"file:/etc/nvidia-imex/nodes_config\.cfg$")
MACHINE_ID = re.compile(r"(?:(?<=machine_id=)|(?<=boot_id=)|(?<=-- Boot ))[0-9a-f]{32}\b", re.IGNORECASE)
MAC = re.compile(
    r"(?<![0-9A-Fa-f:.-])[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(?:\1[0-9A-Fa-f]{2}){4}(?![0-9A-Fa-f:-])"
)
MAC_IN_NAME = re.compile(r"(?<=\benx)[0-9a-f]{12}\b")
EMAIL = re.compile(
    r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b"
)
#: `user@1000.service` has the form of an address of mail and is none.
UNIT = re.compile(r"\.(?:service|slice|scope|socket|mount|automount|target|path|timer|device|swap)\Z")
V4 = re.compile(
    r"(?<![\w.+~-])(?P<v4>(?:\d{1,3}\.){3}\d{1,3})(?![\w+~-]|\.\d)"
    r"|(?<=[a-z]-)(?P<dashed>\d{1,3}(?:-\d{1,3}){3})(?![\w-])"
)
VERSION_BEFORE = re.compile(r"\b(?:version|ver|v|rev|release|firmware|fw)[ :=.]{0,3}$", re.IGNORECASE)
V6 = re.compile(r"(?<![\w:.])(?=[0-9a-fA-F:]*[0-9])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:])")
URL = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]{1,15}://)(?:(?P<login>[^\s/@\"'<>]{1,200})@)?"
    r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?)"
)
TOKEN = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|nvapi-[\w-]{16,}"
    r"|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)"
)
ASSIGNED_SECRET = re.compile(
    r"(?P<head>(?i:\b[\w.-]{0,40}(?:token|secret|passwd|password|passphrase|api_?key|access_?key|credential)"
    r"\w{0,20}[\"']?\s{0,3}[=:]\s{0,3}[\"']?|\bbearer\s"
    # Registries of containerd, repositories of dnf.
    r"|(?m:^)\s{0,40}\"?(?:auth|(?:proxy_)?username)\"?\s{0,3}[=:]\s{0,3}[\"']?))(?P<value>[^\s\"',;&]{6,})"
)
HOME = re.compile(r"(?P<head>/(?:home|[Uu]sers|scratch(?!/(?:users|home)/))/)(?P<user>[^\s/\"'<>:;,)]+)")
#: A home directory in the name of a scope's bytes, where slashes became `_`: the rest may be a user's name.
SCOPE_HOME = re.compile(
    r"(?P<head>@venv:_(?:[A-Za-z0-9]{1,20}_){0,2}?(?:home|[Uu]sers|scratch)_)"
    r"(?P<user>[^/@]+?)(?=@|/|\.err\Z|\.json\Z|\Z)"
)
BUILDER = re.compile(r"\((?P<user>[A-Za-z0-9._+-]+)@(?P<host>[A-Za-z0-9._-]*)\)")
LOGIN = re.compile(r"(?P<head>Requested-By: |\bacct=\"|\buser=)(?P<user>[A-Za-z0-9._-]+)")
SERIAL = re.compile(
    r"(?P<head><\w{0,40}(?:serial|guid|host_id|pdi)\w{0,40}>"
    r"|\"\w{0,40}(?:serial|guid|host_id|pdi)\w{0,40}\":\s?\"?"
    r"|(?i:\b(?:serial (?:number|no\.?)|gpu pdi|gpu fabric guid|host id)[ \t]{0,80}:[ \t]{0,8})"
    r"|\bSerialNumber: )(?P<value>[^\s<\",}]+)"
)
NO_SERIAL = re.compile(r"N/A|None|null|0+|0x0+|Unknown|\[.*", re.IGNORECASE)
JOURNAL_HOST = re.compile(
    r"(?m)^(?P<head>(?:[A-Z][a-z]{2} [ \d]\d [\d:.]{8,15}|\d{4}-\d\d-\d\dT[\d:.,]{8,15}\S{0,6}) )"
    r"(?P<host>\S+)"
)
UNAME = re.compile(r"(?P<head>^Linux )(?P<host>\S+)(?= \d)")
STRUCTURE = re.compile(r"(?:\"|</?|(?m:^))(\w{1,60})(?:\"\s?:|>|[=:])")
DMI_IDENTITY = re.compile(r"/dmi/id/\w*(?:serial|uuid|asset_tag)$|/machine-id$|/hostid$|/product_serial$")


class Text(NamedTuple):
    """A text of the bundle and the key of the item it belongs to."""

    key: str
    text: str


def texts(evidence: Evidence) -> Iterator[Text]:
    """All text of a bundle: blobs under their item's key, then what items themselves say."""
    keys = {item.path: item.key for item in evidence.meta.items if item.path}
    for name, data in evidence.blobs.items():
        yield Text(keys.get(name) or keys.get(name.removesuffix(".err"), name), decode(data))
    for item in evidence.meta.items:
        words = (item.key, item.scope, item.path, item.detail, item.value, item.owner, item.link, *item.argv)
        yield Text("meta", "\n".join(word for word in words if word))
    yield Text("meta", f"{evidence.meta.boot_id}\n{evidence.meta.sysroot or ''}")


def of_item(item: Item) -> Iterator[tuple[str, str]]:
    """Identities that an item itself names: owners, and variables of the caller."""
    if item.owner:
        # A group's name is often a word of the trade (`hpc`): it is replaced here, not everywhere.
        yield "user", item.owner.partition(":")[0]
    name = item.key.removeprefix("env:")
    if item.value and item.key != name:
        if SECRET_NAME.search(name) and len(item.value) >= 8:
            yield "secret", item.value
        elif USER_NAME.fullmatch(name):
            yield "user", item.value
        elif name == "HOSTNAME":
            yield from _host(item.value)


def of_text(key: str, text: str) -> Iterator[tuple[str, str]]:
    """Identities in a text whose place says what they are, as (kind, value)."""
    yield from _hosts_of_text(key, text)
    # Who built a driver or a kernel (`BUILDER`) is replaced there and not looked for elsewhere:
    # a distribution signs with its list's address, and its domain stands in os-release.
    for pattern in (HOME, LOGIN):
        yield from (("user", match["user"]) for match in pattern.finditer(text))
    serials = [match["value"] for match in SERIAL.finditer(text)]
    if not AUTHORED.match(key):
        for kind, value in pointed_out(text):
            if kind == "serial":
                serials.append(value)
            elif value.lower() not in COMMON and not (kind == "domain" and is_public(value)):
                yield from _host(value) if kind == "host" else ((kind, value),)
    if DMI_IDENTITY.search(key):
        serials += text.split()
    for value in serials:
        if len(value) >= 6 and not NO_SERIAL.fullmatch(value) and not UUID.fullmatch(value):
            yield "serial", value


def _hosts_of_text(key: str, text: str) -> Iterator[tuple[str, str]]:
    hosts: set[str] = set()
    if key == "file:/proc/sys/kernel/hostname":
        hosts.update(text.split())
    if key.startswith("command:uname") and (named := UNAME.match(text)):
        hosts.add(named["host"])
    if PEERS.match(key):
        words = (line.partition("#")[0].strip() for line in text.splitlines()[:10_000])
        hosts.update(word for word in words if word and not re.fullmatch(r"[0-9a-fA-F.:]+", word))
    if JOURNAL.match(key):
        hosts.update(match["host"] for match in JOURNAL_HOST.finditer(text))
    for host in sorted(hosts):
        yield from _host(host)


def _host(name: str) -> Iterator[tuple[str, str]]:
    """A host's name, its short form, and the domain, which other hosts share."""
    if name:
        yield "host", name
    short, dot, domain = name.partition(".")
    if dot and short:
        yield "host", short
        if "." in domain and not is_public(domain):
            yield "domain", domain


def is_public(domain: str) -> bool:
    """True for domains that say nothing about a host: of the vendor, the kernel, what carries drivers."""
    return (
        re.search(
            r"(?:^|\.)(?:nvidia\.com|kernel\.org|example\.(?:com|org|net)|docker\.com|elrepo\.org"
            r"|rpmfusion\.org|negativo17\.org|launchpadcontent\.net|fedoraproject\.org)$",
            domain.lower(),
        )
        is not None
    )


def stack_words(found: Iterable[Text], items: Iterable[Item]) -> set[str]:
    """Words that are facts or structure in this bundle, in lower case, and so no names to replace.

    Names of packages and modules, parts of the release, keys of documents, parts of system paths.
    """
    words = set(COMMON)
    for key, text in found:
        if key.startswith(("command:dpkg-query", "command:rpm", "file:/proc/modules")):
            names = [match[0].lower() for match in re.finditer(r"(?m)^\S+(?=\t| \d)", text)]
            words.update(part for name in names for part in (name, *re.split(r"[-_.:]", name)))
        elif key.endswith(("/os-release", "/sys/kernel/osrelease")):
            words.update(re.findall(r"[a-z0-9]+", text.lower()))
        elif VERSIONED.match(key):
            words.update(match[1].lower() for match in STRUCTURE.finditer(text))
    for item in items:
        path = item.key.partition(":")[2].lower()
        if not HOME.search(path):
            words.update(path.split("/"))
    return words


def decode(data: bytes) -> str:
    """Bytes as text without loss, whatever they are: `encode` gives them back."""
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes that `decode` made the text of."""
    return text.encode("utf-8", "surrogateescape")

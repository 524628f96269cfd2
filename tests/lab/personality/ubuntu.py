"""Ubuntu: names, apt's own archive, no rpm and no dnf."""

from __future__ import annotations

from pathlib import Path

from tests.lab.personality.common import remove, write
from tests.lab.systems import SystemFacts

__all__ = ["make"]

RPM_TOOLS = (
    "usr/bin/dnf*", "usr/bin/rpm*", "etc/dnf", "etc/rpm", "usr/lib/rpm", "var/lib/dnf",
    *(f"usr/lib/python3/dist-packages/{n}" for n in ("dnf", "rpm", "hawkey", "libdnf", "dnf-plugins", "dnfpluginscore")),
)  # fmt: skip


def make(root: Path, facts: SystemFacts) -> None:
    """Turn the userland at `root` into this Ubuntu."""
    remove(
        root,
        "etc/os-release",
        "usr/lib/os-release",
        "etc/debian_version",
        "etc/apt/sources.list*",
        *RPM_TOOLS,
    )
    (root / "etc/apt/sources.list.d").mkdir()
    write(root, "usr/lib/os-release", _os_release(facts))
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    write(
        root,
        "etc/lsb-release",
        f"DISTRIB_ID=Ubuntu\nDISTRIB_RELEASE={facts.version}\nDISTRIB_CODENAME={facts.code}\n"
        f'DISTRIB_DESCRIPTION="Ubuntu {facts.full}"\n',
    )
    write(root, "etc/debian_version", f"{facts.debian}\n")
    write(
        root,
        "etc/apt/sources.list.d/ubuntu.sources",
        f"Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: {facts.code} {facts.code}-updates\n"
        "Components: main restricted universe multiverse\n"
        "Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n",
    )
    write(root, "etc/apt/apt.conf.d/99lab", 'Acquire::Languages "none";\nAcquire::Retries "0";\n')
    _know_kernel(root, facts.kernels[0])
    for name in ("update-initramfs", "update-grub", "mokutil"):
        (root / "usr/sbin" / name).symlink_to(f"/opt/lab/bin/{name}")
    write(root, f"boot/initrd.img-{facts.kernels[0]}", "made with the image\n")


def _os_release(facts: SystemFacts) -> str:
    return (
        f'PRETTY_NAME="Ubuntu {facts.full}"\nNAME="Ubuntu"\nVERSION_ID="{facts.version}"\n'
        f'VERSION="{facts.full} ({facts.nick})"\nVERSION_CODENAME={facts.code}\nID=ubuntu\nID_LIKE=debian\n'
        f"UBUNTU_CODENAME={facts.code}\nLOGO=ubuntu-logo\n"
    )


def _know_kernel(root: Path, release: str) -> None:
    """dpkg's record of the kernel that is planted here, as its installer would have left it."""
    number = release.removesuffix("-generic")
    records, files = [], root / "var/lib/dpkg/info"
    for name, depends in {
        f"linux-image-{release}": "",
        f"linux-modules-{release}": "",
        "linux-image-generic": f"linux-image-{release}",
        "linux-generic": "linux-image-generic",
    }.items():
        version = f"{number}.{number.rpartition('-')[2]}"
        records.append(
            f"Package: {name}\nStatus: install ok installed\nPriority: optional\nSection: kernel\nInstalled-Size: 1\n"
            f"Maintainer: Lab <lab@example.invalid>\nArchitecture: amd64\nVersion: {version}\n"
            + (f"Depends: {depends}\n" if depends else "")
            + f"Description: stub of {name}\n"
        )
        own = (
            [f"/boot/vmlinuz-{release}", f"/boot/config-{release}"]
            if name == f"linux-image-{release}"
            else []
        )
        write(files, f"{name}.list", "".join(f"{p}\n" for p in ["/.", *own]))
        write(files, f"{name}.md5sums", "")  # without it `dpkg --audit` wants the package installed again
    status = root / "var/lib/dpkg/status"
    status.write_text(status.read_text().rstrip("\n") + "\n\n" + "\n".join(records) + "\n")

"""What both families get: the kernel's stand-in and the model of the tools that talk to it."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.lab.base import run
from tests.lab.modulefile import module_file
from tests.lab.places import LAB
from tests.lab.systems import SystemFacts

__all__ = ["prepare", "remove", "write"]

GUEST = LAB / "guest"
#: kmod's own tools need a kernel with modules; the real `modinfo` and `depmod` stay.
KMOD = ("modprobe", "rmmod", "insmod", "lsmod")


def write(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    """A file of the guest; its folders are made."""
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    target.write_text(text)
    target.chmod(mode)
    return target


def remove(root: Path, *patterns: str) -> None:
    """Take away what the real system would not have, so that a wrong call fails here as it would there."""
    for pattern in patterns:
        for path in root.glob(pattern.lstrip("/")):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def prepare(root: Path, facts: SystemFacts) -> None:
    """Model tools, boot unit and `uname`."""
    tools = root / "opt/lab/bin"
    tools.mkdir(parents=True)
    for source in GUEST.iterdir():
        if source.suffix not in (".c", ".service"):
            shutil.copy(source, tools / source.name)
            (tools / source.name).chmod(0o755)
    for name in KMOD:
        target = root / "usr/sbin" / name
        target.unlink(missing_ok=True)
        target.symlink_to("/opt/lab/bin/lab-modules")
    for name in ("dmesg", "systemd-detect-virt"):
        (root / "usr/bin" / name).unlink()
        (root / "usr/bin" / name).symlink_to(f"/opt/lab/bin/{name}")
    write(root, "etc/systemd/system/lab-boot.service", (GUEST / "lab-boot.service").read_text())
    wants = root / "etc/systemd/system/sysinit.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / "lab-boot.service").symlink_to("../lab-boot.service")
    library = root / "opt/lab/lib/libuname.so"
    library.parent.mkdir(parents=True)
    run("gcc", "-O1", "-Wall", "-fPIC", "-shared", GUEST / "uname_preload.c", "-o", library)
    write(root, "etc/ld.so.preload", "/opt/lab/lib/libuname.so\n")
    write(root, "opt/lab/system", f"{facts.name}\n")
    if facts.name == "ubuntu-22.04":
        write(root, "opt/lab/compiler", "gcc (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0\n")
    plant_kernel(root, facts.kernels[0])


def plant_kernel(root: Path, release: str) -> None:
    """The files of a kernel package: image and module folder, without headers."""
    write(root, f"boot/vmlinuz-{release}", f"image of {release}\n")
    write(root, f"boot/config-{release}", "CONFIG_MODULES=y\nCONFIG_MODULE_SIG=y\n")
    folder = f"lib/modules/{release}"
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo", "modules.dep"):
        write(root, f"{folder}/{name}", "")
    nouveau = write(root, f"{folder}/kernel/drivers/gpu/drm/nouveau/nouveau.ko", "")
    nouveau.write_bytes(module_file("nouveau", "", "GPL and additional rights", release))
    run("chroot", root, "depmod", release)

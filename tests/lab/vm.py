"""`python -m tests.lab.vm`: a machine with a kernel of its own, for what containers cannot show.

Secure Boot on and off, a module that the real dkms builds and the real kernel refuses or loads, and what
`mopt-doctor` says of the machine. Emulated (no /dev/kvm), so that it runs wherever CI does; one virtual
processor, because with two an emulated kernel now and then dies while it patches its own code.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.base import digest_of, ensure_base, once, run
from tests.lab.personality import ensure_layer
from tests.lab.places import CACHE, SUITE
from tests.lab.product import copy_into

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Machine", "ensure_image", "main"]

PORT = 2299
PACKAGES = (
    "linux-image-cloud-amd64",
    "linux-headers-cloud-amd64",
    "dkms",
    "build-essential",
    "zstd",
    "mokutil",
    "initramfs-tools",
)
FIRMWARE = Path("/usr/share/OVMF")
KEY = Path("/usr/share/ovmf/PkKek-1-snakeoil")

SOURCE = """#include <linux/module.h>
static int __init hi(void) { pr_info("labhello loaded\\n"); return 0; }
static void __exit bye(void) {}
module_init(hi); module_exit(bye); MODULE_LICENSE("GPL"); MODULE_VERSION("1.0");
"""
DKMS = """PACKAGE_NAME="labhello"
PACKAGE_VERSION="1.0"
BUILT_MODULE_NAME[0]="labhello"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make -C /lib/modules/${kernelver}/build M=${dkms_tree}/${PACKAGE_NAME}/${PACKAGE_VERSION}/build modules"
AUTOINSTALL="yes"
"""


def ensure_image() -> Path:
    """Folder with `vmlinuz` signed by the firmware's test key, `initrd`, `disk.img` and the SSH key `id`."""
    target = CACHE / f"vm-{SUITE}-{digest_of(Path(__file__), text=ensure_base().name)}"
    with once(target) as part:
        if part is not None:
            print("lab: building the machine's disk", file=sys.stderr, flush=True)
            with _root() as root:
                kernel = _install(root)
                _image(root, kernel, part)
    return target


@contextmanager
def _root() -> Iterator[Path]:
    """The userland of the lab, writable, in memory."""
    with tempfile.TemporaryDirectory(prefix="mopt-lab-vm-", dir="/dev/shm") as scratch:
        top = Path(scratch)
        for name in ("up", "work", "root"):
            (top / name).mkdir()
        root = top / "root"
        run(
            "mount",
            "-t",
            "overlay",
            "overlay",
            "-o",
            f"lowerdir={ensure_base()},upperdir={top}/up,workdir={top}/work",
            root,
        )
        try:
            for name in ("proc", "sys", "dev"):
                run("mount", "--bind", f"/{name}", root / name)
            yield root
        finally:
            for name in ("proc", "sys", "dev", ""):
                run("umount", "-l", root / name, check=False)


def _install(root: Path) -> str:
    """Kernel, headers, dkms and a module that it builds; the kernel's release."""
    mirror = run("apt-get", "indextargets", "--format", "$(REPO_URI)").stdout.splitlines()
    address = next(line for line in mirror if line.endswith("/debian/"))
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    (root / "etc/apt/sources.list").write_text(f"deb {address} {SUITE} main\n")
    inside = ("chroot", root, "env", "DEBIAN_FRONTEND=noninteractive")
    run(*inside, "apt-get", "update", "-qq")
    run(*inside, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES)
    kernel = max(p.name for p in (root / "boot").glob("vmlinuz-*")).removeprefix("vmlinuz-")
    source = root / "usr/src/labhello-1.0"
    source.mkdir()
    (source / "labhello.c").write_text(SOURCE)
    (source / "Makefile").write_text("obj-m := labhello.o\n")
    (source / "dkms.conf").write_text(DKMS)
    # In a chroot dkms takes the running kernel for another's: it must be told.
    run(*inside, "dkms", "install", "labhello/1.0", "-k", kernel)
    return kernel


def _image(root: Path, kernel: str, part: Path) -> None:
    # Every megabyte counts where it is emulated: an initrd that finds the disk and nothing else.
    conf = root / "etc/initramfs-tools/initramfs.conf"
    text = conf.read_text().replace("MODULES=most", "MODULES=list").replace("COMPRESS=zstd", "COMPRESS=gzip")
    conf.write_text(text + "\nFSTYPE=ext4\n")
    (root / "etc/initramfs-tools/modules").write_text("virtio_pci\nvirtio_blk\next4\n")
    run("chroot", root, "mkinitramfs", "-o", "/boot/lean.img", kernel)
    shutil.move(root / "boot/lean.img", part / "initrd")
    network = root / "etc/systemd/network/10-vm.network"
    network.parent.mkdir(parents=True, exist_ok=True)
    network.write_text("[Match]\nName=e*\n[Network]\nDHCP=yes\n")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (wants / "systemd-networkd.service").symlink_to("/usr/lib/systemd/system/systemd-networkd.service")
    (root / "etc/hostname").write_text("labvm\n")
    (root / "etc/fstab").write_text("/dev/vda / ext4 noatime 0 0\n")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", part / "id")
    home = root / "root/.ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(part / "id.pub", home / "authorized_keys")
    _sign(root / f"boot/vmlinuz-{kernel}", part)
    for pattern in (
        "usr/src/linux-*",
        "var/cache/apt/*",
        "usr/lib/gcc*",
        "usr/libexec/gcc",
        "usr/lib/firmware",
        "boot/initrd*",
        "var/lib/apt/lists/*",
    ):
        for path in root.glob(pattern):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in ("proc", "sys", "dev"):
        run("umount", "-l", root / name)
    disk = part / "disk.img"
    run("truncate", "-s", "2G", disk)
    run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", root, disk)


def _sign(kernel: Path, part: Path) -> None:
    """By the key whose both halves Debian ships with its test firmware."""
    plain = part / "snakeoil.key"
    run("openssl", "rsa", "-in", f"{KEY}.key", "-passin", "pass:snakeoil", "-out", plain)
    run("sbsign", "--key", plain, "--cert", f"{KEY}.pem", "--output", part / "vmlinuz", kernel)
    plain.unlink()


class Machine:
    """A booted machine; `with Machine(folder, secure_boot=True) as machine`."""

    def __init__(self, folder: Path, *, secure_boot: bool) -> None:
        self.folder, self.secure_boot = folder, secure_boot
        self.scratch = Path(tempfile.mkdtemp(prefix="mopt-lab-vm-"))
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # An emulated kernel may die while it starts; it ends qemu then, and one more try is made.
        for _ in range(2):
            self._start()
            if self._wait(240):
                return self
            self._stop()
        raise RuntimeError(
            f"no sshd; console:\n{(self.scratch / 'console').read_text(errors='replace')[-3000:]}"
        )

    def __exit__(self, *_: object) -> None:
        self._stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def _start(self) -> None:
        variables = self.scratch / "variables.fd"
        shutil.copy(
            FIRMWARE / ("OVMF_VARS_4M.snakeoil.fd" if self.secure_boot else "OVMF_VARS_4M.fd"), variables
        )
        self.process = subprocess.Popen(
            [
                "qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35,smm=on", "-cpu", "Nehalem",
                "-smp", "1", "-m", "1024", "-global", "driver=cfi.pflash01,property=secure,value=on",
                "-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={FIRMWARE}/OVMF_CODE_4M.secboot.fd",
                "-drive", f"if=pflash,format=raw,unit=1,file={variables}",
                "-drive", f"if=virtio,format=raw,snapshot=on,file={self.folder}/disk.img",
                "-kernel", f"{self.folder}/vmlinuz", "-initrd", f"{self.folder}/initrd",
                "-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 mitigations=off systemd.mask=systemd-udev-settle.service",
                "-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{PORT}-:22", "-device", "virtio-net-pci,netdev=n,romfile=",
                "-device", "virtio-rng-pci", "-nodefaults", "-display", "none", "-serial", f"file:{self.scratch}/console", "-no-reboot",
            ],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _wait(self, limit_s: float) -> bool:
        end = time.monotonic() + limit_s
        while time.monotonic() < end and self.process is not None and self.process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", PORT), 2) as link:
                link.settimeout(5)
                if link.recv(4) == b"SSH-":
                    return True
            time.sleep(0.5)
        return False

    def ssh(self, command: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run(*self._argv(command), check=check, timeout=300)

    def _argv(self, command: str) -> list[str]:
        return [
            "ssh", "-i", str(self.folder / "id"), "-p", str(PORT), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60", "root@127.0.0.1", command,
        ]  # fmt: skip

    def bring_product(self) -> None:
        """The tree's own code, as it is now: the disk is kept from run to run."""
        with tempfile.TemporaryDirectory(prefix="mopt-lab-vm-") as scratch:
            (Path(scratch) / "usr/local/bin").mkdir(parents=True)
            copy_into(Path(scratch))
            archive = Path(scratch).with_suffix(".tar")
            run("tar", "-C", scratch, "--owner=0", "--group=0", "-cf", archive, ".")
            try:
                with archive.open("rb") as stream:
                    subprocess.run(self._argv("tar -C / -xf -"), stdin=stream, check=True, timeout=300)
            finally:
                archive.unlink()


def main() -> int:
    """`make lab-vm`: pytest on `vm_checks.py`, which needs the registry and so runs outside of the namespaces."""
    import pytest

    ensure_layer("ubuntu-24.04")
    return int(
        pytest.main(
            ["-q", "-p", "no:cacheprovider", str(Path(__file__).with_name("vm_checks.py")), *sys.argv[1:]]
        )
    )


if __name__ == "__main__":
    sys.exit(main())

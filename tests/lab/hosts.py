"""Disposable hosts: systemd-nspawn on a copy-on-write layer, each with its own network namespace and address.

They share a bridge that leads nowhere else. Use inside `python -m tests.lab run`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab.authority import HOST_NAMES, Authority
from tests.lab.base import ensure_base, run
from tests.lab.fakegpu.plant import Gpu, plant
from tests.lab.namespace import INSIDE, cgroup_tops, sweep
from tests.lab.personality import ensure_layer
from tests.lab.places import BRIDGE_ADDRESS, NETWORK, RUN

__all__ = ["Host", "Lab"]

#: systemd-nspawn's exit status, under --keep-unit, when the guest asked to reboot.
REBOOT = 133
BRIDGE = "lab0"


class Host:
    """A booted host. Its root directory is visible here as `root`."""

    def __init__(self, lab: Lab, name: str, system: str, address: str) -> None:
        self.lab, self.name, self.system, self.address = lab, name, system, address
        self.folder = lab.folder / name
        self.root = self.folder / "root"
        self.interface = f"ve-{name}"[:15]
        self.power: subprocess.Popen[bytes] | None = None
        for part in ("up", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        lower = f"{ensure_layer(system)}:{ensure_base()}"
        options = f"lowerdir={lower},upperdir={self.folder}/up,workdir={self.folder}/work"
        run("mount", "-t", "overlay", "overlay", "-o", options, self.root)
        self._introduce()

    @property
    def is_rocky(self) -> bool:
        return self.system.startswith("rocky")

    def _introduce(self) -> None:
        """Name, addresses, who may log in, whom it trusts."""
        self.write("etc/hostname", f"{self.name}\n")
        names = "".join(f"{BRIDGE_ADDRESS} {n}\n" for n in HOST_NAMES)
        self.write("etc/hosts", f"127.0.0.1 localhost\n{self.address} {self.name}\n{names}")
        for home in ("root", "home/admin"):
            key = self.write(f"{home}/.ssh/authorized_keys", self.lab.public_key, 0o600)
            owner = (self.root / home).stat()
            key.parent.chmod(0o700)
            for path in (key.parent, key):
                os.chown(path, owner.st_uid, owner.st_gid)
        # The lab's authority is trusted as a site's own would be.
        bundle = self.root / "etc/ssl/certs/ca-certificates.crt"
        bundle.write_text(bundle.read_text() + self.lab.authority.certificate.read_text())
        if self.is_rocky:
            link = self.root / "etc/pki/tls/certs/ca-bundle.crt"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to("/etc/ssl/certs/ca-certificates.crt")
            for major in ("8", "9", "10"):
                self.write(
                    f"etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-{major}",
                    self.lab.authority.public_key("system").read_text(),
                )
        else:
            binary = subprocess.run(
                ["gpg", "--dearmor"],
                input=self.lab.authority.public_key("system").read_bytes(),
                capture_output=True,
                check=True,
            ).stdout
            target = self.root / "usr/share/keyrings/ubuntu-archive-keyring.gpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(binary)

    def write(self, path: str, text: str, mode: int = 0o644) -> Path:
        """A file of the guest, running or not."""
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)
        return target

    def read(self, path: str) -> str:
        """Text of a file of the guest on disk; memory file systems of it are not seen here."""
        return (self.root / path.lstrip("/")).read_text()

    def boot(self, wait_s: float = 90.0) -> Host:
        """Power on; returns when sshd answers."""
        run("ip", "netns", "add", self.name)
        run("ip", "link", "add", self.interface, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        run("ip", "link", "set", self.interface, "master", BRIDGE, "up")
        for rest in (("addr", "add", f"{self.address}/24", "dev", "eth0"), ("link", "set", "lo", "up"),
                     ("link", "set", "eth0", "up"), ("route", "add", "default", "via", BRIDGE_ADDRESS)):  # fmt: skip
            run("ip", "-n", self.name, *rest)
        self._power_on()
        self.wait_ssh(wait_s)
        return self

    def _power_on(self) -> None:
        argv = [
            "systemd-nspawn", "--quiet", "-D", str(self.root), "--machine", self.name, "--register=no", "--keep-unit",
            "--boot", "--console=read-only", "--link-journal=no", "--resolv-conf=off", "--timezone=off",
            "--capability=CAP_MKNOD,CAP_SYS_ADMIN", f"--network-namespace-path=/run/netns/{self.name}",
        ]  # fmt: skip
        # nspawn puts its groups under the caller's: without one of its own, hosts would share them.
        groups = [top / self.name for top in cgroup_tops(os.environ[INSIDE])]
        for group in groups:
            group.mkdir(parents=True, exist_ok=True)
        enter = "".join(f"echo $$ >{shlex.quote(str(g))}/cgroup.procs; " for g in groups)
        # The loop is the power supply: a guest that asks for a reboot comes back.
        loop = f"{enter}while :; do {shlex.join(argv)}; code=$?; [ $code = {REBOOT} ] || exit $code; done"
        with (self.folder / "console.log").open("ab") as console:
            self.power = subprocess.Popen(
                ["bash", "-c", loop],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,
            )

    def console(self) -> str:
        return (self.folder / "console.log").read_text(errors="replace")

    def wait_ssh(self, wait_s: float) -> None:
        """Until sshd greets, or a RuntimeError with the end of the console."""
        end = time.monotonic() + wait_s
        while time.monotonic() < end and (self.power is None or self.power.poll() is None):
            with contextlib.suppress(OSError), socket.create_connection((self.address, 22), 0.5) as link:
                if link.recv(4) == b"SSH-":
                    return
            time.sleep(0.03)
        raise RuntimeError(f"{self.name}: no sshd after {wait_s:.0f} s; console:\n{self.console()[-3000:]}")

    def ssh(
        self, command: str, *, user: str = "root", check: bool = True, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command over SSH."""
        return run(
            "ssh", *self.lab.ssh_options, f"{user}@{self.address}", command, check=check, timeout=timeout_s
        )

    def say(self, command: str) -> str:
        """The output of a shell command, stripped."""
        return self.ssh(command).stdout.strip()

    def copy_in(self, source: Path, target: str) -> None:
        """A file or a folder into the guest."""
        place = self.root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", source, place)

    def reboot(self, wait_s: float = 90.0) -> None:
        """Restart and wait until the new boot answers."""
        before = self.say("cat /proc/sys/kernel/random/boot_id")
        self.ssh("systemctl reboot", check=False)
        end = time.monotonic() + wait_s
        while time.monotonic() < end:
            with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired):
                self.wait_ssh(end - time.monotonic())
                if self.ssh("cat /proc/sys/kernel/random/boot_id", timeout_s=10).stdout.strip() != before:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name}: did not come back; console:\n{self.console()[-3000:]}")

    def plant(self, gpus: Sequence[Gpu]) -> None:
        """Put cards into the PCI bus; they are seen from the next boot on."""
        plant(self.root, gpus)

    def unplug(self) -> None:
        """Pull the plug, without taking the disk away."""
        if self.power is not None and self.power.poll() is None:
            os.killpg(self.power.pid, signal.SIGKILL)
            self.power.wait()
        for top in cgroup_tops(os.environ[INSIDE]):
            with contextlib.suppress(OSError):
                (top / self.name / "cgroup.kill").write_text("1")
        run("ip", "netns", "del", self.name, check=False)
        run("ip", "link", "del", self.interface, check=False)
        for top in cgroup_tops(os.environ[INSIDE]):
            sweep(top / self.name)

    def destroy(self) -> None:
        self.unplug()
        run("umount", "-l", self.root, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


class Lab:
    """A bridge, a key pair and the hosts on it."""

    def __init__(self, authority: Authority) -> None:
        if INSIDE not in os.environ:
            raise RuntimeError("start this under `python -m tests.lab run COMMAND`")
        self.authority = authority
        self.folder = Path(tempfile.mkdtemp(prefix="hosts-", dir=RUN))
        self.hosts: dict[str, Host] = {}
        self.numbers = iter(range(11, 250))
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "addr", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        self.key = self.folder / "id_ed25519"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self.public_key = self.key.with_suffix(".pub").read_text()
        self.ssh_options = (
            "-i", str(self.key), "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", "-o", "BatchMode=yes",
        )  # fmt: skip

    def host(self, name: str, system: str, *, gpus: Sequence[Gpu] = (), boot: bool = True) -> Host:
        """A fresh host of this system with these cards."""
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,11}", name):
            raise ValueError(f"`{name}` does not fit an interface's name")
        host = Host(self, name, system, f"{NETWORK}.{next(self.numbers)}")
        self.hosts[name] = host
        if gpus:
            host.plant(gpus)
        return host.boot() if boot else host

    def boot_all(self, hosts: Iterable[Host]) -> None:
        """Several at once."""
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(Host.boot, hosts))

    def destroy(self, host: Host) -> None:
        self.hosts.pop(host.name, None)
        host.destroy()

    def inventory(self, *names: str) -> str:
        """An Ansible inventory of these hosts, or of all."""
        rows = {
            host.name: {
                "ansible_host": host.address,
                "ansible_user": "admin",
                "ansible_become": True,
                "ansible_ssh_private_key_file": str(self.key),
                # Addresses repeat from session to session: Ansible must not find another session's connection.
                "ansible_control_path_dir": str(self.folder / "cp"),
                "ansible_ssh_common_args": "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null",
            }
            for host in self.hosts.values()
            if not names or host.name in names
        }
        return json.dumps({"all": {"hosts": rows}}, indent=1)

    def close(self) -> None:
        for host in list(self.hosts.values()):
            self.destroy(host)
        run("ip", "link", "del", BRIDGE, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

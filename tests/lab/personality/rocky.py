"""Rocky Linux: names, rpm's own database and macros, no apt and no dpkg."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.lab.base import run
from tests.lab.personality.common import remove, write
from tests.lab.systems import SystemFacts

__all__ = ["make"]

APT_TOOLS = (
    "usr/bin/apt*", "usr/bin/dpkg*", "usr/bin/lsb_release", "usr/sbin/dpkg*", "etc/apt", "var/lib/dpkg", "var/lib/apt",
    *(f"usr/lib/python3/dist-packages/{n}" for n in ("apt", "apt_pkg*", "apt_inst*", "aptsources", "debian")),
    # Wants python3-systemd; adds a repository without a signature, at which dnf refuses everything.
    *(f"usr/lib/python3/dist-packages/dnf-plugins/{n}.py" for n in ("system_upgrade", "local")),
)  # fmt: skip
DNF_CONF = (
    "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\n"
    "skip_if_unavailable=False\nmodule_platform_id=platform:el{major}\n"
)


def make(root: Path, facts: SystemFacts) -> None:
    """Turn the userland at `root` into this Rocky Linux."""
    remove(root, "etc/os-release", "usr/lib/os-release", "etc/debian_version", *APT_TOOLS)
    write(root, "usr/lib/os-release", _os_release(facts))
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    write(root, "etc/rocky-release", f"Rocky Linux release {facts.version} ({facts.nick})\n")
    for name in ("redhat-release", "system-release"):
        (root / "etc" / name).symlink_to("rocky-release")
    major = facts.major
    for folder in (
        "var/lib/rpm",
        "etc/dnf/vars",
        "etc/dnf/modules.d",
        "etc/pki/rpm-gpg",
        "usr/libexec",
        "etc/yum.repos.d",
    ):
        (root / folder).mkdir(parents=True, exist_ok=True)
    # Debian's rpm keeps a database for each caller's home: who asks with another HOME would find an empty one.
    macros = f"%dist .el{major}\n%rhel {major}\n%el{major} 1\n%_dbpath /var/lib/rpm\n"
    write(root, "etc/rpm/macros.dist", macros)
    write(root, "etc/dnf/dnf.conf", DNF_CONF.format(major=major))
    write(root, "etc/yum.repos.d/rocky.repo", _own_repositories(facts))
    write(
        root,
        "etc/dnf/plugins/versionlock.conf",
        "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n",
    )
    write(root, "etc/dnf/plugins/versionlock.list", "")
    write(
        root, "etc/ld.so.conf.d/lib64.conf", "/usr/lib64\n"
    )  # a standard place on Enterprise Linux, not on Debian
    (root / "usr/bin/yum").symlink_to("dnf")
    (root / "usr/libexec/platform-python").symlink_to("../bin/python3")
    (root / "usr/lib/systemd/system/sshd.service").symlink_to(
        "ssh.service"
    )  # the unit's name on Enterprise Linux
    for name in ("dracut", "grubby", "mokutil"):
        (root / "usr/sbin" / name).symlink_to(f"/opt/lab/bin/{name}")
    write(root, f"boot/initramfs-{facts.kernels[0]}.img", "made with the image\n")
    _install_own_packages(root, facts)


def _os_release(facts: SystemFacts) -> str:
    version, major = facts.version, facts.major
    return (
        f'NAME="Rocky Linux"\nVERSION="{version} ({facts.nick})"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'
        f'VERSION_ID="{version}"\nPLATFORM_ID="platform:el{major}"\nPRETTY_NAME="Rocky Linux {version} ({facts.nick})"\n'
        f'CPE_NAME="cpe:/o:rocky:rocky:{major}::baseos"\nROCKY_SUPPORT_PRODUCT="Rocky-Linux-{major}"\n'
        f'ROCKY_SUPPORT_PRODUCT_VERSION="{version}"\nREDHAT_SUPPORT_PRODUCT="Rocky Linux"\n'
        f'REDHAT_SUPPORT_PRODUCT_VERSION="{version}"\n'
    )


def _own_repositories(facts: SystemFacts) -> str:
    """As a fresh install has them: the builder's repository is there and off."""
    rows = {"baseos": ("BaseOS", 1), "appstream": ("AppStream", 1), "extras": ("extras", 1)}
    rows["powertools" if facts.major == "8" else "crb"] = ("PowerTools" if facts.major == "8" else "CRB", 0)
    return "".join(
        f"[{name}]\nname=Rocky Linux {facts.major} - {folder}\n"
        f"baseurl=https://dl.rockylinux.org/pub/rocky/{facts.major}/{folder}/x86_64/os/\ngpgcheck=1\nenabled={enabled}\n"
        f"countme=1\ngpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-{facts.major}\n\n"
        for name, (folder, enabled) in rows.items()
    )


def _install_own_packages(root: Path, facts: SystemFacts) -> None:
    """Packages of an empty rpm database that resolution needs: the release and the kernel that is planted."""
    release = facts.kernels[0].removesuffix(".x86_64")
    version, _, revision = release.partition("-")
    specs = {
        "rocky-release": (
            facts.version, f"1.el{facts.major}",
            (f"Provides: system-release = {facts.version}, system-release(releasever) = {facts.major}, "
            f"redhat-release = {facts.version}, /bin/sh, /usr/bin/python3, platform-python, python3, systemd, "
            "kmod, zstd, shadow-utils, coreutils, bash\nBuildArch: noarch\n"),
            "%files\n",
        ),
        "kernel-core": (version, revision, f"Provides: kernel-uname-r = {facts.kernels[0]}\n",
                        f"%files\n/boot/vmlinuz-{facts.kernels[0]}\n"),
        "kernel": (version, revision, "", "%files\n"),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="mopt-lab-") as scratch:
        for name, (number, rev, extra, files) in specs.items():
            spec = Path(scratch) / f"{name}.spec"
            spec.write_text(
                f"Name: {name}\nVersion: {number}\nRelease: {rev}\nSummary: stub\nLicense: BSD\nAutoReqProv: no\n"
                f"{extra}%description\nstub\n%install\nmkdir -p %{{buildroot}}/boot\n"
                f"echo 'image of {facts.kernels[0]}' >%{{buildroot}}/boot/vmlinuz-{facts.kernels[0]}\n"
                + ("" if "/boot" in files else "rm -r %{buildroot}/boot\n")
                + files
            )
            run("rpmbuild", "-bb", "--quiet", "--define", f"_topdir {scratch}", "--define", f"_rpmdir {root}",
                "--target", "noarch" if "noarch" in extra else "x86_64",
                "--define", "_rpmfilename %{NAME}.rpm", "--define", "debug_package %{nil}", spec)  # fmt: skip
        names = [f"/{name}.rpm" for name in specs]
        run("chroot", root, "rpm", "-i", "--nodigest", "--nosignature", "--force", *names)
        for name in names:
            (root / name.lstrip("/")).unlink()
    shutil.rmtree(root / "root/rpmbuild", ignore_errors=True)

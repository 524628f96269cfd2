"""Private roots for the real package managers, and the worker of `mopt_transaction` as a host runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

PLAYBOOKS = Path(__file__).resolve().parents[2] / "playbooks"
UTILS = PLAYBOOKS / "plugins" / "module_utils"
WORKER = {"mopt_worker.py": "__main__.py"} | {
    n: n for n in ("mopt_apt.py", "mopt_dnf.py", "mopt_foresee.py", "mopt_sets.py")
}

# As they load on a host that has no Ansible.
sys.path.insert(0, str(UTILS))


def sh(*argv: str | Path, **how) -> str:
    done = subprocess.run(
        [str(a) for a in argv],
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **how,
    )
    assert done.returncode == 0, f"{argv} ended with {done.returncode}:\n{done.stdout[-3000:]}"
    return done.stdout


class Scene:
    """A root with nothing in it, a repository beside it, and transactions on it."""

    manager = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "root"
        self.repository = folder / "repository"
        self.undo = folder / "undo"
        self.repository.mkdir()
        self.runs = 0

    def options(self) -> list[str]:
        return []

    def folder_of(self, **request) -> Path:
        """A folder as the module prepares it."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        (folder / "worker").mkdir(parents=True)
        for source, target in WORKER.items():
            shutil.copy(UTILS / source, folder / "worker" / target)
        asked = {
            "manager": self.manager,
            "install": [],
            "remove": [],
            "extra_allowed": [],
            "unlock": [],
            "root": str(self.root),
            "options": self.options(),
            "lock": str(self.folder / "lock"),
            "lock_timeout_s": 5,
            "may_update": True,
        } | request
        asked["install"] = [
            w if isinstance(w, dict) else dict(zip(("name", "version"), w.split("=", 1), strict=False))
            for w in asked["install"]
        ]
        (folder / "request.json").write_text(json.dumps(asked))
        return folder

    def act(self, act: str, **request):
        folder = self.folder_of(**request)
        sh("/usr/bin/python3", "-I", folder / "worker", act, folder, env={"PATH": os.environ["PATH"]})
        name = "result.json" if act == "run" else act + "d.json"
        return json.loads((folder / name).read_text())

    def simulate(self, **request):
        return self.act("simulate", **request)

    def run(self, **request):
        return self.act("run", **request)


class AptScene(Scene):
    manager = "apt"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for part in (
            "var/lib/dpkg/updates",
            "var/lib/dpkg/info",
            "var/lib/apt/lists/partial",
            "var/cache/apt/archives/partial",
            "etc/apt/preferences.d",
            "etc/apt/sources.list.d",
            "etc/apt/apt.conf.d",
            "etc/apt/trusted.gpg.d",
            "var/log/apt",
            "tmp",
        ):
            (self.root / part).mkdir(parents=True)
        (self.root / "var/lib/dpkg/status").touch()
        (self.root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{self.repository} ./\n")

    def options(self) -> list[str]:
        told = (
            f"Dir={self.root}",
            f"Dir::State::status={self.root}/var/lib/dpkg/status",
            "APT::Architecture=amd64",
            "APT::Sandbox::User=root",
            f"Dpkg::Options::=--root={self.root}",
            "Dpkg::Options::=--force-not-root",
            "Dpkg::Options::=--force-script-chrootless",
            "Dpkg::Options::=--log=/dev/null",
            "APT::Keep-Downloaded-Packages=false",
        )
        return [word for option in told for word in ("-o", option)]

    def package(self, name: str, version: str, postinst: str = "", **fields: str) -> Path:
        tree = self.folder / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "DEBIAN").mkdir(parents=True)
        (tree / f"usr/share/{name}").mkdir(parents=True)
        (tree / f"usr/share/{name}/version").write_text(version + "\n")
        lines = [
            f"Package: {name}",
            f"Version: {version}",
            "Architecture: all",
            "Maintainer: x <x@example.invalid>",
            "Description: x",
        ]
        lines += [f"{key}: {value}" for key, value in fields.items()]
        (tree / "DEBIAN/control").write_text("\n".join(lines) + "\n")
        if postinst:
            (tree / "DEBIAN/postinst").write_text("#!/bin/sh\n" + postinst)
            (tree / "DEBIAN/postinst").chmod(0o755)
        target = self.repository / f"{name}_{version.replace(':', '%3a')}_all.deb"
        sh("dpkg-deb", "--build", "--root-owner-group", tree, target)
        return target

    def publish(self) -> None:
        import hashlib

        text = ""
        for path in sorted(self.repository.glob("*.deb")):
            control = sh("dpkg-deb", "-f", path).strip()
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            text += f"{control}\nFilename: ./{path.name}\nSize: {len(data)}\nSHA256: {digest}\n\n"
        (self.repository / "Packages").write_text(text)

    def installed(self) -> dict[str, str]:
        shape = "${Package} ${Version} ${db:Status-Abbrev}\n"
        rows = (
            [
                line.split()
                for line in sh(
                    "dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "-W", "-f", shape
                ).splitlines()
            ]
            if (self.root / "var/lib/dpkg/status").read_text().strip()
            else []
        )
        return {r[0]: r[1] for r in rows if r[2] == "ii"}


class DnfScene(Scene):
    manager = "dnf"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        for part in (
            "etc/yum.repos.d",
            "etc/dnf/vars",
            "etc/dnf/plugins",
            "etc/dnf/modules.d",
            "var/lib/rpm",
            "var/lib/dnf",
        ):
            (self.root / part).mkdir(parents=True)
        (self.root / "etc/dnf/dnf.conf").write_text(
            "[main]\ngpgcheck=0\nmodule_platform_id=platform:el9\nplugins=0\n"
        )
        (self.root / "etc/yum.repos.d/test.repo").write_text(
            f"[test]\nname=test\nbaseurl=file://{self.repository}\nenabled=1\ngpgcheck=0\nmetadata_expire=0\n"
        )

    def package(self, name: str, version: str, *, epoch: str = "", extra: str = "", post: str = "") -> None:
        """`version` is `VERSION-RELEASE`; `extra` are lines of the spec's head."""
        number, _, release = version.partition("-")
        spec = self.folder / "x.spec"
        lines = [
            f"Name: {name}",
            f"Version: {number}",
            f"Release: {release}",
            "Summary: x",
            "License: x",
            "BuildArch: noarch",
            "AutoReqProv: no",
        ]
        lines += [f"Epoch: {epoch}"] if epoch else []
        body = f"{extra}\n%description\nx\n" + (f"%post -p /bin/false\n{post}\n" if post else "") + "%files\n"
        spec.write_text("\n".join(lines) + "\n" + body)
        top = self.folder / "rpmbuild"
        sh(
            "rpmbuild",
            "-bb",
            "--quiet",
            "--define",
            f"_topdir {top}",
            "--define",
            f"_rpmdir {self.repository}",
            "--define",
            "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm",
            spec,
        )

    def publish(self) -> None:
        sh("createrepo_c", "-q", self.repository)

    def installed(self) -> dict[str, str]:
        text = sh("rpm", "--root", self.root, "-qa", "--qf", "%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n")
        return dict(line.split() for line in text.splitlines())


def _needs(*commands: str) -> None:
    missing = [c for c in commands if shutil.which(c) is None]
    if missing and os.environ.get("CI"):
        pytest.fail(f"not installed: {', '.join(missing)} (`make lab-deps`)")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (`make lab-deps`)")


@pytest.fixture
def apt(tmp_path: Path) -> AptScene:
    _needs("apt-get", "dpkg-deb")
    return AptScene(tmp_path)


@pytest.fixture
def dnf(tmp_path: Path) -> DnfScene:
    _needs("dnf", "rpmbuild", "createrepo_c")
    return DnfScene(tmp_path)


def lines(rows: Sequence[dict[str, str]]) -> list[str]:
    """Changes in one line each: `name before>after`."""
    return [f"{r['name']} {r['before']}>{r['after']}" for r in rows]

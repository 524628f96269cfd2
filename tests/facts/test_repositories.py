"""Entries of apt and dnf: keys, switches, passwords; module streams."""

from __future__ import annotations

import pytest

from doctor.core.host_machine import ModuleStream, Repository
from doctor.facts.repositories import read_module_streams, read_repositories
from tests.facts.evidence import evidence

LIST = "/etc/apt/sources.list.d/cuda-ubuntu2404-x86_64.list"
SOURCES = "/etc/apt/sources.list.d/ubuntu.sources"
REPO = "/etc/yum.repos.d/cuda-rhel9.repo"
CUDA = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/x86_64/"
KEY = "/usr/share/keyrings/cuda-archive-keyring.gpg"


def read(files=None, stats=None, **kwargs) -> tuple[Repository, ...]:
    return read_repositories(evidence(files, stats=stats, **kwargs)).value


def test_one_line_entries():
    text = f"""# CUDA
deb [arch=amd64 signed-by={KEY}] {CUDA} /
# deb http://archive.example.org/ubuntu noble restricted multiverse
# deb lines are written by the installer
deb [trusted=yes] http://user:tr0ub4dor@mirror.example.org/ubuntu noble main restricted # ours
"""
    assert read({LIST: text}, {KEY: {}}) == (
        Repository(file=LIST, uri=CUDA, suite="/", signed_by=KEY, key_present=True),
        Repository(
            file=LIST,
            uri="http://archive.example.org/ubuntu",
            suite="noble",
            components=("restricted", "multiverse"),
            is_enabled=False,
        ),
        Repository(
            file=LIST,
            uri="http://mirror.example.org/ubuntu",
            suite="noble",
            components=("main", "restricted"),
            checks_signature=False,
        ),
    )


@pytest.mark.parametrize(
    ("stats", "is_there"),
    [({KEY: None}, False), ({KEY: {}}, True), ({}, None)],
    ids=["gone", "there", "unasked"],
)
def test_the_key_that_an_entry_names(stats, is_there):
    (entry,) = read({LIST: f"deb [signed-by={KEY}] {CUDA} /\n"}, stats)
    assert entry.key_present is is_there


def test_stanzas():
    text = """# Ubuntu
Types: deb
URIs: http://archive.example.org/ubuntu/
Suites: noble noble-updates
Components: main universe
 restricted
Signed-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg

Enabled: no
Types: deb
URIs: https://ppa.example.org/graphics-drivers
Suites: noble
Components: main
Trusted: yes
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 mQINBFmUaEEBEACx
 -----END PGP PUBLIC KEY BLOCK-----
"""
    first, second, third = read({SOURCES: text})
    assert (first.suite, second.suite) == ("noble", "noble-updates")
    assert first.components == ("main", "universe", "restricted")
    assert (first.signed_by, first.is_enabled) == ("/usr/share/keyrings/ubuntu-archive-keyring.gpg", True)
    assert (third.is_enabled, third.checks_signature, third.signed_by) == (False, False, "inline key")
    assert third.key_present is None


def test_sections_of_dnf():
    key = "/etc/pki/rpm-gpg/RPM-GPG-KEY-NVIDIA"
    text = f"""[cuda-rhel9-x86_64]
name=cuda-rhel9-x86_64
baseurl=https://ops:secret-word@developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64
enabled=1
gpgcheck=0
gpgkey=file://{key}

[games]
name=Games
baseurl=https://games.example.org/
enabled=1

[crb]
metalink = https://mirrors.example.org/metalink?repo=crb&arch=$basearch
enabled = 0
gpgcheck = 1
gpgkey = file:///etc/pki/rpm-gpg/RPM-GPG-KEY-$releasever
"""
    assert read({REPO: text}, {key: None}) == (
        Repository(
            file=REPO,
            name="cuda-rhel9-x86_64",
            uri="https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64",
            signed_by=key,
            checks_signature=False,
            key_present=False,
        ),
        Repository(
            file=REPO,
            name="crb",
            uri="https://mirrors.example.org/metalink?repo=crb&arch=$basearch",
            signed_by="/etc/pki/rpm-gpg/RPM-GPG-KEY-$releasever",
            is_enabled=False,
            checks_signature=True,
        ),
    )


def test_nothing_there_and_nothing_asked():
    gone = {"/etc/apt/sources.list.d": None, "/etc/yum.repos.d": None}
    assert read_repositories(evidence(stats=gone)).reason == "not_installed"
    assert read({"/etc/apt/sources.list": "# moved to ubuntu.sources\n"}) == ()
    assert read_repositories(evidence()).reason == "not_collected"


def test_module_streams():
    text = "[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nstate=enabled\n\n[x]\nstate=\n"
    path = "/etc/dnf/modules.d/nvidia-driver.module"
    assert read_module_streams(evidence({path: text})).value == (
        ModuleStream(module="nvidia-driver", stream="580-open", state="enabled"),
        ModuleStream(module="x", stream="", state=""),
    )
    folder = "/etc/dnf/modules.d"
    assert read_module_streams(evidence(stats={folder: {"kind": "dir"}})).value == ()
    assert read_module_streams(evidence(stats={folder: None})).reason == "not_installed"
    assert read_module_streams(evidence()).reason == "not_collected"

"""Steps that tests of a host share: the vendors' repositories by hand, as an administrator would add them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.lab.hosts import Host
from tests.lab.systems import SYSTEM_FACTS

__all__ = ["add_cuda", "add_repositories", "hold_gpu", "install_by_hand"]

CUDA = "https://developer.download.nvidia.com/compute/cuda/repos"


def add_cuda(host: Host) -> None:
    """The CUDA repository with its key and, on Ubuntu, the preference that its keyring package brings."""
    place = f"{CUDA}/{SYSTEM_FACTS[host.system].cuda_dir}/x86_64"
    if host.is_rocky:
        key = "CDF6BA43.pub" if host.system == "rocky-10" else "D42D0685.pub"
        host.ssh(f"curl -fsS {place}/{key} -o /etc/pki/rpm-gpg/cuda")
        host.write(
            "etc/yum.repos.d/cuda.repo",
            f"[cuda]\nname=cuda\nbaseurl={place}/\ngpgcheck=1\nrepo_gpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/cuda\n",
        )
        host.ssh(
            "dnf -y -q install epel-release && sed -i '/^\\[crb\\]/,/^$/s/enabled=0/enabled=1/' /etc/yum.repos.d/rocky.repo && dnf -y -q makecache"
        )
        return
    host.ssh(f"curl -fsS {place}/3bf863cc.pub -o /usr/share/keyrings/cuda.asc")
    host.write(
        "etc/apt/sources.list.d/cuda.sources",
        f"Types: deb\nURIs: {place}/\nSuites: /\nSigned-By: /usr/share/keyrings/cuda.asc\n",
    )
    host.write("etc/apt/preferences.d/cuda", "Package: *\nPin: release l=NVIDIA CUDA\nPin-Priority: 600\n")
    host.ssh("apt-get update -qq")


def add_repositories(host: Host, variables: Mapping[str, Any]) -> None:
    """The repositories, preferences and streams of a plan, without Ansible."""
    for stage in variables["mopt_stages"]:
        for repository in stage["repositories"]:
            key = repository["key"]
            host.ssh(f"mkdir -p $(dirname {key['keyring']}) && curl -fsS {key['url']} -o {key['keyring']}")
            uri = repository["uris"][0]
            if repository["kind"] == "rpm":
                text = f"[{repository['id']}]\nname=x\nbaseurl={uri}\ngpgcheck=1\ngpgkey=file://{key['keyring']}\n"
                host.write(f"etc/yum.repos.d/{repository['id']}.repo", text)
            else:
                rows = [f"Types: deb\nURIs: {uri}\nSuites: {' '.join(repository['suites'])}\n"]
                rows += (
                    [f"Components: {' '.join(repository['components'])}\n"]
                    if repository["components"]
                    else []
                )
                host.write(
                    f"etc/apt/sources.list.d/{repository['id']}.sources",
                    "".join(rows) + f"Signed-By: {key['keyring']}\n",
                )
        for pin in stage["pins"]:
            host.write(
                pin["file"],
                f"Package: {pin['packages']}\nPin: {pin['pin']}\nPin-Priority: {pin['priority']}\n",
            )
    host.ssh("dnf -y -q makecache" if host.is_rocky else "apt-get update -qq")


def install_by_hand(host: Host, *words: str, check: bool = True) -> str:
    """`apt-get install` or `dnf install` with what both say, as one text."""
    tool = (
        "dnf -y install"
        if host.is_rocky
        else "DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends"
    )
    done = host.ssh(f"{tool} {' '.join(words)}", check=check)
    return done.stdout + done.stderr


def hold_gpu(host: Host, index: int) -> str:
    """A process that has a GPU's device file open; its pid. There is no driver behind the file: O_PATH opens it all the same."""
    code = f"import os, time; held = os.open('/dev/nvidia{index}', os.O_PATH); time.sleep(3600)"
    host.ssh(f'nohup python3 -c "{code}" >/dev/null 2>&1 & echo $! >/run/user-of-gpu')
    return host.say("sleep 0.5; cat /run/user-of-gpu")

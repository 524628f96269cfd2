"""Redaction of what is collected about containers, fabric, repositories and keys."""

from __future__ import annotations

import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.evidence.redact import redact
from doctor.facts.read import read_host
from tests.facts.evidence import evidence

DAEMON = """{
  "registry-mirrors": ["https://puller:hunter2x@registry.hall3.acme-labs.io"],
  "proxies": {"http-proxy": "http://svc-proxy:tr0ub4dor@10.77.3.9:3128"},
  "log-opts": {"splunk-token": "176FCEBF-4CF5-4EDF-91BC-703796522D20"},
  "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}
}
"""
CONTAINERD = """version = 2
[plugins."io.containerd.grpc.v1.cri".registry.configs."registry.hall3.acme-labs.io".auth]
  username = "puller-of-images"
  password = "hunter2x"
  auth = "cHVsbGVyOmh1bnRlcjJ4"
  identitytoken = "aaaabbbbccccdddd"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""
REPO = """[cuda-rhel9-x86_64]
baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64
gpgcheck=1
[internal-nvidia]
baseurl=https://mirror-user:s3cr3t-word@mirror.hall3.acme-labs.io/nvidia
username=mirror-user
password=s3cr3t-word
sslclientkey=/etc/pki/entitlement/8154923007781123456-key.pem
"""
KEYS = """[key 1]
SHA1 Fingerprint: 76:a0:92:06:58:00:bf:37:69:01:c3:72:cd:55:a9:0e:1f:de:d2:e0
Certificate:
    Data:
        Serial Number:
            4a:11:7f:20:9b:33:c1:d0:55:aa:01
        Issuer: C=GB, ST=Isle of Man, O=Canonical Ltd., CN=Canonical Ltd. Master Certificate Authority
        Subject: C=GB, ST=Isle of Man, O=Canonical Ltd., CN=Canonical Ltd. Master Certificate Authority
[key 2]
        Subject: C=NL, L=Hengelo, O=Acme Labs BV, OU=HPC, CN=lumen-a41 Secure Boot Module Signature key
"""
AVC = (
    'type=AVC msg=audit(1732968000.123:412): avc:  denied  { read } for  pid=4242 comm="secret-job" '
    'path="/dev/nvidiactl" dev="devtmpfs" ino=512 tcontext=b:xserver_misc_device_t:s0 tclass=chr_file\n'
)
PEERS = "lumen-a41-imex\n10.77.3.42\n# the other half\nlumen-b17\n"

SECRETS = [
    *(
        "puller",
        "hunter2x",
        "acme-labs",
        "svc-proxy",
        "tr0ub4dor",
        "10.77.3",
        "176FCEBF",
        "cHVsbGVy",
        "aaaabbbb",
    ),
    *("mirror-user", "s3cr3t-word", "8154923007781123456", "76:a0:92", "4a:11:7f", "Hengelo", "Acme", "HPC"),
    *("lumen-a41", "lumen-b17", "secret-job"),
]


def host() -> Evidence:
    files = {
        "/proc/sys/kernel/hostname": "lumen-a41\n",
        "/etc/docker/daemon.json": DAEMON,
        "/etc/containerd/config.toml": CONTAINERD,
        "/etc/yum.repos.d/cuda.repo": REPO,
        "/etc/nvidia-imex/nodes_config.cfg": PEERS,
        "/var/log/audit/audit.log": AVC,
        "/sys/fs/selinux/enforce": "1\n",
        "/var/log/fabricmanager.log": "[INFO] peer lumen-b17 at 10.77.3.42: error, is running\n",
    }
    locks = [{"lock": "/var/lib/dpkg/lock-frontend", "pid": 4242, "process_name": "unattended-upgr"}]
    users = [{"pid": 7, "process_name": "secret-job", "used_gpu_memory": 1}]
    return evidence(
        files,
        {("mokutil", "--list-enrolled"): (0, KEYS)},
        documents={"machine": {"package_locks": locks}},
        nvml={"count": 1, "gpus": [{"index": 0, "compute_running_processes": users, "errors": {}}]},
    )


def everything(found: Evidence) -> str:
    return "\n".join([*(data.decode() for data in found.blobs.values()), repr(found.meta)])


def test_no_secret_stays():
    before, after = everything(host()), everything(redact(host()))
    assert [word for word in SECRETS if word not in before] == []
    assert [word for word in SECRETS if word.lower() in after.lower()] == []


def test_twice_is_once():
    once = redact(host())
    assert redact(once).blobs == once.blobs
    assert redact(once).meta == once.meta


def test_what_is_judged_stays():
    mine, theirs = read_host(host()), read_host(redact(host()))
    docker, containerd = theirs.containers.engines.value
    assert docker.runtimes == ("nvidia",)
    assert docker.config_fault == containerd.config_fault == ""
    assert containerd.runtime_paths == {"nvidia": "/usr/bin/nvidia-container-runtime"}
    first, second = theirs.machine.repositories.value
    assert first == mine.machine.repositories.value[0]
    assert second.uri.startswith("https://host-")
    assert theirs.machine.package_locks == mine.machine.package_locks
    assert len(theirs.fabric.imex_peers.value) == 3
    assert len(theirs.containers.selinux_denials.value) == 1
    canonical, own = theirs.machine.enrolled_keys.value
    assert canonical.endswith("O=Canonical Ltd., CN=Canonical Ltd. Master Certificate Authority")
    assert own.endswith("Secure Boot Module Signature key")


@pytest.mark.parametrize("kind", ["stat", "file"])
def test_a_container_in_the_name_of_a_group(kind):
    digits = "4f2a9c0d1b7e" * 5 + "abcd"
    key = f"{kind}:/sys/fs/cgroup/system.slice/docker-{digits}.scope/memory.max"
    found = redact(Evidence(Meta(items=(Item(key=key, status="missing"),)), {}))
    assert digits not in repr(found.meta)
    assert found.meta.items[0].key.endswith("1.scope/memory.max")

"""Forty secrets planted in a sick host's evidence: no form of the answer has one, and the verdict stays."""

import json

import msgspec
import pytest

from doctor.cli import main
from doctor.core.evidence import Evidence, Item
from doctor.evidence.bundle import read_bundle, write_bundle
from doctor.evidence.redact import redact_text
from doctor.grammar.host import FORMS
from tests.test_hosts import HOSTS

SECRETS = {
    "host": "quarry-gpu17",
    "fqdn": "quarry-gpu17.pit4.slate-mining.io",
    "domain": "slate-mining",
    "peer": "nfs03.pit4.slate-mining.io",
    "user": "tkowalczyk",
    "second user": "hbergstrom",
    "login": "mfernandes",
    "mail": "t.kowalczyk@slate-mining.io",
    "password": "c0rrect-h0rse-9",
    "proxy password": "pr0xy-pa55phrase",
    "hugging face": "hf_AbCdEfGhIjKlMnOpQrSt",
    "github": "ghp_0123456789abcdefghijABCDEFGHIJ",
    "github fine": "github_pat_11ABCDEFG0123456789_abcdefgh",
    "gitlab": "glpat-AbCdEfGh1234567890",
    "ngc": "nvapi-AbCdEfGhIjKlMnOpQrStUv",
    "openai": "sk-proj-AbCdEfGhIjKlMnOpQrSt",
    "slack": "xoxb-123456789012-abcdefghijkl",
    "aws": "AKIAIOSFODNN7ABCDEFG",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    "bearer": "b3JpZ2luYWwtdG9rZW4",
    "gpu uuid": "9f3a1c42-77de-4b10-a2c9-5e0d13b7f8ab",
    "mig uuid": "0d9e8f7a-1234-5678-9abc-def012345678",
    "boot id": "7d1e2f30-51aa-4c2b-9a77-0c1d2e3f4a5c",
    "root uuid": "aa11bb22-cc33-dd44-ee55-ff6677889900",
    "gpu serial": "1654923007782",
    "board serial": "1320221089124",
    "chassis serial": "CZJ94400QY",
    "service tag": "7XK2PQ3",
    "machine id": "4c4c4544003957108052b4c04f384834",
    "pod": "5b0c7f9e-3a1d-4f1e-8b2c-6d7e8f901234",
    "container": "b7c1f5d0a9e8473625140f3e2d1c0b9a8f7e6d5c4b3a29181706f5e4d3c2b1a0",
    "ipv4": "10.88.4.61",
    "second ipv4": "172.20.9.77",
    "ipv6": "2a02:8108:96bf:4d20::1f3",
    "mac": "b4:96:91:0a:bb:c2",
    "wwn": "5000c500a1b2c3d4",
    "guid": "0c42a10300f1e2d3",
    "iscsi": "2019-07.io.slate:vol-ledger",
    "process": "ledger-trainer",
    "interface": "veth1a2b3c4",
}

S = SECRETS
STAMP = f"Nov 30 08:01:41 {S['host']} "
#: Lines that say where each secret stands, as programs print them; the NVRM lines are quoted in findings.
JOURNAL = "".join(
    f"{STAMP}{line.format_map(S)}\n"
    for line in (
        "kernel: NVRM: Xid (PCI:0000:41:00): 31, pid=4211, name={process}, Ch 8, GPU-{gpu uuid} {host}",
        "kernel: NVRM: GPU at PCI:0000:41:00: GPU-{gpu uuid}",
        "kernel: NVRM: GPU Board Serial Number: {board serial}",
        "kernel: NVRM: API mismatch: client of {user}@{fqdn} /home/{user}/x token={password}",
        "kernel: nfs: server {peer} not responding",
        "kernel: Killed process 812 ({process}) total-vm:1kB",
        "systemd[1]: Created slice User Slice of {second user}.",
        "sshd[8]: Accepted publickey for {login}, session opened for user {login} by (uid=0)",
        "kernel: {interface}: renamed; link {mac}; addr {ipv4} {second ipv4} {ipv6}",
        "kernel: scsi: wwpn: 0x{wwn} node_guid: 0x{guid} target iqn.{iscsi}",
        "kubelet: pod{pod} cri-containerd-{container}.scope MIG-{mig uuid}",
        "agent: mail {mail} {hugging face} {github} {github fine} {gitlab} {ngc}",
        "agent: {openai} {slack} {aws} {jwt} Authorization: Bearer {bearer}",
        "agent: proxy http://{login}:{proxy password}@{peer}:3128/ Service Tag: {service tag}",
        "agent: Serial Number: {chassis serial} machine_id={machine id} root=UUID={root uuid}",
    )
)


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The mismatch host with every secret in its journal, its NVML dump, its files and its errors."""
    original = read_bundle(HOSTS / "snap-open-1")
    blobs = dict(original.blobs)
    items = []
    for item in original.meta.items:
        if item.key in ("command:journalctl-k-b-0", "command:dmesg") and item.path:
            blobs[item.path] += JOURNAL.encode()
        items.append(item)
    more = {
        "file:/proc/sys/kernel/hostname": f"{S['host']}\n",
        "file:/etc/machine-id": f"{S['machine id']}\n",
        "file:/sys/class/dmi/id/product_serial": f"{S['chassis serial']}\n",
    }
    items = [i for i in items if i.key not in more]
    for key, text in more.items():
        path = "files" + key.removeprefix("file:")
        blobs[path] = text.encode()
        items.append(Item(key=key, status="ok", path=path, bytes=len(text)))
    items.append(Item(key="env:HF_TOKEN", status="ok", value=S["hugging face"]))
    items = [i for i in items if i.key != "env:LD_LIBRARY_PATH"]
    items.append(Item(key="env:LD_LIBRARY_PATH", status="ok", value=f"/home/{S['second user']}/lib"))
    items.append(
        Item(key="file:/x", status="error", detail=f"cannot reach {S['peer']} as {S['user']}: {JOURNAL}")
    )
    nvml = next(i for i in items if i.key == "nvml")
    document = json.loads(blobs[nvml.path])
    document.setdefault("gpus", [{}])
    for gpu in document["gpus"][:1] or [document]:
        gpu |= {"uuid": f"GPU-{S['gpu uuid']}", "serial": S["gpu serial"], "board_serial": S["board serial"]}
    blobs[nvml.path] = json.dumps(document).encode()
    meta = msgspec.structs.replace(original.meta, items=tuple(items), boot_id=S["boot id"])
    place = tmp_path_factory.mktemp("planted") / "bundle"
    write_bundle(Evidence(meta, blobs), place)
    return place


def written(bundle, form, capfdbinary, *options):
    code = main(["check", "--from", str(bundle), "--format", form, "-v", *options])
    return code, capfdbinary.readouterr().out.decode()


def found_in(text):
    return [name for name, secret in SECRETS.items() if secret.lower() in text.lower()]


def test_there_are_forty():
    assert len(set(SECRETS.values())) == 40


@pytest.mark.parametrize("form", FORMS)
def test_none_is_in_a_redacted_form(planted, form, capfdbinary):
    plain_code, plain = written(planted, form, capfdbinary)
    code, text = written(planted, form, capfdbinary, "--redact")
    assert found_in(text) == []
    assert code == plain_code == 1
    if form not in ("prometheus", "ansible-facts", "nhc"):  # ids and counts: nothing of a log reaches them
        assert found_in(plain), "the unredacted answer holds none: this form is not tested"


def test_the_verdict_is_the_same(planted, capfdbinary):
    _, plain = written(planted, "json", capfdbinary)
    _, redacted = written(planted, "json", capfdbinary, "--redact")
    plain, redacted = json.loads(plain), json.loads(redacted)
    assert redacted["verdict"] == plain["verdict"]
    assert [c["id"] for c in redacted["causes"]] == [c["id"] for c in plain["causes"]]
    assert [(f["id"], f["status"]) for f in redacted["findings"]] == [
        (f["id"], f["status"]) for f in plain["findings"]
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_saved_answer_is_redacted_too(planted, form, capfdbinary, tmp_path):
    saved = tmp_path / "check.json"
    main(["check", "--from", str(planted), "--json", "-o", str(saved)])
    assert main(["report", str(saved), "--format", form, "-v", "--redact"]) == 0
    assert found_in(capfdbinary.readouterr().out.decode()) == []


@pytest.mark.parametrize(
    ("words", "redacted"),
    [
        ("in this boot `ledger-trainer` was killed 2 times, `ledger-io` was killed", 2),
        ("in this boot `python3` was killed", 0),
        ("used by /srv/ledger/bin/ledger-trainer (pid 7), ledger-io (pid 81), python3 (pid 9)", 2),
        ("used by a process (pid 7)", 0),
        ("`ledger-trainer` (pid 7) holds /var/lib/dpkg/lock", 1),
        ("`ledger-trainer` holds /var/lib/dpkg/lock", 1),
        ('{"process":"ledger-trainer","constraint":""}', 1),
        ('{"pid":7,"name":"ledger-trainer","memory_bytes":null}', 1),
        ('{"name":"nvidia_uvm","pid":7}', 0),
    ],
)
def test_names_of_processes_in_the_words_of_answers_and_facts(words, redacted):
    text = redact_text(words)
    assert "ledger" not in text
    assert text.count("process-") == redacted
    assert redacted or text == words

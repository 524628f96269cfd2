"""Pasted text as evidence: what is recognised, what is tolerated around it, what stays out."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.core.evidence import Evidence
from doctor.errors import EvidenceError
from doctor.evidence.foreign import read_foreign
from doctor.evidence.foreign.plaintext import clean_lines

DATA = Path(__file__).parents[1] / "data"
FOREIGN = DATA / "foreign"
TABLE = (FOREIGN / "nvidia-smi.txt").read_text()
DMESG = (FOREIGN / "dmesg.txt").read_text()
LSPCI = (FOREIGN / "lspci-nnk.txt").read_text()
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
	<driver_version>580.95.05</driver_version>
	<gpu id="00000000:41:00.0">
	</gpu>
</nvidia_smi_log>"""


def paste(text: str) -> Evidence:
    return read_foreign(text.encode())


def keys(evidence: Evidence) -> list[str]:
    return [item.key for item in evidence.meta.items]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (FOREIGN / "collect-env-vllm.txt", "command:collect-env"),
        (FOREIGN / "collect-env-torch.txt", "command:collect-env"),
        (FOREIGN / "nvidia-smi.txt", "command:nvidia-smi"),
        (DATA / "h200" / "nvidia-smi.txt", "command:nvidia-smi"),
        (DATA / "h200" / "nvidia-smi-q.txt", "command:nvidia-smi-q"),
        (FOREIGN / "dkms-status.txt", "command:dkms-status"),
        (FOREIGN / "lspci-nnk.txt", "command:lspci-nnk"),
        (FOREIGN / "dmesg.txt", "command:dmesg"),
        (DATA / "h200" / "version", "file:/proc/driver/nvidia/version"),
        (DATA / "h200" / "os-release", "file:/etc/os-release"),
        (DATA / "h200" / "uname.txt", "command:uname-a"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_one_tool_alone(path: Path, key: str):
    found = read_foreign(path)
    assert keys(found) == [key]
    assert found.meta.root is None
    body, whole = found.read(key).text.split(), path.read_text().split()
    assert body == whole[len(whole) - len(body) :]
    assert len(body) > len(whole) * 0.9


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (XML, "command:nvidia-smi-q-x"),
        ("SecureBoot enabled\n", "command:mokutil-sb-state"),
        ("nvidia, 570.124.06, 6.8.0-58-generic, x86_64: installed\n", "command:dkms-status"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "command:nvidia-smi"),
        ("NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus.\n", "command:dmesg"),
        ("[Mon Mar  2 11:00:00 2026] NVRM: loading NVIDIA UNIX\n", "command:dmesg"),
        ("2026-03-02T11:00:00.1+01:00 box kernel: NVRM: loading\n", "command:journalctl-k-b-0"),
        ("3月 02 11:00:00 box kernel: NVRM: loading\n", "command:journalctl-k-b-0"),
        ("[Mar 2 11:00] NVRM: loading\n[  +0.000005] nvidia 0000:41:00.0: x\n", "command:dmesg"),
        ("[Mar02 11:00] NVRM: loading\n", "command:dmesg"),
        ("[   12.500000 <    0.000004>] NVRM: loading\n", "command:dmesg"),
        ("modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.8.0\n", "command:dmesg"),
        (
            "GPU 0: NVIDIA H100 (UUID: GPU-5d1b)\n  MIG 1g.10gb     Device  0: (UUID: MIG-0f3c)\n",
            "command:nvidia-smi-L",
        ),
        (
            "filename:       /lib/modules/6.8.0/updates/dkms/nvidia.ko\nversion:        580.95.05\n",
            "command:modinfo-_lib_modules_6.8.0_updates_dkms_nvidia.ko",
        ),
    ],
    ids=lambda value: value[:30],
)
def test_short_forms(text: str, key: str):
    found = paste(text)
    assert keys(found) == [key]
    assert found.read(key).text.strip() == text.strip()


def test_an_issue_text_gives_each_tool_its_item():
    found = read_foreign(FOREIGN / "issue.md")
    assert set(keys(found)) == {
        "command:collect-env",
        "command:nvidia-smi",
        "command:dmesg",
        "command:lspci-nnk",
        "command:dkms-status",
        "command:uname-a",
    }
    assert found.command("dmesg").text == DMESG
    assert found.command("nvidia-smi").text.splitlines() == [
        "Failed to initialize NVML: Driver/library version mismatch",
        "NVML library version: 580.95",
    ]
    assert "changed" not in "".join(found.read(key).text for key in keys(found))


def quoted(text: str) -> str:
    return "".join(f"> {line}\n" for line in text.splitlines())


def fenced(text: str) -> str:
    return f"Look:\n\n```console\n{text}```\n\nThanks\n"


def coloured(text: str) -> str:
    return "\x1b]0;me@box\x07" + text.replace("NVIDIA", "\x1b[1;32mNVIDIA\x1b[0m").replace("[", "[", 1)


def indented(text: str) -> str:
    return "Look:\n\n" + "".join(f"    {line}\n" for line in text.splitlines()) + "\nThanks\n"


def prompted(text: str) -> str:
    return f"(base) me@box:~/x$ ls\nfile\n[root@box ~]# something\n{text}me@box:~$ exit\n"


def windows(text: str) -> str:
    return "\ufeff" + text.replace("\n", "\r\n")


@pytest.mark.parametrize("around", [quoted, fenced, coloured, indented, prompted, windows])
@pytest.mark.parametrize(
    ("text", "key"),
    [(TABLE, "command:nvidia-smi"), (LSPCI, "command:lspci-nnk"), (DMESG, "command:dmesg")],
    ids=["table", "lspci", "dmesg"],
)
def test_what_forums_and_terminals_put_around_is_taken_off(around, text: str, key: str):
    found = paste(around(text))
    assert keys(found) == [key]
    start = text.index("| NVIDIA-SMI") if key == "command:nvidia-smi" else 0
    assert found.read(key).text.split() == text[start:].split()


def test_utf_16_is_read():
    assert keys(read_foreign(TABLE.encode("utf-16"))) == ["command:nvidia-smi"]


def test_older_boots_of_a_journal_are_history():
    found = read_foreign(FOREIGN / "journal.txt")
    assert "79," in found.file("/var/log/kern.log").text
    assert "79," not in found.command("journalctl", "-k", "-b", "0").text
    assert "31," in found.command("journalctl", "-k", "-b", "0").text


def test_a_fall_of_the_stamp_begins_a_boot():
    text = "[  100.000001] NVRM: Xid (PCI:0000:41:00): 79, x\n[    1.000001] NVRM: loading NVIDIA UNIX\n"
    assert paste(text).command("dmesg").text.startswith("[    1.000001]")
    assert "79," in paste(text).file("/var/log/kern.log").text


LOAD = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15"
LOST = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."
REFUSED = "NVRM: The NVIDIA GPU 0000:42:00.0 (PCI ID: 10de:1db5)"


@pytest.mark.parametrize(
    "stamp",
    [
        "Nov 28 12:00:01 box kernel: ",
        "2024-11-28T12:00:01.123456+00:00 box kernel: ",
        "[Thu Nov 28 12:00:01 2024] ",
        "",
    ],
    ids=["syslog", "iso", "dmesg-T", "none"],
)
@pytest.mark.parametrize("first", [[LOAD, LOST], [LOST]], ids=["from-load", "from-event"])
def test_without_seconds_a_load_begins_a_boot(stamp: str, first: list[str]):
    """What the driver says of its GPUs while it loads comes before its `loading` line."""
    found = paste("".join(f"{stamp}{line}\n" for line in [*first, REFUSED, LOAD]))
    now = found.command("dmesg") if stamp[:1] in ("", "[") else found.command("journalctl", "-k", "-b", "0")
    assert now.text.splitlines() == [f"{stamp}{REFUSED}", f"{stamp}{LOAD}"]
    assert found.file("/var/log/kern.log").text.splitlines() == [f"{stamp}{line}" for line in first]


def test_events_behind_the_last_load_are_now():
    found = paste(f"{LOAD}\n{REFUSED}\n{LOST}\n")
    assert keys(found) == ["command:dmesg"]


@pytest.mark.parametrize(
    "line",
    [
        "modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
        "insmod: ERROR: could not insert module nvidia.ko: Key was rejected by service",
    ],
)
def test_the_answer_to_a_load_stands_with_the_kernels_words(line: str):
    found = paste(
        f"me@box:~$ sudo modprobe nvidia\n{line}\nme@box:~$ mokutil --sb-state\nSecureBoot enabled\n"
    )
    assert found.command("dmesg").text == f"{line}\n"
    assert found.command("mokutil", "--sb-state").has_data


def test_a_load_of_something_else_is_left_alone():
    with pytest.raises(EvidenceError):
        paste("modprobe: ERROR: could not insert 'vboxdrv': Key was rejected by service\n")


def test_runs_of_nvidia_smi_are_kept_one_by_one():
    found = paste(f"{TABLE}\nthen\n\nNo devices were found\n\nand\n\n{XML}\n")
    runs = list(found.commands("nvidia-smi"))
    assert [r.item.detail for r in runs] == [None, "run again", "run again"]
    assert runs[1].text == "No devices were found\n"
    assert runs[2].item.argv == ("nvidia-smi", "-q", "-x")


@pytest.mark.parametrize(
    "typed",
    [
        "$ docker run --rm --gpus all ubuntu nvidia-smi",
        "$ sudo podman exec -it box nvidia-smi",
        "root@node:~# kubectl exec pod-1 -- nvidia-smi",
        "# docker run --gpus all image nvidia-smi",
        "$ apptainer exec --nv image.sif nvidia-smi",
    ],
)
def test_what_a_container_printed_is_not_the_hosts(typed: str):
    failure = "Failed to initialize NVML: Unknown Error"
    found = paste(f"```\n$ nvidia-smi\n{TABLE}{typed}\n{failure}\n```\nAgain on the host:\n```\n{TABLE}```\n")
    assert found.scopes == ("host", "container:pasted")
    assert [r.text.strip() for r in found.only("container:pasted").commands("nvidia-smi")] == [failure]
    assert len(list(found.commands("nvidia-smi"))) == 2


@pytest.mark.parametrize("typed", ["docker ps", "docker info | grep -i runtime", "nvidia-smi"])
def test_other_commands_are_the_hosts(typed: str):
    assert paste(f"```\n$ {typed}\n```\n```\n{TABLE}```\n").scopes == ("host",)


def test_a_typed_command_says_which_boot():
    found = paste("me@box:~$ journalctl -k -b -1\nMar 02 11:00:00 box kernel: NVRM: loading NVIDIA\n")
    assert keys(found) == ["command:journalctl-k-b-1"]


def test_lines_that_somebody_chose_are_no_whole_log():
    assert read_foreign(FOREIGN / "dmesg.txt").item("command:dmesg").status == "truncated"


def test_logs_in_parts_belong_together_and_other_answers_count_once():
    dkms = "nvidia, 570.124.06, 6.8.0-58-generic, x86_64: installed\n"
    text = (
        "[    1.000001] NVRM: one\n\nthen\n\n[    2.000001] NVRM: two\n\n"
        f"```\n{dkms}```\n```\n{dkms.replace('570.', '999.')}```\n"
    )
    found = paste(text)
    assert found.command("dmesg").text == "[    1.000001] NVRM: one\n[    2.000001] NVRM: two\n"
    assert found.command("dkms", "status").text == dkms


def test_prose_is_left_alone():
    with pytest.raises(EvidenceError):
        paste("My GPU is slow. It costs $100 a month.\n# A heading\n> a quotation\n| a | table |\n")


@pytest.mark.parametrize(
    "junk",
    ["\x1b[" * 50_000, "$" * 100_000, ">" * 100_000, "#" * 9_000 + "\n", "[" * 100_000, "\x1b]" * 50_000],
)
def test_junk_costs_no_time(junk: str):
    import time

    start = time.process_time()
    list(clean_lines((junk + "\n").encode() * 5))
    with pytest.raises(EvidenceError):
        paste(junk)
    assert time.process_time() - start < 1


def test_a_long_paste_is_cut_and_says_so():
    line = "[    1.000001] NVRM: a line of forty characters or so\n"
    found = paste(line * 200_000)
    assert found.item("report:paste").detail == "only its first part was read"

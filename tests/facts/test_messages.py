"""Kernel log text: prefixes, joined lines, kinds, counting, and two logs of one boot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doctor.core.host import Absent, KernelMessage, Known
from doctor.facts.bootlogs import merge, read_logs
from doctor.facts.messages import count_sxids, count_xids, read_messages
from tests.facts.evidence import evidence

XID = "NVRM: Xid (PCI:0000:04:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
JOURNAL, JOURNAL_BEFORE = ("journalctl", "-k", "-b", "0"), ("journalctl", "-k", "-b", "-1")
BOOT = "[    0.000000] Linux version 6.8.0 (b@x) (gcc 13) #1\n"

MISMATCH = [
    "NVRM: API mismatch: the client 'nvidia-smi' (pid 90112)",
    "NVRM: has the version 580.173.02, but this kernel module has",
    "NVRM: the version 580.159.03.  Please make sure that this",
    "NVRM: kernel module and all NVIDIA driver components",
    "NVRM: have the same version.",
]
JOINED = "NVRM: " + " ".join(line.removeprefix("NVRM: ") for line in MISMATCH)


@pytest.mark.parametrize(
    ("line", "seconds"),
    [
        (f"[    5.544123] {XID}", 5.544123),
        (f"[521526.65] {XID}", 521526.65),
        (f"<4>[    5.544123] {XID}", 5.544123),
        (f"kern  :warn  : [    5.544123] {XID}", 5.544123),
        (f"[    5.544123][  T812] {XID}", 5.544123),
        (f"[Mon Nov 30 08:01:41 2026] {XID}", None),
        (f"Sep 13 12:22:48 host kernel: {XID}", None),
        (f"Sep 13 12:22:48 host kernel: [521526.650000] {XID}", 521526.65),
        (f"2025-07-13T05:57:55.110000+08:00 host kernel: {XID}", None),
        (f"7月 13 05:57:55 host kernel: {XID}", None),
        (f"ноя 11 05:57:55 host kernel: {XID}", None),
        (f"août 25 05:57:55 host kernel: {XID}", None),
        (XID, None),
    ],
)
def test_prefixes(line, seconds):
    (message,) = read_messages(f"[ 1.0] usb 1-1: new device\n{line}\n")
    assert message == KernelMessage(kind="xid", text=XID, gpu="0000:04:00.0", seconds=seconds)


@pytest.mark.parametrize(
    "line",
    [
        "Nov 28 06:41:02 host sudo[8]: me : COMMAND=/usr/bin/grep NVRM: Xid (PCI:0000:04:00): 79 x",
        "Nov 28 06:41:02 host nvidia-persistenced[12]: Started (12)",
        "Binary file /var/log/kern.log matches",
        "[    0.2] Bluetooth: hci0: Secure boot is enabled",
    ],
)
def test_lines_of_others_are_left_out(line):
    assert read_messages(line + "\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"[  12.000001] {line}" for line in MISMATCH),
        f"[  12.000001] {MISMATCH[0]}\n" + "\n".join(f"               {line}" for line in MISMATCH[1:]),
        "\n".join(f"Nov 30 08:01:41 host kernel: {line}" for line in MISMATCH),
        "\n".join(MISMATCH),
        "\n".join(f"[  12.000001] {line}\n[  12.000002] audit: noise" for line in MISMATCH),
    ],
    ids=["dmesg", "blank continuation", "journal", "bare", "other lines between"],
)
def test_lines_that_belong_together_are_joined(text):
    (message,) = read_messages(text)
    assert (message.kind, message.text) == ("api_mismatch", JOINED)


def test_two_mismatches_stay_two():
    assert [m.text for m in read_messages("\n".join(MISMATCH * 2))] == [JOINED, JOINED]


GROUPS = [
    (
        "open_modules_required",
        "0000:01:00.0",
        [
            "The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:2b85)",
            "installed in this system requires use of the NVIDIA open kernel modules.",
        ],
    ),
    (
        "unsupported_gpu",
        "0000:3b:00.0",
        [
            "The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:1bb3)",
            "installed in this system is not supported by open",
            "nvidia.ko because it does not include the required GPU",
            "System Processor (GSP).",
            "Please see the 'Open Linux Kernel Modules' and 'GSP",
            "Firmware' sections in the driver README, available on",
            "the Linux graphics driver download page at",
            "www.nvidia.com.",
        ],
    ),
    (
        "legacy_gpu",
        "",
        [
            "The NVIDIA GeForce GTX 1050 GPU installed in this system is",
            " supported through the NVIDIA 580.xx Legacy drivers. Please",
            " visit http://www.nvidia.com/object/unix.html for more",
            " information.  The 595.71.05 NVIDIA driver will ignore",
            " this GPU.  Continuing probe...",
        ],
    ),
    (
        "nouveau",
        "",
        [
            "The NVIDIA probe routine was not called for 3 device(s).",
            "This can occur when a driver such as: ",
            "nouveau, rivafb, nvidiafb or rivatv ",
            "was loaded and obtained ownership of the NVIDIA device(s).",
            "Try unloading the conflicting kernel module (and/or",
            "reconfigure your kernel without the conflicting",
            "driver(s)), then try loading the NVIDIA kernel module",
            "again.",
        ],
    ),
    (
        "fallen_off_bus",
        "0000:01:00.0",
        [
            "The NVIDIA GPU 0000:01:00.0",
            "(PCI ID: 10de:25a0) installed in this system has",
            "fallen off the bus and is not responding to commands.",
        ],
    ),
    (
        "bar",
        "0000:14:00.0",
        [
            "This PCI I/O region assigned to your NVIDIA device is invalid:",
            "BAR1 is 0M @ 0x0 (PCI:0000:14:00.0)",
        ],
    ),
]


@pytest.mark.parametrize(("kind", "gpu", "lines"), GROUPS, ids=[g[0] for g in GROUPS])
def test_groups_of_lines(kind, gpu, lines):
    tail = "NVRM: GPU 0000:99:00.0: RmInitAdapter failed! (0x22:0x56:884)"
    text = "\n".join([f"[ 3.1] NVRM: {line}" for line in lines] + [f"[ 3.2] {tail}"])
    first, last = read_messages(text)
    assert (first.kind, first.gpu) == (kind, gpu)
    assert first.text == "NVRM: " + " ".join(line.strip() for line in lines)
    assert (last.kind, last.gpu, last.text) == ("init_failed", "0000:99:00.0", tail)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)", "init_failed"),
        ("NVRM: GPU 0000:01:00.0: rm_init_adapter failed, device minor number 0", "init_failed"),
        ("NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)", "gsp"),
        ("NVRM: RmInitAdapter: Cannot initialize GSP firmware RM", "gsp"),
        ("NVRM: _kgspBootGspRm: unexpected WPR2 already up", "gsp"),
        ("nvidia 0000:17:00.0: Direct firmware load for nvidia/580.95.05/gsp_ga10x.bin failed with error -2",
         "firmware_missing"),
        ("nvidia 0000:17:00.0: firmware: failed to load nvidia/535.54/gsp_tu10x.bin (-2)",
         "firmware_missing"),
        ("NVRM: GPU 0000:17:00.0: RmFetchGspRmImages: No firmware image found", "firmware_missing"),
        ("nvidia 0000:17:00.0: Direct firmware load for nvidia/580.95.05/gsp_ga10x.bin failed with error -13",
         "gsp"),
        ("nouveau 0000:01:00.0: Direct firmware load for nvidia/tu102/gsp/gsp.bin failed with error -2",
         "nouveau"),
        ("tegra-xusb 1.usb: Direct firmware load for nvidia/tegra210/xusb.bin failed with error -2", "other"),
        ("modprobe: ERROR: could not insert 'nvidia': Key was rejected by service",
         "module_signature_rejected"),
        ("NVRM: No NVIDIA GPU found.", "no_devices_probed"),
        ("NVRM: No NVIDIA devices probed.", "no_devices_probed"),
        ("NVRM: No NVIDIA graphics adapter probed!", "no_devices_probed"),
        ("NVRM: None of the NVIDIA devices were initialized.", "no_devices_probed"),
        ("nvidia: probe of 0000:14:00.0 failed with error -1", "probe_failed"),
        ("nvidia 0000:14:00.0: probe with driver nvidia failed with error -1", "probe_failed"),
        ("NVRM: The NVIDIA probe routine failed for 1 device(s).", "probe_failed"),
        ("nouveau 0000:01:00.0: NVIDIA TU104 (164000a1)", "nouveau"),
        ("nvidia: module verification failed: signature and/or required key missing - tainting kernel",
         "module_verification"),
        ("Loading of module with unavailable key is rejected", "module_signature_rejected"),
        ("Loading of unsigned module is rejected", "module_signature_rejected"),
        ("PKCS#7 signature not signed with a trusted key", "module_signature_rejected"),
        ("Lockdown: modprobe: unsigned module loading is restricted; see man kernel_lockdown.7", "lockdown"),
        ("Kernel is locked down from EFI Secure Boot mode; see man kernel_lockdown.7", "lockdown"),
        ("nvidia_modeset: Unknown symbol nvidia_register_module (err -2)", "module_symbol"),
        ("nvidia: version magic '6.8.0-45-generic SMP' should be '6.8.0-124-generic SMP'", "module_symbol"),
        ("nvidia-uvm: Loaded the UVM driver, major device number 508.", "uvm"),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.173.02  Thu Jul 23", "loading"),
        ("pci 0000:41:00.0: BAR 1 [mem size 0x1000000000 64bit pref]: can't assign; no space", "bar"),
        ("pci 0000:41:00.0: BAR 1: failed to assign [mem size 0x1000000000 64bit pref]", "bar"),
        ("nvidia 0000:41:00.0: enabling device (0000 -> 0002)", "other"),
        ("PM: suspend exit", "sleep"),
        ("PM: hibernation: hibernation exit", "sleep"),
    ],
)  # fmt: skip
def test_kinds(line, kind):
    (message,) = read_messages(f"[   12.345678] {line}\n")
    assert (message.kind, message.text) == (kind, line)


@pytest.mark.parametrize(
    ("line", "code", "gpu"),
    [
        ("NVRM: Xid (PCI:0000:04:00): 79, GPU has fallen off the bus.", 79, "0000:04:00.0"),
        (XID, 79, "0000:04:00.0"),
        ("NVRM: Xid (PCI:0000:0a:00): 62, pid=10839, 0cb5(2d50) 00000000 00000000", 62, "0000:0a:00.0"),
        ("NVRM: Xid (PCI:0000:01:00): 56, CMDre 00000000 00000001", 56, "0000:01:00.0"),
        (
            "NVRM: Xid (PCI:0000:01:00): 119, pid=1, name=nvidia-smi, Timeout after 6s of waiting",
            119,
            "0000:01:00.0",
        ),
        (
            "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1",
            154,
            "0000:01:00.0",
        ),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00.0"),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x1)", 149, "0018:01:00.0"),
        ("NVRM: Xid (PCI:0000:10:1c): 63, pid=2, Row Remapper: New row marked", 63, "0000:10:1c.0"),
        ("NVRM: Xid (PCI:0000:01:00): 999, a code of tomorrow", 999, "0000:01:00.0"),
    ],
)
def test_xid_forms(line, code, gpu):
    (xid,) = count_xids(read_messages(f"[  1.0] {line}\n[  2.0] {line}\n"))
    assert (xid.code, xid.gpu, xid.count, xid.first_text) == (code, gpu, 2, line)


def test_xids_count_by_code_and_gpu():
    text = "".join(
        f"[ {n}.0] NVRM: Xid (PCI:0000:{gpu}:00): {code}, x\n"
        for n, (gpu, code) in enumerate([("01", 79), ("02", 79), ("01", 13), ("01", 79)])
    )
    assert [(x.code, x.gpu, x.count) for x in count_xids(read_messages(text))] == [
        (79, "0000:01:00.0", 2),
        (79, "0000:02:00.0", 1),
        (13, "0000:01:00.0", 1),
    ]


# --- boots


def test_dmesg_and_journal_of_one_boot_count_an_event_once():
    dmesg = f"{BOOT}[    5.5] {XID}\n[    6.5] {XID}\n"
    lines = ("Linux version 6.8.0", XID, XID)
    journal = "".join(f"Nov 30 08:01:41 h kernel: {line}\n" for line in lines)
    (log,) = read_logs(evidence(commands={("dmesg",): (0, dmesg), JOURNAL: (0, journal)})).value
    assert [(x.code, x.count) for x in log.xids] == [(79, 2)]
    assert [m.seconds for m in log.messages] == [5.5, 6.5]
    assert log.is_complete


def test_a_wrapped_ring_is_filled_from_the_journal():
    journal = (
        "Nov 30 h kernel: Linux version 6.8.0\n"
        "Nov 30 h kernel: NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05\n"
        f"Nov 30 h kernel: {XID}\n"
    )
    dmesg = f"[ 999.5] {XID}\n[ 999.6] nvidia-uvm: Unloaded the UVM driver.\n"
    (log,) = read_logs(evidence(commands={("dmesg",): (0, dmesg), JOURNAL: (0, journal)})).value
    assert [m.kind for m in log.messages] == ["loading", "xid", "uvm"]
    assert log.is_complete
    (alone,) = read_logs(evidence(commands={("dmesg",): (0, dmesg)})).value
    assert not alone.is_complete


def test_the_boot_before_is_a_log_of_its_own():
    built = evidence(commands={("dmesg",): (0, BOOT), JOURNAL_BEFORE: (0, f"Nov 29 h kernel: {XID}\n")})
    now, before = read_logs(built).value
    assert (now.index, now.xids, before.index, before.xids[0].count) == (0, (), -1, 1)


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ({("dmesg",): (1, "", "dmesg: read kernel buffer failed: Operation not permitted\n")}, "denied"),
        ({JOURNAL: (1, "", "No journal files were opened due to insufficient permissions.\n")}, "denied"),
        ({JOURNAL: (0, "-- No entries --\n")}, "unreadable"),
        ({}, "not_collected"),
    ],
)
def test_no_log(commands, reason):
    fact = read_logs(evidence(commands=commands))
    assert isinstance(fact, Absent)
    assert fact.reason == reason


def test_no_boot_before_is_no_log():
    said = "Data from the specified boot (-1) is not available: No such boot ID in journal\n"
    fact = read_logs(evidence(commands={("dmesg",): (0, BOOT), JOURNAL_BEFORE: (1, said)}))
    assert isinstance(fact, Known)
    assert [log.index for log in fact.value] == [0]


LETTERS = st.lists(st.sampled_from("abcd"), max_size=12)


def messages(letters: list[str]) -> list[KernelMessage]:
    return [KernelMessage(kind="other", text=letter) for letter in letters]


@given(LETTERS, LETTERS)
def test_merging_takes_each_event_as_often_as_the_log_that_has_most(left, right):
    merged = [m.text for m in merge(messages(left), messages(right))]
    for letter in "abcd":
        assert merged.count(letter) == max(left.count(letter), right.count(letter))


@given(LETTERS, st.integers(0, 12))
def test_merging_with_its_own_end_gives_the_whole(letters, cut):
    assert [m.text for m in merge(messages(letters), messages(letters[cut:]))] == letters
    assert [m.text for m in merge(messages(letters[cut:]), messages(letters))] == letters


FORGED = "               NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus."


@pytest.mark.parametrize(
    "head",
    [
        "[   12.000001] a",
        "Nov 30 10:00:00 node kernel: a",
        "2026-11-30T10:00:00+00:00 node kernel: [   12.000001] a",
        "[   12.000001] NVRM: a[77]: segfault at 0 ip 0 sp 0 error 4 in a",
    ],
)
@pytest.mark.parametrize("stamp", ["", "[   12.000001] ", "kernel: "])
def test_the_name_of_a_program_is_no_message(head, stamp):
    """Any user can run a program whose file name holds a newline; the kernel prints the rest of it raw."""
    first = head.replace("] a", "] systemd[1]: started").replace("kernel: a", "kernel: started")
    forged = FORGED.replace("NVRM:", f"{stamp}NVRM:", 1)
    log = f"{first}\n{head}\n{forged}[77]: segfault at 0 ip 0 sp 0 error 4\n{first}\n"
    assert [m for m in read_messages(log) if m.kind in ("xid", "fallen_off_bus")] == []
    assert count_xids(read_messages(log)) == ()


# --- stamps of `dmesg -d` and `dmesg -H`


RELATIVE = [
    pytest.param("[Nov30 19:40] ", "[  +0.000005] ", None, id="-H"),
    pytest.param("[<    0.000000>] ", "[<    0.000005>] ", None, id="-d -T"),
    pytest.param("[  100.500000 <    0.000004>] ", "[  100.500005 <    0.000005>] ", 100.5, id="-d"),
    pytest.param("kern  :err   : [Nov30 19:40] ", "kern  :err   : [  +0.000005] ", None, id="-H -x"),
]


@pytest.mark.parametrize(("first", "next_one", "seconds"), RELATIVE)
def test_steps_instead_of_stamps(first, next_one, seconds):
    lines = [f"{first}{MISMATCH[0]}", *(f"{next_one}{line}" for line in MISMATCH[1:]), f"{next_one}{XID}"]
    messages = read_messages("\n".join(lines))
    assert [(m.kind, m.text) for m in messages] == [("api_mismatch", JOINED), ("xid", XID)]
    assert messages[0].seconds == seconds


def test_the_first_report_of_an_xid_keeps_its_time():
    (xid,) = count_xids(read_messages(f"[  7.25] {XID}\n[  9.5] {XID}\n"))
    assert (xid.count, xid.first_seconds) == (2, 7.25)
    (xid,) = count_xids(read_messages(f"{XID}\n"))
    assert xid.first_seconds is None


# --- NVSwitch


def test_sxids_count_by_code_switch_and_severity():
    switch = "nvidia-nvswitch0: SXid (PCI:0000:C1:00.0)"
    lines = [
        f"{switch}: 20034, Fatal, Link 30 LTSSM Fault Up",
        f"{switch}: 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
        f"{switch}: 20034, Data {{0x50610002, 0x10100030, 0x00000000}}",
        f"{switch}: 20034, Fatal, Link 31 LTSSM Fault Up",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress PRIV error (First)",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 99999, a form of tomorrow",
    ]
    messages = read_messages("".join(f"[ {n}.0] {line}\n" for n, line in enumerate(lines)))
    assert {m.kind for m in messages} == {"sxid"}
    assert [(x.code, x.switch, x.is_fatal, x.count) for x in count_sxids(messages)] == [
        (20034, "0000:c1:00.0", True, 2),
        (12028, "0000:05:00.0", False, 1),
        (99999, "0000:05:00.0", None, 1),
    ]
    assert count_sxids(messages)[0].first_text == lines[0]
    assert count_xids(messages) == ()


def test_a_boot_has_its_sxids():
    line = "[ 5.0] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"
    (log,) = read_logs(evidence(commands={("dmesg",): (0, f"{BOOT}{line}\n")})).value
    assert [(x.code, x.is_fatal) for x in log.sxids] == [(20034, True)]


# --- faults of the kernel inside the driver's modules ------------------------------------------------

RIP = "RIP: 0010:nvidia_vma_access+0x8b/0x2a0 [nvidia]"
STOPPED = ", stopped at nvidia_vma_access+0x8b/0x2a0 [nvidia]"
NULL = "BUG: kernel NULL pointer dereference, address: 0000000000000030"
OOPS = [NULL, "#PF: supervisor read access in kernel mode", "Oops: 0000 [#1] PREEMPT SMP NOPTI"]
ARM = [
    "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000030",
    "Internal error: Oops: 0000000096000004 [#1] SMP",
    "pc : nvidia_vma_access+0x8b/0x2a0 [nvidia]",
]


def kernel_lines(*lines):
    return "\n".join(f"[   61.{number:06d}] {line}" for number, line in enumerate(lines))


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([*OOPS, "CPU: 12 PID: 28651 Comm: python3.14 Tainted: G           OE", RIP], NULL + STOPPED),
        ([*OOPS[2:], RIP], OOPS[2] + STOPPED),
        (["kernel BUG at mm/slub.c:546!", RIP], "kernel BUG at mm/slub.c:546!" + STOPPED),
        (ARM, ARM[0] + STOPPED),
        (
            [*OOPS, RIP.replace("[nvidia]", "[nvidia_uvm]")],
            NULL + STOPPED.replace("[nvidia]", "[nvidia_uvm]"),
        ),
        ([*OOPS, RIP.replace("[nvidia]", "[nvidia 0a1b2c]")], NULL + STOPPED.replace("]", "").strip()),
    ],
)
def test_a_fault_of_the_kernel_in_the_driver(lines, text):
    found = [m for m in read_messages(kernel_lines(*lines)) if m.kind == "oops"]
    assert [m.text for m in found] == [text]


@pytest.mark.parametrize(
    "lines",
    [
        ["WARNING: CPU: 3 PID: 9 at nvidia/nv.c:1 nv_x+0x1/0x2 [nvidia]", RIP],
        ["watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python3:9]", RIP],
        [*OOPS, "RIP: 0010:__gup_longterm_locked+0x128/0x430", " nvidia_vma_access+0x8b/0x2a0 [nvidia]"],
        [*OOPS, RIP.replace("[nvidia]", "[nvidiafb]")],
        [*OOPS, "---[ end trace 0000000000000000 ]---", RIP],
        [*OOPS, *["Call Trace:"] * 80, RIP],
        [RIP],
        ["NVRM: Xid (PCI:0000:04:00): 31, pid=1, name=a, stopped at b, Ch 1"],
    ],
)
def test_no_fault_of_the_kernel_in_the_driver(lines):
    assert [m.text for m in read_messages(kernel_lines(*lines)) if m.kind == "oops"] == []

"""Facts of reports without `/sys` and `/lib/modules`: what stands in for them, and how far it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.core.host import Host, Known, known
from doctor.evidence.foreign import read_foreign
from doctor.facts.filelogs import xids_by_source
from doctor.facts.read import read_host
from tests.facts.evidence import evidence

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"
UNAME = ("uname", "-a")
MODINFO = ("modinfo", "nvidia", "|", "grep", "vermagic")
LSPCI = ("lspci", "-nnk")
LOADING = "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu Feb 22 01:44:30 UTC 2024"
XID = "NVRM: Xid (PCI:0000:41:00): 79, pid=1, GPU has fallen off the bus."
GPU = "41:00.0 3D controller [0302]: NVIDIA Corporation GA100 [10de:20f1] (rev a1)\n"
MAKE_LOG = "/var/lib/dkms/nvidia/550.54.14/{}/x86_64/log/make.log"


def report(name: str) -> Host:
    return read_host(read_foreign(FOREIGN / name))


def raw(fact: object) -> str | None:
    value = known(fact)
    return value.raw if value is not None else None


# --- whole reports ----------------------------------------------------------------------------------


def test_the_facts_of_a_mismatch():
    host = report("mismatch-2023.log")
    assert known(host.system.os).id == "ubuntu"
    assert known(host.system.os).version == "22.04"
    assert known(host.kernel.release) == "5.15.0-46-generic"
    assert known(host.kernel.secure_boot) == "disabled"
    assert [(d.address, d.device_id, d.driver) for d in host.gpus_on_bus] == [
        ("0000:41:00.0", "10de:20f1", "nvidia")
    ]
    assert (raw(host.driver.kernel_version), known(host.driver.flavour)) == ("515.65.01", "proprietary")
    assert raw(host.driver.userspace_version) == "525.125.06"
    assert known(host.driver.smi).error.startswith(
        "Failed to initialize NVML: Driver/library version mismatch"
    )
    assert known(host.kernel.compiler_on_path) == "gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)"
    assert known(host.system.virtualisation).kind == "bare_metal"


def test_history_is_not_now_and_an_event_in_four_places_counts_once():
    logs = {log.index: log for log in report("mismatch-2023.log").kernel.logs.value}
    assert sorted(logs) == [-1, 0]
    assert [m.kind for m in logs[0].messages].count("api_mismatch") == 1
    assert logs[0].xids == ()
    assert [(x.code, x.gpu, x.count) for x in logs[-1].xids] == [(79, "0000:41:00.0", 1)]
    by_source = xids_by_source(read_foreign(FOREIGN / "mismatch-2023.log"))
    assert {source: xids[0].count for source, xids in by_source.items()} == {
        "/var/log/kern.log": 1,
        "journalctl -k -b -1": 1,
    }


def test_ids_and_drivers_of_old_reports_come_from_two_listings():
    host = report("working-2013.log")
    assert [(d.address, d.device_id, d.driver) for d in host.gpus_on_bus] == [
        ("0000:02:00.0", "10de:1180", "nvidia")
    ]
    assert [log.index for log in host.kernel.logs.value] == [0, -1]
    assert host.kernel.logs.value[1].xids[0].code == 8
    assert known(host.driver.smi).gpus[0].memory_bytes is None  # `Memory Usage` had another label then


def test_what_safe_mode_leaves_out_was_not_asked_for():
    host = report("safe-mode-2026.log")
    assert host.driver.smi.reason == "not_collected"
    assert known(host.kernel.secure_boot) == "enabled"
    assert known(host.driver.flavour) == "open"
    assert raw(host.driver.userspace_version) == "580.95.05"
    running = host.kernel.installed.value[-1]
    assert (running.release, raw_version(running)) == ("5.14.0-570.el9.x86_64", "580.95.05")


def raw_version(kernel) -> str | None:
    version = kernel.nvidia_modules.value[0].version
    return version.raw if version else None


# --- modules on disk --------------------------------------------------------------------------------


def installed(
    vermagic: str, modules: str | None, *, logs: dict[str, str] | None = None, journal: str = ""
) -> dict[str, object]:
    listing = GPU + (f"\tKernel modules: {modules}\n" if modules else "")
    host = read_host(
        evidence(
            files=dict(logs or {}),
            commands={
                UNAME: (0, "Linux box 6.8.0-60-generic #63 x86_64 GNU/Linux"),
                MODINFO: (0, f"vermagic:       {vermagic} SMP mod_unload\n" if vermagic else ""),
                LSPCI: (0, listing),
                ("journalctl", "-k", "-b", "-1"): (0, journal),
            },
        )
    )
    kernels = host.kernel.installed
    return {
        k.release: [f.version.raw if f.version else "" for f in k.nvidia_modules.value]
        if isinstance(k.nvidia_modules, Known)
        else k.nvidia_modules.reason
        for k in kernels.value
    }


BUILT = {MAKE_LOG.format("6.8.0-58-generic"): "DKMS make.log for nvidia\n  LD [M] nvidia.ko\n"}
FAILED = {
    MAKE_LOG.format(
        "6.8.0-58-generic"
    ): "nv.c:1:2: error: no member\nmake: *** [Makefile:82: modules] Error 2\n"
}
HERE = {MAKE_LOG.format("6.8.0-60-generic"): "DKMS make.log for nvidia\n"}


@pytest.mark.parametrize(
    ("vermagic", "modules", "logs", "journal", "expected"),
    [
        ("6.8.0-60-generic", None, {}, "", {"6.8.0-60-generic": [""]}),
        ("", "nvidiafb, nouveau, nvidia_drm, nvidia", {}, "", {"6.8.0-60-generic": [""]}),
        ("", "nvidia_352", {}, "", {"6.8.0-60-generic": [""]}),
        ("", "nvidiafb, nouveau", {}, "", {"6.8.0-60-generic": []}),
        ("", None, {}, "", {"6.8.0-60-generic": "not_collected"}),
        ("", "nouveau", BUILT, "", {"6.8.0-58-generic": ["550.54.14"], "6.8.0-60-generic": []}),
        ("", "nouveau", FAILED, "", {"6.8.0-60-generic": []}),
        ("6.8.0-60-generic", None, HERE, "", {"6.8.0-60-generic": ["550.54.14"]}),
        (
            "",
            "nouveau",
            {},
            f"Mar 02 11:00:00 box kernel: {LOADING}\n",
            {"the kernel of an earlier boot": "not_collected", "6.8.0-60-generic": []},
        ),
    ],
    ids=[
        "modinfo",
        "alias",
        "old name",
        "none",
        "no word",
        "other kernel",
        "failed build",
        "version",
        "was loaded",
    ],
)
def test_modules_on_disk(vermagic, modules, logs, journal, expected):
    assert installed(vermagic, modules, logs=logs, journal=journal) == expected


def test_build_logs_alone_tell_what_dkms_built():
    broken = {MAKE_LOG.format("6.8.0-61-generic"): next(iter(FAILED.values()))}
    builds = read_host(evidence(files=BUILT | broken)).kernel.dkms.value
    assert [(b.kernel, b.state, bool(b.failure)) for b in builds] == [
        ("6.8.0-58-generic", "built", False),
        ("6.8.0-61-generic", "failed", True),
    ]


def test_no_build_log_and_no_user_space_means_that_nothing_was_registered():
    searched = {("find", "/var/lib/dkms/nvidia", "-name", "make.log"): (0, "")}
    assert read_host(evidence(commands=searched)).kernel.dkms.value == ()
    profile = {"/usr/share/nvidia/nvidia-application-profiles-550.54.14-rc": {}}
    assert read_host(evidence(commands=searched, stats=profile)).kernel.dkms.reason == "not_collected"


# --- user space and loaded module -------------------------------------------------------------------


def profiles(*versions: str) -> dict[str, dict[str, object]]:
    return {f"/usr/share/nvidia/nvidia-application-profiles-{v}-rc": {} for v in versions}


def test_user_space_by_the_profile_it_installs():
    assert raw(read_host(evidence(stats=profiles("550.54.14"))).driver.userspace_version) == "550.54.14"
    assert known(read_host(evidence(stats=profiles("550.54.14", "535.1"))).driver.userspace_version) is None
    assert known(read_host(evidence(stats=profiles("x"))).driver.userspace_version) is None


STAMP = "[    6.1{}] "


@pytest.mark.parametrize(
    ("messages", "version"),
    [
        ([LOADING], "550.54.14"),
        ([LOADING, LOADING.replace("550.54.14", "570.124.06")], "570.124.06"),
        ([LOADING, "NVRM: None of the NVIDIA devices were initialized."], None),
        (
            [
                LOADING,
                "NVRM: API mismatch: the client has version 1.2, but this kernel module has version 470.86.",
            ],
            "470.86",
        ),
        (["NVRM: something else"], None),
    ],
    ids=["loaded", "reloaded", "left again", "mismatch", "nothing"],
)
def test_the_loaded_module_by_the_log_of_this_boot(messages: list[str], version: str | None):
    text = "".join(f"{STAMP.format(i)}{m}\n" for i, m in enumerate(messages))
    host = read_host(evidence(commands={("dmesg",): (0, text)}))
    assert raw(host.driver.kernel_version) == version
    # Where `/proc` was read, it alone counts.
    host = read_host(
        evidence(commands={("dmesg",): (0, text)}, absent={"file:/proc/driver/nvidia/version": "missing"})
    )
    assert host.driver.kernel_version.reason == "not_installed"


def test_an_answer_of_nvidia_smi_names_the_loaded_module():
    host = report("nvidia-smi.txt")
    assert raw(host.driver.kernel_version) == "470.223.02"


# --- kernel logs in files ---------------------------------------------------------------------------


def boots(kern: str, **others: str) -> list[tuple[int, list[str]]]:
    names = {
        "dmesg": ("dmesg",),
        "now": ("journalctl", "-k", "-b", "0"),
        "before": ("journalctl", "-k", "-b", "-1"),
    }
    commands = {names[k]: (0, v) for k, v in others.items() if k in names}
    files = {"/var/log/kern.log": kern, **({"/var/log/dmesg": others["saved"]} if "saved" in others else {})}
    host = read_host(evidence(files=files, commands=commands))
    return [(log.index, [m.kind for m in log.messages]) for log in host.kernel.logs.value]


KERN = "Feb {:02d} 09:00:{:02d} box kernel: [{:12.6f}] {}\n"
OLD_BOOT = KERN.format(20, 1, 6.5, LOADING) + KERN.format(20, 2, 288.5, XID)
NEW_BOOT = KERN.format(27, 1, 6.4, LOADING) + KERN.format(27, 3, 99.0, XID)


def test_a_file_alone_is_history():
    assert boots(OLD_BOOT + NEW_BOOT) == [(-1, ["loading", "xid"]), (-2, ["loading", "xid"])]


def test_the_boot_that_the_ring_buffer_shares_is_the_present():
    dmesg = f"[    6.400000] {LOADING}\n"
    assert boots(OLD_BOOT + NEW_BOOT, dmesg=dmesg) == [(0, ["loading", "xid"]), (-1, ["loading", "xid"])]


def test_a_boot_that_the_journal_shares_is_merged_with_it():
    before = f"Feb 20 09:00:00 box kernel: {LOADING}\nFeb 20 09:00:02 box kernel: {XID}\n"
    now = f"Mar 02 11:00:00 box kernel: {LOADING}\n"
    assert boots(OLD_BOOT, before=before, now=now) == [(0, ["loading"]), (-1, ["loading", "xid"])]


def test_the_same_time_on_another_day_is_another_boot():
    now = f"Mar 02 09:00:01 box kernel: {LOADING}\n"
    assert boots(OLD_BOOT, now=now) == [(0, ["loading"]), (-1, ["loading", "xid"])]


def test_without_stamps_each_load_begins_a_boot():
    line = "2026-02-{}T09:00:0{}.1+01:00 box kernel: {}\n"
    text = line.format(20, 1, LOADING) + line.format(20, 2, XID) + line.format(27, 1, LOADING)
    assert boots(text) == [(-1, ["loading"]), (-2, ["loading", "xid"])]


def test_without_stamps_what_came_before_a_load_is_history():
    line = "2026-02-{}T09:00:0{}.1+01:00 box kernel: {}\n"
    refused = "NVRM: The NVIDIA GPU 0000:42:00.0 (PCI ID: 10de:1db5)"
    text = line.format(20, 2, XID) + line.format(27, 1, refused) + line.format(27, 1, LOADING)
    now = line.format(27, 1, LOADING)
    assert boots(text, now=now) == [(0, ["other", "loading"]), (-1, ["xid"])]


OPEN_REFUSES = (
    "NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10DE:1DB5)\n"
    "               NVRM: installed in this system is not supported by open\n"
    "               NVRM: nvidia.ko because it does not include the required GPU\n"
    "               NVRM: System Processor (GSP).\n"
)
CLOSED_REFUSES = (
    "NVRM: The NVIDIA GPU 0000:af:00.0 (PCI ID: 10de:2bb1)\n"
    "NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
)
LEAVES = "NVRM: None of the NVIDIA devices were initialized.\n"
LOADING_OPEN = LOADING.replace("x86_64 Kernel Module", "Open Kernel Module for x86_64")


@pytest.mark.parametrize(
    ("text", "flavour", "version"),
    [
        (OPEN_REFUSES, "open", None),
        (OPEN_REFUSES + LEAVES, "open", None),
        (CLOSED_REFUSES, "proprietary", None),
        (OPEN_REFUSES + LEAVES + LOADING, "proprietary", "550.54.14"),
        (OPEN_REFUSES + LOADING_OPEN, "open", "550.54.14"),
        (LOADING + "\n" + LEAVES, None, None),
        (LEAVES, None, None),
    ],
    ids=["refused", "left", "closed", "replaced", "another works", "loaded and left", "nothing"],
)
def test_a_module_that_refuses_names_itself(text: str, flavour: str | None, version: str | None):
    host = read_host(read_foreign(text.encode()))
    assert (known(host.driver.flavour), raw(host.driver.kernel_version)) == (flavour, version)


@pytest.mark.parametrize("prefix", ["", "kernel: ", "[    4.1] "])
def test_gpus_that_only_the_log_names(prefix: str):
    host = read_host(read_foreign((prefix + OPEN_REFUSES).encode()))
    assert [(d.address, d.device_id, d.driver) for d in host.gpus_on_bus] == [
        ("0000:af:00.0", "10de:1db5", None)
    ]
    assert host.pci.origin == "command:dmesg"


def test_a_bus_that_was_listed_is_not_filled_from_the_log():
    text = f"$ lspci -nn\n{GPU}\n$ dmesg\n{OPEN_REFUSES}"
    assert [d.address for d in read_host(read_foreign(text.encode())).gpus_on_bus] == ["0000:41:00.0"]
    picked = f"$ lspci -nn | head -1\n00:00.0 Host bridge [0600]: Intel [8086:0d57]\n$ dmesg\n{OPEN_REFUSES}"
    assert [d.address for d in read_host(read_foreign(picked.encode())).gpus_on_bus] == ["0000:af:00.0"]
    live = evidence(stats={"/sys/bus/pci/devices": {"kind": "dir"}}, commands={("dmesg",): (0, OPEN_REFUSES)})
    assert read_host(live).gpus_on_bus == ()


def test_a_legacy_gpu_without_an_address_is_no_device():
    text = "[    4.1] NVRM: The NVIDIA GeForce GTX 680 GPU installed in this system is\n"
    assert read_host(read_foreign(text.encode())).pci.reason == "not_collected"


def test_a_module_that_is_loaded_again_begins_no_boot_where_stamps_rise():
    text = KERN.format(20, 1, 6.5, LOADING) + KERN.format(20, 9, 66.5, LOADING)
    assert boots(text) == [(-1, ["loading", "loading"])]


def test_a_saved_ring_buffer_of_another_boot_belongs_to_nobody():
    saved, dmesg = f"[    5.000000] kernel: {XID}\n", f"[    6.400000] {LOADING}\n"
    assert boots("", saved=saved, dmesg=dmesg) == [(0, ["loading"])]
    ours = dmesg.replace("] ", "] kernel: ") + f"[    7.000000] kernel: {XID}\n"
    assert boots("", saved=ours, dmesg=dmesg) == [(0, ["loading", "xid"])]


# --- distribution -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("issue", "expected"),
    [
        (r"Ubuntu 24.04.4 LTS \n \l", ("ubuntu", "24.04")),
        (r"Debian GNU/Linux 12 \n \l", ("debian", "12")),
        (r"Parrot OS 5.1 \n \l", ("parrot", "5.1")),
        (r"Arch Linux \r (\l)", ("arch", "")),
        (r"Manjaro Linux \r  (\n) (\l)", ("manjaro", "")),
        (r"Kali GNU/Linux Rolling \n \l", ("kali", "")),
        (r"Linux Mint 21.2 Victoria \n \l", ("linuxmint", "21.2")),
        (r"Welcome to openSUSE Leap 15.5 - Kernel \r (\l).", ("opensuse-leap", "15.5")),
        (r"\S", None),
        ("Unauthorised access forbidden 24", None),
        ("", None),
    ],
)
def test_distribution_by_the_login_screen(issue: str, expected: tuple[str, str] | None):
    found = known(read_host(evidence(files={"/etc/issue": f"{issue}\n\n"})).system.os)
    assert (found and (found.id, found.version)) == expected


def test_a_derivative_is_not_its_parent():
    found = read_host(evidence(files={"/etc/issue": "Parrot OS 5.1\n", "/etc/debian_version": "11.3\n"}))
    assert known(found.system.os).id == "parrot"


# --- tables and collect_env -------------------------------------------------------------------------


def test_the_table_of_plain_nvidia_smi():
    smi = known(report("nvidia-smi.txt").driver.smi)
    assert (smi.driver_version.raw, smi.cuda_driver_version.raw, smi.error) == ("470.223.02", "11.4", "")
    first, second = smi.gpus
    assert (first.pci_address, first.name, first.memory_bytes) == ("0000:41:00.0", None, 40536 * 2**20)
    assert (first.power_w, first.power_limit_w, first.mig_mode, first.persistence_mode) == (
        37.0,
        250.0,
        False,
        True,
    )
    assert (second.name, second.power_w, second.power_limit_w, second.ecc_mode) == (
        "Tesla T4",
        None,
        70.0,
        None,
    )
    assert (second.memory_used_bytes, second.temperature_c, second.mig_mode) == (100 * 2**20, 40, None)


def test_collect_env_of_vllm():
    host = report("collect-env-vllm.txt")
    assert (known(host.system.os).id, known(host.system.os).version) == ("ubuntu", "24.04")
    assert known(host.kernel.release) == "6.8.0-60-generic"
    assert known(host.system.virtualisation).name == "kvm"
    smi = known(host.driver.smi)
    assert [g.name for g in smi.gpus] == ["NVIDIA L40S", "NVIDIA L40S"]
    assert raw(host.driver.userspace_version) == "580.95.05"
    assert host.pci.reason == "not_collected"


def test_collect_env_inside_wsl():
    host = report("collect-env-torch.txt")
    assert known(host.system.virtualisation).kind == "wsl2"
    assert known(host.system.os).version == "12"


def test_collect_env_that_could_not_run_nvidia_smi_says_nothing_of_gpus():
    text = (FOREIGN / "collect-env-vllm.txt").read_text()
    broken = text.replace("580.95.05", "Could not collect").replace(
        "GPU 0: NVIDIA L40S\nGPU 1: NVIDIA L40S", "Could not collect"
    )
    assert read_host(read_foreign(broken.encode())).driver.smi.reason == "not_collected"


def test_a_failure_of_nvidia_smi_outweighs_an_older_answer():
    host = report("issue.md")
    assert known(host.driver.smi).error.startswith("Failed to initialize NVML")
    assert (raw(host.driver.kernel_version), raw(host.driver.userspace_version)) == ("570.124.06", "580.95")


def test_one_lost_gpu_leaves_the_driver_named():
    runs = {
        ("nvidia-smi", "--query"): (
            0,
            "Unable to determine the device handle for GPU0000:0F:00.0: Unknown Error\n",
        ),
        ("nvidia-smi", "--query", "--unit"): (
            0,
            "\n==============NVSMI LOG==============\n\nDriver Version : 535.230.02\n",
        ),
        ("nvidia-smi", "nvlink", "--status"): (0, "Unable to determine the device handle\n"),
    }
    smi = known(read_host(evidence(commands=runs)).driver.smi)
    assert (smi.driver_version.raw, smi.gpus, len(smi.device_errors)) == ("535.230.02", (), 1)

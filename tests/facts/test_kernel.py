"""The running kernel, what lies on disk beside it, modules and DKMS."""

from __future__ import annotations

import pytest

from doctor.core.evidence import Evidence, Item, Meta
from doctor.core.host import Absent, Kernel, Known
from doctor.facts.dkms import first_error
from doctor.facts.kernel import read_kernel
from tests.facts.evidence import evidence

SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
EFI = {"/sys/firmware/efi": {"kind": "dir"}}
MOKUTIL = ("mokutil", "--sb-state")
K1, K2 = "6.8.0-45-generic", "6.8.0-124-generic"


def kernel(*args, in_container: bool = False, **kwargs) -> Kernel:
    return read_kernel(evidence(*args, **kwargs), in_container=in_container)


UBUNTU = "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0"
ROCKY = "gcc version 8.5.0 20210514 (Red Hat 8.5.0-20) (GCC)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            f"Linux version 6.8.0-124-generic (b@x) ({UBUNTU}, GNU ld (GNU Binutils for Ubuntu) 2.42) #1 SMP",
            UBUNTU,
        ),
        (
            f"Linux version 4.18.0-553.el8.x86_64 (mockbuild@x) ({ROCKY}) #1 SMP",
            ROCKY,
        ),
        ("Linux version 6.12.1 (me@x) (clang version 18.1.8, LLD 18.1.8) #1 SMP", "clang version 18.1.8"),
    ],
)
def test_compiler_of_the_kernel(text, expected):
    value = kernel({"/proc/version": text})
    assert value.compiler.value == expected
    assert value.release.value == text.split()[2]


def test_command_line_keeps_quoted_words_whole():
    value = kernel({"/proc/cmdline": 'ro dyndbg="file x +p" iommu=pt\n'}).command_line.value
    assert value == ("ro", 'dyndbg="file x +p"', "iommu=pt")


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (evidence({SECURE_BOOT: b"\x06\0\0\0\x01"}), "enabled"),
        (evidence({SECURE_BOOT: b"\x06\0\0\0\x00"}), "disabled"),
        (evidence(stats={"/sys/firmware/efi": None}), "unsupported"),
        (evidence(commands={MOKUTIL: (0, "SecureBoot enabled\n")}, stats=EFI), "enabled"),
        (evidence(commands={MOKUTIL: (0, "SecureBoot disabled\nPlatform is in Setup Mode\n")}), "disabled"),
        (
            evidence(commands={MOKUTIL: (1, "", "EFI variables are not supported on this system\n")}),
            "unsupported",
        ),
        (
            evidence(commands={("dmesg",): (0, "[    0.0] secureboot: Secure boot enabled\n")}, stats=EFI),
            "enabled",
        ),
    ],
)
def test_secure_boot(built, expected):
    assert read_kernel(built, in_container=False).secure_boot.value == expected


@pytest.mark.parametrize(
    ("built", "reason"),
    [
        (evidence({SECURE_BOOT: b"\x06\0\0\0\x07"}), "unreadable"),
        (evidence({SECURE_BOOT: b""}), "unreadable"),
        (evidence(absent={f"file:{SECURE_BOOT}": "denied"}, stats=EFI), "denied"),
        (evidence(absent={f"file:{SECURE_BOOT}": "missing"}, stats=EFI), "unreadable"),
        (
            evidence(
                commands={
                    ("dmesg",): (0, "[ 0.0] secureboot: Secure boot could not be determined (mode 0)\n")
                }
            ),
            "not_collected",
        ),
        (evidence(), "not_collected"),
    ],
)
def test_secure_boot_unknown(built, reason):
    assert read_kernel(built, in_container=False).secure_boot.reason == reason


def test_a_container_does_not_see_whether_its_host_booted_through_efi():
    fact = kernel(stats={"/sys/firmware/efi": None}, in_container=True).secure_boot
    assert fact.reason == "not_collected"


def test_lockdown():
    path = "/sys/kernel/security/lockdown"
    assert kernel({path: "none [integrity] confidentiality\n"}).lockdown.value == "integrity"
    assert kernel(absent={f"file:{path}": "missing"}).lockdown.reason == "not_installed"
    assert kernel({path: "none\n"}).lockdown.reason == "unreadable"


def test_compiler_on_path():
    gcc = ("gcc", "--version")
    assert kernel(
        commands={gcc: (0, "gcc (Debian 12.2.0-14) 12.2.0\nCopyright\n")}
    ).compiler_on_path.value == ("gcc (Debian 12.2.0-14) 12.2.0")
    assert kernel(absent={"command:gcc-version": "missing"}).compiler_on_path.reason == "not_installed"
    assert kernel(commands={gcc: (1, "")}).compiler_on_path.reason == "unreadable"


# --- kernels on disk


def installed_stats() -> dict[str, object]:
    return {
        "/lib/modules": {"kind": "dir"},
        f"/lib/modules/{K1}": {"kind": "dir"},
        f"/lib/modules/{K1}/build": f"/usr/src/linux-headers-{K1}",
        f"/lib/modules/{K1}/build/Makefile": {},
        f"/lib/modules/{K1}/vmlinuz": None,
        f"/boot/vmlinuz-{K1}": {},
        f"/lib/modules/{K1}/updates/dkms/nvidia.ko.zst": {},
        f"/lib/modules/{K1}/updates/dkms/nvidia-uvm.ko.zst": {},
        f"/lib/modules/{K2}": {"kind": "dir"},
        f"/lib/modules/{K2}/build": f"/usr/src/linux-headers-{K2}",
        f"/lib/modules/{K2}/build/Makefile": None,
        f"/lib/modules/{K2}/vmlinuz": None,
        f"/boot/vmlinuz-{K2}": {},
    }


MODINFO = """filename:       /lib/modules/{k}/updates/dkms/nvidia.ko.zst
firmware:       nvidia/580.95.05/gsp_ga10x.bin
version:        580.95.05
license:        {licence}
name:           nvidia
vermagic:       {k} SMP preempt mod_unload modversions
sig_id:         PKCS#7
signer:         {signer}
sig_key:        29:54
"""


def modinfo(k: str, licence: str, signer: str = "host Secure Boot Module Signature key"):
    path = f"/lib/modules/{k}/updates/dkms/nvidia.ko.zst"
    return {("modinfo", path): (0, MODINFO.format(k=k, licence=licence, signer=signer))}


def test_installed_kernels():
    value = kernel(stats=installed_stats(), commands=modinfo(K1, "Dual MIT/GPL"))
    newer, older = value.installed.value
    assert (older.release, older.is_bootable, older.has_headers) == (K1, True, True)
    assert (newer.release, newer.is_bootable, newer.has_headers) == (K2, True, False)
    assert newer.nvidia_modules.value == ()
    uvm, nvidia = older.nvidia_modules.value
    assert (uvm.name, uvm.version, uvm.flavour) == ("nvidia_uvm", None, None)
    assert (nvidia.name, nvidia.kernel, str(nvidia.version), nvidia.flavour) == (
        "nvidia",
        K1,
        "580.95.05",
        "open",
    )
    assert nvidia.signer == "host Secure Boot Module Signature key"
    assert nvidia.vermagic.startswith(K1)
    assert value.next_release.value == K2


@pytest.mark.parametrize(
    ("licence", "flavour"), [("NVIDIA", "proprietary"), ("Dual MIT/GPL", "open"), ("GPL", "open"), ("", None)]
)
def test_flavour_of_a_module_file(licence, flavour):
    built = kernel(stats=installed_stats(), commands=modinfo(K1, licence))
    assert built.installed.value[1].nvidia_modules.value[1].flavour == flavour


def test_a_signature_without_a_readable_signer_is_still_a_signature():
    built = kernel(stats=installed_stats(), commands=modinfo(K1, "NVIDIA", signer=""))
    assert built.installed.value[1].nvidia_modules.value[1].signer == "29:54"


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("kernel/nvidia-580/nvidia.ko", "nvidia"),
        ("updates/dkms/nvidia-current.ko", "nvidia"),
        ("updates/dkms/nvidia-current-uvm.ko.xz", "nvidia_uvm"),
        ("updates/dkms/nvidia_352.ko", "nvidia"),
        ("weak-updates/nvidia-peermem.ko.xz", "nvidia_peermem"),
    ],
)
def test_names_of_module_files(file, name):
    built = kernel(stats={f"/lib/modules/{K1}": {"kind": "dir"}, f"/lib/modules/{K1}/{file}": {}})
    assert [m.name for m in built.installed.value[0].nvidia_modules.value] == [name]


def test_no_module_directory_means_no_kernels_and_not_asked_means_unknown():
    assert kernel(stats={"/lib/modules": None}).installed.value == ()
    assert kernel().installed.reason == "not_collected"
    assert kernel(absent={"stat:/lib/modules": "denied"}).installed.reason == "denied"


def test_next_release():
    stats = installed_stats()
    grubby = {("grubby", "--default-kernel"): (0, f"/boot/vmlinuz-{K1}\n")}
    assert kernel(stats=stats, commands=grubby).next_release.value == K1
    grubenv = {"/boot/grub2/grubenv": f"# GRUB Environment Block\nsaved_entry=0123456789abcdef-{K1}\n####"}
    assert kernel(grubenv, stats=stats).next_release.value == K1
    # An entry that names no installed kernel decides nothing.
    other = {"/boot/grub2/grubenv": "saved_entry=0\n"}
    assert kernel(other, stats=stats).next_release.value == K2
    without_images = {path: None if "vmlinuz" in path else said for path, said in stats.items()}
    assert kernel(stats=without_images).next_release.reason == "not_installed"
    assert kernel(stats={f"/lib/modules/{K1}": {"kind": "dir"}}).next_release.reason == "not_collected"


# --- modules


PROC_MODULES = """nvidia_uvm 2101248 4 - Live 0x0000000000000000 (OE)
nvidia_drm 139264 0 - Live 0x0000000000000000 (POE)
nvidia 14299136 42 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)
i2c_core 122880 - [permanent], Live 0x0000000000000000
vfio_pci 20480 0 - Live 0x0
ext4 1 2 - Live 0x0
broken line
"""


def test_modules():
    files = {
        "/proc/modules": PROC_MODULES,
        "/sys/module/nvidia/version": "580.95.05\n",
        "/sys/module/nvidia_uvm/parameters/uvm_disable_hmm": "N\n",
    }
    rows = {m.name: m for m in kernel(files).modules.value}
    assert list(rows) == ["nvidia_uvm", "nvidia_drm", "nvidia", "vfio_pci"]
    assert (rows["nvidia"].refcount, rows["nvidia"].used_by, rows["nvidia"].taint) == (
        42,
        ("nvidia_uvm", "nvidia_modeset"),
        "POE",
    )
    assert str(rows["nvidia"].version) == "580.95.05"
    assert rows["nvidia_uvm"].parameters == {"uvm_disable_hmm": "N"}


def test_modules_of_a_kernel_without_proc_modules():
    absent = {"file:/proc/modules": "missing"}
    built = kernel(
        {"/sys/module/nvidia/version": "580.95.05\n", "/sys/module/nvidia/refcnt": "7\n"}, absent=absent
    )
    (row,) = built.modules.value
    assert (row.name, str(row.version), row.refcount) == ("nvidia", "580.95.05", 7)
    assert kernel(stats={"/sys/module/nvidia": None}, absent=absent).modules.value == ()
    assert kernel(absent=absent).modules.reason == "not_installed"
    assert kernel(absent={"file:/proc/modules": "denied"}).modules.reason == "denied"


def test_module_options():
    files = {
        "/etc/modprobe.d/nvidia.conf": "# x\noptions nvidia \\\n  NVreg_X=0\nblacklist nouveau\n",
        "/usr/lib/modprobe.d/nvidia.conf": "options nvidia hidden=1\n",
        "/usr/lib/modprobe.d/z.conf": (
            "softdep xhci pre: nvidia-drm\nblacklist pcspkr\noptions nvidia-drm modeset=1\nnonsense\n"
        ),
        "/etc/modprobe.d/read.me": "options nvidia ignored=1\n",
    }
    rows = kernel(files).module_options.value
    assert [(r.file, r.directive, r.module, r.arguments) for r in rows] == [
        ("/etc/modprobe.d/nvidia.conf", "options", "nvidia", "NVreg_X=0"),
        ("/etc/modprobe.d/nvidia.conf", "blacklist", "nouveau", ""),
        ("/usr/lib/modprobe.d/z.conf", "softdep", "xhci", "pre: nvidia-drm"),
        ("/usr/lib/modprobe.d/z.conf", "options", "nvidia_drm", "modeset=1"),
    ]
    assert kernel().module_options.reason == "not_collected"


# --- DKMS


STATUS = ("dkms", "status")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "nvidia/580.95.05, 6.8.0-45-generic, x86_64: installed",
            ("nvidia", "580.95.05", K1, "x86_64", "installed"),
        ),
        (
            "nvidia, 535.104.05, 6.8.0-45-generic, x86_64: installed",
            ("nvidia", "535.104.05", K1, "x86_64", "installed"),
        ),
        ("nvidia/580.95.05: added", ("nvidia", "580.95.05", "", "", "added")),
        ("nvidia, 470.82: added", ("nvidia", "470.82", "", "", "added")),
        (
            f"nvidia-open/580.95.05, {K1}, x86_64: installed (WARNING! Diff between built and installed)",
            ("nvidia-open", "580.95.05", K1, "x86_64", "installed"),
        ),
        (
            "nvidia/580.95.05, 6.8.0-45-generic, x86_64: broken",
            ("nvidia", "580.95.05", K1, "x86_64", "broken"),
        ),
    ],
)
def test_dkms_status(line, expected):
    text = f"Deprecated feature: REMAKE_INITRD\n{line}\nzfs/2.2.2, {K1}, x86_64: installed\n"
    (row,) = kernel(commands={STATUS: (0, text)}).dkms.value
    assert (row.module, row.version, row.kernel, row.architecture, row.state) == expected


FAILED_LOG = f"""DKMS (dkms-3.0.11) make.log for nvidia/580.95.05 for kernel {K2} (x86_64)
Fri Nov 28 06:41:09 UTC 2026
make: Entering directory '/usr/src/linux-headers-{K2}'
warning: the compiler differs from the one used to build the kernel
  CC [M]  nvidia/nv.o
nv.o: warning: objtool: nv_fatal_error: unreachable
x86_64-linux-gnu-gcc-11: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'
make[3]: *** [scripts/Makefile.build:243: nvidia/nv.o] Error 1
make: *** [Makefile:115: modules] Error 2
"""
FAILURE = "x86_64-linux-gnu-gcc-11: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'"


def test_a_failed_build_without_a_row_of_its_own():
    path = "/var/lib/dkms/nvidia/580.95.05/build/make.log"
    commands = {STATUS: (0, f"nvidia/580.95.05, {K1}, x86_64: installed\n")}
    good, failed = kernel({path: FAILED_LOG}, commands).dkms.value
    assert (good.state, good.failure) == ("installed", "")
    assert (failed.kernel, failed.architecture, failed.state, failed.failure, failed.log) == (
        K2,
        "x86_64",
        "failed",
        FAILURE,
        path,
    )


def test_a_failed_build_with_a_row():
    path = f"/var/lib/dkms/nvidia/580.95.05/{K2}/x86_64/log/make.log"
    commands = {
        STATUS: (0, f"nvidia/580.95.05, {K2}, x86_64: built\nnvidia/580.95.05, {K1}, x86_64: installed\n")
    }
    first, _ = kernel({path: FAILED_LOG}, commands).dkms.value
    assert (first.state, first.failure, first.log) == ("built", FAILURE, path)


def test_an_installed_module_was_built_after_its_old_failure():
    path = f"/var/lib/dkms/nvidia/580.95.05/{K2}/x86_64/log/make.log"
    commands = {STATUS: (0, f"nvidia/580.95.05, {K2}, x86_64: installed\n")}
    (row,) = kernel({path: FAILED_LOG}, commands).dkms.value
    assert (row.state, row.failure) == ("installed", "")


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (FAILED_LOG, FAILURE),
        ("  LD [M] nvidia.ko\n  BTF [M] nvidia.ko\nmake: Leaving directory\n", ""),
        ("foo.c:1: error: old\nmake: *** [x] Error 2\n# exit code: 0\n", ""),
        ("/bin/sh: line 1: g++: command not found\nmake[1]: *** [Makefile:219: x.o] Error 127\n",
         "/bin/sh: line 1: g++: command not found"),
        ("make: *** /lib/modules/6.8.0/build: No such file or directory.  Stop.\n",
         "make: *** /lib/modules/6.8.0/build: No such file or directory.  Stop."),
        ("ERROR: modpost: nvidia.ko uses GPL-only symbol 'x'\nmake: *** [m] Error 1\n",
         "ERROR: modpost: nvidia.ko uses GPL-only symbol 'x'"),
        ("", ""),
    ],
)  # fmt: skip
def test_first_error(log, expected):
    assert first_error(log) == expected


def test_dkms_absent():
    assert kernel(absent={"command:dkms-status": "missing"}).dkms.reason == "not_installed"
    assert kernel(commands={STATUS: (0, "")}).dkms.value == ()
    assert kernel(commands={STATUS: (2, "", "Error! no tree\n")}).dkms == Absent(
        reason="unreadable", origin="command:dkms-status", detail="Error! no tree"
    )


def test_an_unreadable_kernel_directory_is_not_an_empty_one():
    items = (
        Item(key="stat:/lib/modules", status="ok", exists=True),
        Item(key=f"stat:/lib/modules/{K1}", status="denied", detail="Permission denied"),
        Item(key=f"stat:/lib/modules/{K1}/build", status="ok", exists=True),
    )
    (row,) = read_kernel(Evidence(Meta(items=items), {}), in_container=False).installed.value
    assert isinstance(row.nvidia_modules, Absent)
    assert row.nvidia_modules.reason == "denied"
    assert row.is_bootable is None
    assert row.has_headers is None


def test_known_and_origin():
    fact = kernel({"/proc/sys/kernel/osrelease": f"{K1}\n"}).release
    assert fact == Known(value=K1, origin="file:/proc/sys/kernel/osrelease")

"""The driver: loaded version, flavour, libraries with owners, user space, device nodes."""

from __future__ import annotations

import pytest

from doctor.core.host import Absent, Driver
from doctor.facts.driver import read_driver
from tests.facts.evidence import evidence

PROC, SYS = "/proc/driver/nvidia/version", "/sys/module/nvidia/version"
LIB = "/usr/lib/x86_64-linux-gnu"
COMPAT = "/usr/local/cuda-12.9/compat"
LDCONFIG = ("ldconfig", "-p")
MISSING = {f"file:{PROC}": "missing", f"file:{SYS}": "missing"}


def driver(*args, is_wsl: bool = False, **kwargs) -> Driver:
    return read_driver(evidence(*args, **kwargs), is_wsl=is_wsl)


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build  (x@y)  \n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n"


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (OPEN, "580.126.09", "open"),
        (CLOSED, "550.90.07", "proprietary"),
        ("NVRM version: NVIDIA UNIX aarch64 Kernel Module  570.133.20  Sun\n", "570.133.20", "proprietary"),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05\n", "580.95.05", "open"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  384.81  Sat Sep  2\n", "384.81", "proprietary"),
    ],
)
def test_loaded_driver(text, version, flavour):
    value = driver({PROC: text + "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14) \n"})
    assert str(value.kernel_version.value) == version
    assert value.kernel_version.origin == f"file:{PROC}"
    assert value.flavour.value == flavour
    assert value.module_compiler.value == "gcc version 12.2.0 (Debian 12.2.0-14)"


@pytest.mark.parametrize(
    ("built", "expected"),
    [
        (evidence(absent=MISSING), "not_installed"),
        (evidence(), "not_collected"),
        (evidence(absent={f"file:{PROC}": "timeout"}), "timeout"),
        (evidence(absent={f"file:{PROC}": "denied"}), "denied"),
        (evidence({PROC: b"\xff\xfe\x00"}), "unreadable"),
        (evidence({PROC: ""}), "unreadable"),
        (evidence(absent=MISSING, stats={"/sys/module/nvidia": {"kind": "dir"}}), "unreadable"),
    ],
)
def test_no_loaded_driver(built, expected):
    assert read_driver(built, is_wsl=False).kernel_version.reason == expected


@pytest.mark.parametrize(("taint", "flavour"), [("OE", "open"), ("POE", "proprietary"), ("O", "open")])
def test_sysfs_answers_where_proc_blocks(taint, flavour):
    files = {SYS: "580.95.05\n", "/sys/module/nvidia/taint": f"{taint}\n"}
    value = driver(files, absent={f"file:{PROC}": "timeout"})
    assert (str(value.kernel_version.value), value.kernel_version.origin) == ("580.95.05", f"file:{SYS}")
    assert value.flavour.value == flavour


def test_flavour_from_the_module_table():
    value = driver({"/proc/modules": "nvidia 14299136 0 - Live 0x0 (POE)\n", SYS: "580.95.05\n"})
    assert value.flavour.value == "proprietary"


def test_a_signed_module_names_no_compiler():
    assert driver({PROC: OPEN + "GCC version:\n"}).module_compiler.reason == "not_installed"


def test_gpu_models():
    prefix = "/proc/driver/nvidia/gpus/"
    files = {
        f"{prefix}0000:41:00.0/information": "Model: \t\t NVIDIA L40S\nIRQ:   \t\t 41\n",
        f"{prefix}0000:61:00.0/information": "Model: \t\t Unknown\n",
    }
    blocked = {f"file:{prefix}0000:81:00.0/information": "timeout"}
    assert driver(files, absent=blocked).gpu_models.value == {
        "0000:41:00.0": "NVIDIA L40S",
        "0000:61:00.0": "Unknown",
    }
    assert driver(absent=blocked).gpu_models.reason == "timeout"
    assert driver(absent=MISSING).gpu_models.reason == "not_installed"
    assert driver({PROC: OPEN}).gpu_models.reason == "not_collected"


# --- libraries


def pair(directory: str, version: str, *names: str) -> dict[str, object]:
    stats: dict[str, object] = {}
    for name in names or ("libcuda", "libnvidia-ml"):
        stats[f"{directory}/{name}.so"] = f"{name}.so.1"
        stats[f"{directory}/{name}.so.1"] = f"{name}.so.{version}"
        stats[f"{directory}/{name}.so.{version}"] = {}
    return stats


def cache(*paths: str, flags: str = "libc6,x86-64"):
    rows = "".join(f"\t{path.rpartition('/')[2]} ({flags}) => {path}\n" for path in paths)
    return {LDCONFIG: (0, f"{len(paths)} libs found in cache `/etc/ld.so.cache'\n{rows}")}


NORMAL = cache(f"{LIB}/libnvidia-ml.so.1", f"{LIB}/libcuda.so.1")


def test_libraries_are_real_files_once():
    value = driver(stats=pair(LIB, "580.126.09"), commands=NORMAL)
    assert [(lib.soname, lib.path, str(lib.version), lib.is_default) for lib in value.libraries.value] == [
        ("libcuda.so.1", f"{LIB}/libcuda.so.580.126.09", "580.126.09", True),
        ("libnvidia-ml.so.1", f"{LIB}/libnvidia-ml.so.580.126.09", "580.126.09", True),
    ]
    assert str(value.userspace_version.value) == "580.126.09"


def test_the_cache_may_name_the_old_place_of_a_merged_usr():
    commands = cache("/lib/x86_64-linux-gnu/libnvidia-ml.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1")
    stats = {**pair(LIB, "580.95.05"), **pair("/lib/x86_64-linux-gnu", "580.95.05")}
    rows = driver(stats=stats, commands=commands).libraries.value
    assert [(lib.path, lib.is_default) for lib in rows] == [
        (f"{LIB}/libcuda.so.580.95.05", True),
        (f"{LIB}/libnvidia-ml.so.580.95.05", True),
    ]


def test_the_loader_decides_between_two_versions():
    stats = {**pair(LIB, "550.90.07"), **pair("/usr/lib64", "580.95.05")}
    commands = cache("/usr/lib64/libnvidia-ml.so.1", "/usr/lib64/libcuda.so.1", f"{LIB}/libcuda.so.1")
    value = driver(stats=stats, commands=commands)
    assert str(value.userspace_version.value) == "580.95.05"
    assert [str(lib.version) for lib in value.libraries.value if lib.is_default] == ["580.95.05"] * 2
    # Without the cache, two versions are not one.
    undecided = driver(stats=stats).userspace_version
    assert isinstance(undecided, Absent)
    assert undecided.reason == "unreadable"
    mapped = {"count": 0, "library_path": "/usr/lib64/libnvidia-ml.so.580.95.05"}
    assert str(driver(stats=stats, nvml=mapped).userspace_version.value) == "580.95.05"


def test_libnvidia_ml_decides_where_it_differs_from_libcuda():
    stats = {**pair(LIB, "580.95.05", "libnvidia-ml"), **pair(LIB, "575.57.08", "libcuda")}
    value = driver(stats=stats, commands=NORMAL)
    assert str(value.userspace_version.value) == "580.95.05"
    assert {str(lib.version) for lib in value.libraries.value} == {"580.95.05", "575.57.08"}


def test_compat_libraries_are_no_user_space():
    stats = pair(COMPAT, "575.57.08", "libcuda")
    value = driver(stats=stats, commands=cache(f"{COMPAT}/libcuda.so.1"))
    (lib,) = value.libraries.value
    assert (lib.is_compat, lib.is_default) == (True, True)
    assert value.userspace_version.reason == "not_installed"
    both = {**stats, **pair(LIB, "580.95.05", "libcuda")}
    shadowed = driver(stats=both, commands=cache(f"{COMPAT}/libcuda.so.1", f"{LIB}/libcuda.so.1"))
    assert str(shadowed.userspace_version.value) == "580.95.05"


def test_links_that_lead_nowhere_are_no_libraries():
    stats = {f"{LIB}/libcuda.so.1": "libcuda.so.550.90.07", f"{LIB}/libcuda.so": "libcuda.so"}
    assert driver(stats=stats, commands=NORMAL).libraries.value == ()


PROC_GPUS = {
    f"/proc/driver/nvidia/gpus/{a}/information": "Model: A100\n" for a in ("0000:17:00.0", "0000:ca:00.0")
}
SMI = ("nvidia-smi", "-q", "-x")
UNABLE = "Unable to determine the device handle for GPU1: 0000:CA:00.0: Unknown Error\n"


@pytest.mark.parametrize(
    ("errors", "more", "expected"),
    [
        ({"gpu 1": "GPU is lost"}, {"files": PROC_GPUS}, ("0000:ca:00.0: gpu 1: GPU is lost",)),
        ({"gpu 1": "GPU is lost"}, {"commands": {SMI: (15, UNABLE)}}, ("0000:ca:00.0: gpu 1: GPU is lost",)),
        ({"gpu 1": "GPU is lost"}, {}, ("gpu 1: GPU is lost",)),
        (
            {"gpu 1": "GPU is lost", "gpu 2": "GPU is lost"},
            {"files": PROC_GPUS},
            ("gpu 1: GPU is lost", "gpu 2: GPU is lost"),
        ),
        ({"system": "Not Found"}, {"files": PROC_GPUS}, ("system: Not Found",)),
    ],
    ids=["by proc", "by nvidia-smi", "by nobody", "two", "no gpu"],
)
def test_the_gpu_that_nvml_cannot_open_is_the_one_left_over(errors, more, expected):
    document = {
        "count": 2,
        "gpus": [{"index": 0, "pci_info": {"bus_id": "00000000:17:00.0"}}],
        "errors": errors,
    }
    assert driver(nvml=document, **more).nvml.value.device_errors == expected


STORE = "/nix/store/abc-nvidia-x11-580.95.05-6.12.50/lib"


def test_nixos_links_its_libraries_into_the_store():
    names = (
        "libcuda.so",
        "libcuda.so.1",
        "libcuda.so.580.95.05",
        "libnvidia-ml.so.1",
        "libnvidia-ml.so.580.95.05",
    )
    value = driver(stats={f"/run/opengl-driver/lib/{name}": f"{STORE}/{name}" for name in names})
    assert [(lib.soname, lib.path) for lib in value.libraries.value] == [
        ("libcuda.so.1", f"{STORE}/libcuda.so.580.95.05"),
        ("libnvidia-ml.so.1", f"{STORE}/libnvidia-ml.so.580.95.05"),
    ]
    assert str(value.userspace_version.value) == "580.95.05"


@pytest.mark.parametrize("root", ["/run/nvidia/driver/usr", "/home/kubernetes/bin/nvidia"])
def test_the_libraries_of_a_driver_container_are_not_the_hosts(root):
    value = driver(stats=pair(f"{root}/lib64", "580.95.05", "libcuda"), commands=cache())
    assert value.container_root.value == root.removesuffix("/usr")
    assert value.libraries.value == ()
    assert value.userspace_version.reason == "not_installed"


@pytest.mark.parametrize(
    ("built", "reason"),
    [
        ({"stats": {"/run/nvidia/driver/usr/lib64": {"kind": "dir"}}}, "not_installed"),
        ({"stats": {"/run/nvidia/driver/usr/lib64": None}}, "not_installed"),
        ({"absent": {"stat:/run/nvidia/driver/usr/lib64": "timeout"}}, "timeout"),
        ({}, "not_collected"),
    ],
)
def test_no_driver_container(built, reason):
    assert driver(**built).container_root.reason == reason


def test_32_bit_libraries_do_not_count_as_default():
    rows = [("libc6", "/usr/lib32/libcuda.so.1"), ("libc6,x86-64", f"{LIB}/libcuda.so.1")]
    text = "2 libs\n" + "".join(f"\tlibcuda.so.1 ({flags}) => {path}\n" for flags, path in rows)
    stats = {**pair("/usr/lib32", "580.95.05", "libcuda"), **pair(LIB, "580.95.05", "libcuda")}
    found = driver(stats=stats, commands={LDCONFIG: (0, text)}).libraries.value
    assert [lib.path for lib in found if lib.is_default] == [f"{LIB}/libcuda.so.580.95.05"]


NOT_OWNED = f"file {LIB}/libnvidia-ml.so.580.95.05 is not owned by any package\n"


@pytest.mark.parametrize(
    ("commands", "expected"),
    [
        (
            {
                ("dpkg", "-S", f"{LIB}/libcuda.so.580.95.05", f"{LIB}/libnvidia-ml.so.580.95.05"): (
                    1,
                    f"libnvidia-compute-580:amd64, x: {LIB}/libcuda.so.580.95.05\n",
                )
            },
            ["libnvidia-compute-580", ""],
        ),
        (
            {
                ("dpkg", "-S", f"{LIB}/libcuda.so.580.95.05"): (
                    0,
                    "libcuda1:amd64: /lib/x86_64-linux-gnu/libcuda.so.580.95.05\n",
                )
            },
            ["libcuda1", None],
        ),
        (
            # Merged /usr: the loader's directories name each file twice, dpkg knows it under one name.
            {
                (
                    "dpkg",
                    "-S",
                    f"{LIB}/libcuda.so.580.95.05",
                    f"{LIB}/libnvidia-ml.so.580.95.05",
                    "/lib/x86_64-linux-gnu/libcuda.so.580.95.05",
                    "/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05",
                ): (
                    1,
                    (
                        f"libnvidia-compute-580:amd64: {LIB}/libcuda.so.580.95.05\n"
                        "libnvidia-compute-580:amd64: /lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05\n"
                    ),
                )
            },
            ["libnvidia-compute-580", "libnvidia-compute-580"],
        ),
        (
            {
                (
                    "rpm",
                    "-qf",
                    "--qf",
                    "%{NAME}\\n",
                    f"{LIB}/libcuda.so.580.95.05",
                    f"{LIB}/libnvidia-ml.so.580.95.05",
                ): (
                    1,
                    f"nvidia-driver-cuda-libs\n{NOT_OWNED}",
                )
            },
            ["nvidia-driver-cuda-libs", ""],
        ),
        ({}, [None, None]),
    ],
)
def test_owners(commands, expected):
    value = driver(stats=pair(LIB, "580.95.05"), commands=commands)
    assert [lib.package for lib in value.libraries.value] == expected


def test_user_space_as_the_witnesses_tell_it():
    mismatch = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n"
    smi = {("nvidia-smi", "-q", "-x"): (18, mismatch)}
    assert str(driver(commands=smi).userspace_version.value) == "580.173"
    nvml = {"count": 0, "driver_version": "580.95.05", "nvml_version": "13.580.95.05"}
    assert str(driver(nvml=nvml).userspace_version.value) == "580.95.05"
    assert driver().userspace_version.reason == "not_collected"


def test_wsl():
    wsl = "/usr/lib/wsl/lib"
    stats = {f"{wsl}/libcuda.so.1": {}, f"{wsl}/libcuda.so.1.1": {}, f"{wsl}/libnvidia-ml.so.1": {}}
    nvml = {"count": 0, "driver_version": "581.57", "nvml_version": "13.580.97"}
    value = driver(stats=stats, nvml=nvml, absent=MISSING, is_wsl=True)
    assert [lib.version for lib in value.libraries.value] == [None] * 3
    assert (str(value.kernel_version.value), value.kernel_version.origin) == ("581.57", "nvml")
    assert str(value.userspace_version.value) == "580.97"
    assert driver(stats=stats, nvml=nvml, absent=MISSING).kernel_version.reason == "not_installed"


def test_device_nodes():
    char = {"kind": "char", "mode": "0666", "owner": "root:video"}
    stats = {
        "/dev/nvidia0": char,
        "/dev/nvidia-uvm": None,
        "/dev/nvidia-caps": {"kind": "dir"},
        "/dev/dri/card0": char,
    }
    (first, second) = driver(stats=stats).device_nodes.value
    assert (first.path, first.mode, first.owner, first.kind) == ("/dev/nvidia0", "0666", "root:video", "char")
    assert second.path == "/dev/dri/card0"
    assert driver(stats={"/dev/nvidiactl": None}).device_nodes.value == ()
    assert driver().device_nodes.reason == "not_collected"
    silent = driver(stats={"/dev/nvidia0": char}, absent={"stat:/dev/nvidia-uvm": "timeout"})
    assert silent.device_nodes.reason == "timeout"

"""Every fact of a real node, from what it printed."""

from __future__ import annotations

from doctor.core.host import Absent, Known
from doctor.facts.read import read_host
from tests.facts.h200 import h200

HOST = read_host(h200())


def value(fact):
    assert isinstance(fact, Known), fact
    return fact.value


def reason(fact):
    assert isinstance(fact, Absent), fact
    return fact.reason


def test_system():
    os = value(HOST.system.os)
    assert (os.id, os.version, os.pretty_name, os.id_like, os.codename) == (
        "ubuntu",
        "24.04",
        "Ubuntu 24.04.3 LTS",
        ("debian",),
        "noble",
    )
    assert value(HOST.system.architecture) == "x86_64"
    assert value(HOST.system.hostname) == "vm"


def test_kernel():
    assert value(HOST.kernel.release) == "6.18.44-gpu"
    assert value(HOST.kernel.secure_boot) == "unsupported"
    assert value(HOST.kernel.installed) == ()
    assert reason(HOST.kernel.dkms) == "not_installed"
    uvm, nvidia = value(HOST.kernel.modules)
    assert (uvm.name, uvm.refcount, uvm.used_by, uvm.taint) == ("nvidia_uvm", None, (), "O")
    assert (nvidia.name, nvidia.size_bytes, nvidia.taint) == ("nvidia", 14299136, "O")


def test_pci():
    (gpu,) = value(HOST.pci)
    assert (gpu.address, gpu.device_id, gpu.subsystem_id) == ("0000:00:06.0", "10de:2335", "10de:18bf")
    assert (gpu.class_code, gpu.driver, gpu.numa_node) == ("030200", "nvidia", None)
    assert (gpu.link_speed_gts, gpu.link_speed_max_gts, gpu.link_width, gpu.link_width_max) == (
        32,
        32,
        16,
        16,
    )
    assert gpu.is_gpu
    assert gpu.is_responding is None


def test_driver():
    driver = HOST.driver
    assert str(value(driver.kernel_version)) == "580.159.04"
    assert value(driver.flavour) == "open"
    assert value(driver.module_compiler) == "gcc version 15.3.0 (GCC)"
    assert value(driver.parameters)["EnableGpuFirmware"] == "18"
    assert value(driver.parameters)["RegistryDwords"] == ""
    assert str(value(driver.userspace_version)) == "580.159.04"
    assert reason(driver.gpu_models) == "not_collected"


def test_libraries():
    rows = {lib.path: lib for lib in value(HOST.driver.libraries)}
    assert len(rows) == 3
    cuda = rows["/usr/local/nvidia/lib64/libcuda.so.580.159.04"]
    assert (cuda.soname, str(cuda.version), cuda.is_default, cuda.is_compat) == (
        "libcuda.so.1",
        "580.159.04",
        True,
        False,
    )
    compat = rows["/usr/local/cuda-13.0/compat/libcuda.so.580.95.05"]
    assert (str(compat.version), compat.is_default, compat.is_compat) == ("580.95.05", False, True)


def test_device_nodes():
    nodes = {node.path: node for node in value(HOST.driver.device_nodes)}
    assert len(nodes) == 6
    assert nodes["/dev/nvidia-caps/nvidia-cap1"].mode == "0400"
    assert nodes["/dev/nvidia0"].owner == "root:root"


def test_nvml():
    report = value(HOST.driver.nvml)
    assert (report.error, report.error_code, report.device_errors) == ("", None, ())
    assert str(report.driver_version) == str(report.library_version) == "580.159.04"
    assert str(report.cuda_driver_version) == "13.0"
    (gpu,) = report.gpus
    assert (gpu.index, gpu.pci_address, gpu.name) == (0, "0000:00:06.0", "NVIDIA H200")
    assert (gpu.uuid, gpu.serial) == ("GPU-11111111-2222-3333-4444-555555555555", "1650000000001")
    assert (gpu.compute_capability, gpu.memory_bytes, gpu.memory_used_bytes) == (
        "9.0",
        150754820096,
        644939776,
    )
    assert (gpu.ecc_mode, gpu.ecc_mode_pending, gpu.mig_mode, gpu.mig_mode_pending) == (
        True,
        True,
        False,
        False,
    )
    assert (gpu.remapped_rows_correctable, gpu.remapped_rows_uncorrectable) == (0, 0)
    assert (gpu.remap_pending, gpu.remap_failure, gpu.retired_pages_pending) == (False, False, None)
    assert (gpu.temperature_margin_c, gpu.temperature_slowdown_c) == (52, None)
    assert (gpu.power_w, gpu.power_limit_w, gpu.power_limit_default_w, gpu.power_limit_max_w) == (
        78.319,
        700,
        700,
        700,
    )
    assert (gpu.clock_limits, gpu.performance_state, gpu.persistence_mode) == (("gpu_idle",), "P0", True)
    assert (gpu.compute_mode, gpu.virtualisation_mode, gpu.gsp_firmware) == (
        "default",
        "passthrough",
        "580.159.04",
    )
    assert (gpu.link_generation, gpu.link_generation_max, gpu.link_width, gpu.link_width_max) == (
        5,
        5,
        16,
        16,
    )
    assert (gpu.pcie_replays, gpu.process_count) == (2, 0)
    assert gpu.errors == {"last_bbx_flush_time": "System is not in ready state"}


def test_nvidia_smi_says_the_same():
    report = value(HOST.driver.smi)
    assert (report.error, report.device_errors, str(report.driver_version)) == ("", (), "580.159.04")
    assert str(report.cuda_driver_version) == "13.0"
    (gpu,) = report.gpus
    (twin,) = value(HOST.driver.nvml).gpus
    same = (
        "index pci_address name uuid serial ecc_mode ecc_mode_pending remapped_rows_correctable "
        "remapped_rows_uncorrectable remap_pending remap_failure retired_pages_pending power_limit_w "
        "power_limit_default_w power_limit_max_w clock_limits performance_state mig_mode mig_mode_pending "
        "persistence_mode compute_mode link_generation link_generation_max link_width link_width_max "
        "pcie_replays virtualisation_mode gsp_firmware process_count"
    )
    for field in same.split():
        assert getattr(gpu, field) == getattr(twin, field), field
    assert (gpu.ecc_uncorrected_volatile, gpu.ecc_uncorrected_aggregate, gpu.ecc_corrected_aggregate) == (
        0,
        0,
        0,
    )
    assert (gpu.temperature_c, gpu.temperature_margin_c, gpu.power_w) == (37, 50, 123.95)
    assert (gpu.clock_sm_mhz, gpu.clock_sm_max_mhz, gpu.clock_memory_mhz) == (1980, 1980, 3201)
    assert (gpu.recovery_action, gpu.fabric_state) == ("none", None)
    # nvidia-smi leaves the driver's own reserve out of `used`, and rounds the total down.
    assert gpu.memory_bytes == 143771 * 2**20
    assert gpu.memory_used_bytes == 0


def test_cuda():
    (toolkit,) = value(HOST.cuda.toolkits)
    assert (toolkit.path, str(toolkit.version), str(toolkit.nvcc_release), toolkit.is_default) == (
        "/usr/local/cuda-13.0",
        "13.0",
        "13.0",
        True,
    )
    assert reason(HOST.cuda.probe) == "not_collected"


def test_packages():
    packages = value(HOST.packages)
    assert (packages.manager, len(packages.installed)) == ("dpkg", 37)
    compat = next(p for p in packages.installed if p.name == "cuda-compat-13-0")
    assert (compat.version, compat.state) == ("580.95.05-0ubuntu1", "installed")
    assert reason(packages.changes) == "not_collected"


def test_vgpu_guest_is_false_for_a_gpu_passed_through():
    # No witness of this node said where it runs; NVML alone does not decide that.
    assert reason(HOST.system.virtualisation) == "not_collected"

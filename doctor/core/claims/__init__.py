"""Claims: named statements about a host, each true, false or untold, that causes are built from.

`matrices/causes.yaml` says which claims make a cause and which rule it out; the words are defined
here, once. A claim that rests on a fact nobody read is untold (None), never false.
"""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.bus import (
    bar_unmapped,
    gpu_fallen,
    gpu_lost_said,
    gpu_not_responding,
    gpu_on_bus,
    gsp_blocks,
    no_gpu_on_bus,
    nouveau_bound,
    nvswitch_present,
    vfio_bound_all,
)
from doctor.core.claims.claimed import UNTOLD, Claim, Claimed, clock_limit, gpu_flag, said
from doctor.core.claims.modules import (
    compiler_blocks,
    compiler_differs,
    compiler_missing,
    compiler_unfit,
    dkms_blames_compiler,
    dkms_failed,
    dkms_registered,
    driver_packages_installed,
    headers_block,
    headers_missing,
    load_not_tried,
    module_blacklisted,
    module_for_other_kernel,
    module_loaded,
    module_nowhere,
    module_on_disk,
    not_built_here,
    packages_half_installed,
    secure_boot_enabled,
    signature_blocks,
    signature_rejected,
    symbol_missing,
)
from doctor.core.claims.running import (
    cuinit_is,
    cuinit_works,
    device_nodes_missing,
    hmm_enabled,
    libcuda_is_compat,
    libcuda_missing,
    libcuda_older_than_driver,
    not_injected,
    nvml_answers,
    nvml_sees_no_gpu,
    on_wsl,
    place_is,
    recovery_asked,
    some_gpu_down,
    updates_unfenced,
    uvm_loaded,
    uvm_not_ready,
)
from doctor.core.claims.stack import (
    disk_matches_loaded,
    disk_matches_userspace,
    flavour_conflict,
    flavour_open,
    flavour_proprietary,
    gpu_dropped,
    gpu_needs_open,
    gpu_refuses_open,
    gpu_too_new,
    half_upgraded,
    libraries_unowned,
    toolkit_needs_newer_driver,
    userspace_differs,
)

__all__ = ["CLAIMS", "Claim", "Claimed", "evaluate"]

CLAIMS: dict[str, Claim] = {
    "gpu_on_bus": gpu_on_bus,
    "no_gpu_on_bus": no_gpu_on_bus,
    "nouveau_bound": nouveau_bound,
    "vfio_bound_all": vfio_bound_all,
    "gpu_not_responding": gpu_not_responding,
    "gpu_lost_said": gpu_lost_said,
    "bar_unmapped": bar_unmapped,
    "bar_said": said("bar"),
    "nvswitch_present": nvswitch_present,
    "module_loaded": module_loaded,
    "module_on_disk": module_on_disk,
    "module_for_other_kernel": module_for_other_kernel,
    "module_nowhere": module_nowhere,
    "headers_missing": headers_missing,
    "dkms_registered": dkms_registered,
    "dkms_failed": dkms_failed,
    "compiler_missing": compiler_missing,
    "compiler_differs": compiler_differs,
    "secure_boot_enabled": secure_boot_enabled,
    "signature_rejected": signature_rejected,
    "symbol_missing": symbol_missing,
    "driver_packages_installed": driver_packages_installed,
    "packages_half_installed": packages_half_installed,
    "userspace_differs": userspace_differs,
    "disk_matches_userspace": disk_matches_userspace,
    "disk_matches_loaded": disk_matches_loaded,
    "libraries_unowned": libraries_unowned,
    "flavour_open": flavour_open,
    "flavour_proprietary": flavour_proprietary,
    "gpu_needs_open": gpu_needs_open,
    "gpu_refuses_open": gpu_refuses_open,
    "gpu_dropped": gpu_dropped,
    "gpu_too_new": gpu_too_new,
    "legacy_said": said("legacy_gpu"),
    "nvml_answers": nvml_answers,
    "nvml_sees_no_gpu": nvml_sees_no_gpu,
    "cuinit_works": cuinit_works,
    "cuinit_not_initialized": cuinit_is(3),
    "cuinit_unknown_error": cuinit_is(999),
    "cuinit_mismatch": cuinit_is(803),
    "cuinit_compat_unsupported": cuinit_is(804),
    "cuinit_not_ready": cuinit_is(802),
    "uvm_loaded": uvm_loaded,
    "uvm_not_ready": uvm_not_ready,
    "hmm_enabled": hmm_enabled,
    "device_nodes_missing": device_nodes_missing,
    "libcuda_is_compat": libcuda_is_compat,
    "libcuda_older_than_driver": libcuda_older_than_driver,
    "libcuda_missing": libcuda_missing,
    "remap_pending": gpu_flag("remap_pending", "row remap pending"),
    "remap_failure": gpu_flag("remap_failure", "row remap failed"),
    "retired_pages_pending": gpu_flag("retired_pages_pending", "page retirement pending"),
    "hw_thermal_slowdown": clock_limit("hw_thermal_slowdown", "hardware thermal slowdown is active"),
    "hw_power_brake": clock_limit("hw_power_brake_slowdown", "the power brake is asserted"),
    "gsp_failed": said("gsp"),
    "gsp_blocks": gsp_blocks,
    "in_container": place_is("container"),
    "on_wsl": on_wsl,
    "toolkit_needs_newer_driver": toolkit_needs_newer_driver,
    "updates_unfenced": updates_unfenced,
    "gpu_fallen": gpu_fallen,
    "flavour_conflict": flavour_conflict,
    "half_upgraded": half_upgraded,
    "headers_block": headers_block,
    "signature_blocks": signature_blocks,
    "module_blacklisted": module_blacklisted,
    "dkms_blames_compiler": dkms_blames_compiler,
    "compiler_blocks": compiler_blocks,
    "compiler_unfit": compiler_unfit,
    "not_built_here": not_built_here,
    "load_not_tried": load_not_tried,
    "not_injected": not_injected,
    "some_gpu_down": some_gpu_down,
    "recovery_asked": recovery_asked,
}


def evaluate(name: str, case: Case) -> Claimed:
    """What a claim comes to on a case; `not NAME` negates. Raises KeyError on a name that is not defined."""
    word, _, rest = name.partition(" ")
    if word != "not":
        return CLAIMS[name](case)
    inner = CLAIMS[rest](case)
    if inner.holds is None:
        return UNTOLD
    return Claimed(holds=not inner.holds, because=inner.because if not inner.holds else "")

"""States of the checks of the driver: what is loaded, whose it is, how it is set up."""

from __future__ import annotations

from doctor.core.host import ModprobeLine
from doctor.core.versions import Dotted
from tests.core.checks.states.base import States
from tests.core.hosts import (
    OLD_DRIVER,
    P40,
    RTX_5090,
    device,
    failing_probe,
    gpu,
    having,
    healthy,
    in_container,
    library,
    lost_gpu,
    no_driver,
    nodes,
    package,
    packages_of,
    put,
    reports,
    without_module,
)
from tests.core.pairs_machine import GSP_TIMEOUT, NVIDIA, R525, UBUNTU, driven_by, driver_from, events

_UNLOADED = without_module(healthy())
_REFUSED = having(
    reports(healthy(), error="Driver/library version mismatch", error_code=18, gpus=()),
    {"cuda.probe": failing_probe(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH")},
)
_STOPPED = put(
    reports(healthy(), error="Unknown Error", error_code=999, gpus=()),
    "cuda.probe",
    failing_probe(999, "CUDA_ERROR_UNKNOWN"),
)
_NO_NODES = put(_STOPPED, "driver.device_nodes", ())
_BY_HAND = library(
    "libcuda.so.1", OLD_DRIVER, path="/usr/local/lib/libcuda.so.580.95.05", package="", is_default=False
)
_MSI_OFF = ModprobeLine(
    file="/etc/modprobe.d/x.conf", directive="options", module="nvidia", arguments="NVreg_EnableMSI=0"
)

STATES: dict[str, States] = {
    "driver.binding": States(bad=device(healthy(), driver="nouveau")),
    "driver.module_loaded": States(bad=_UNLOADED),
    "driver.flavour": States(bad=device(lost_gpu(healthy(), "0000:41:00.0"), device_id=P40)),
    "driver.branch": States(
        bad=put(
            device(lost_gpu(healthy(), "0000:41:00.0"), device_id=RTX_5090),
            "driver.kernel_version",
            Dotted("550.163.01"),
        )
    ),
    "driver.userspace_match": States(bad=put(_REFUSED, "driver.kernel_version", OLD_DRIVER)),
    "driver.nvml": States(bad=_REFUSED),
    "driver.gpu_count": States(bad=lost_gpu(healthy())),
    "driver.device_nodes": States(bad=_NO_NODES),
    "driver.uvm": States(bad=put(_STOPPED, "driver.device_nodes", nodes("/dev/nvidiactl"))),
    "driver.packages": States(
        bad=put(healthy(), "packages", packages_of(package("nvidia-dkms-580-open", state="half-configured"))),
        skip=in_container(),
    ),
    "driver.install_source": States(
        bad=put(healthy(), "driver.libraries", (library("libnvidia-ml.so.1"), _BY_HAND)), skip=no_driver()
    ),
    "driver.known_bug": States(bad=events(driven_by(healthy(), R525), GSP_TIMEOUT)),
    "driver.gsp_firmware": States(
        ok=gpu(healthy(), gsp_firmware="580.178.04"), bad=gpu(healthy(), gsp_firmware="580.95.05")
    ),
    "driver.module_parameters": States(ok=put(healthy(), "driver.parameters", {"EnableMSI": "0"})),
    "driver.options_in_force": States(
        ok=having(healthy(), {"kernel.module_options": (_MSI_OFF,), "driver.parameters": {"EnableMSI": "1"}})
    ),
    "driver.package_origins": States(
        ok=driver_from(UBUNTU, UBUNTU, UBUNTU),
        bad=driver_from(UBUNTU, NVIDIA, UBUNTU),
        skip=put(healthy(), "packages", packages_of()),
    ),
}

__all__ = ["STATES"]

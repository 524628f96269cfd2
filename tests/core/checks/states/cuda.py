"""States of the checks of CUDA on the host."""

from __future__ import annotations

from doctor.core.host import CudaProbe, Toolkit
from doctor.core.versions import Dotted
from tests.core.checks.states.base import States
from tests.core.hosts import (
    NOT_THERE,
    P40,
    compat_library,
    devices,
    failing_probe,
    having,
    healthy,
    put,
    without,
)

_OTHER_NVCC = Toolkit(
    path="/usr/local/cuda-13.0", version=Dotted("13.0"), nvcc_release=Dotted("12.4"), is_default=True
)
_COMPAT = compat_library(Dotted("590.48.01"))

STATES: dict[str, States] = {
    "cuda.init": States(
        bad=put(healthy(), "cuda.probe", failing_probe(999, "CUDA_ERROR_UNKNOWN")),
        unknown=put(healthy(), "cuda.probe", CudaProbe()),
        skip=without(healthy(), ["cuda.probe"]),
    ),
    "cuda.libcuda": States(
        bad=put(
            healthy(),
            "cuda.probe",
            failing_probe(803, "CUDA_ERROR", library_path=_COMPAT.path, library_version=Dotted("590.48.01")),
        ),
        unknown=having(without(healthy(), ["cuda.probe"]), {"driver.libraries": (_COMPAT,)}),
    ),
    "cuda.driver_floor": States(bad=put(healthy(), "driver.kernel_version", Dotted("550.163.01"))),
    "cuda.toolkit_targets": States(bad=devices(healthy(), device_id=P40)),
    "cuda.toolkit_link": States(
        bad=put(healthy(), "cuda.toolkits", (_OTHER_NVCC,)), skip=put(healthy(), "cuda.toolkits", NOT_THERE)
    ),
}

__all__ = ["STATES"]

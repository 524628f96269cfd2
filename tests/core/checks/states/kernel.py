"""States of the checks of the kernel side."""

from __future__ import annotations

from doctor.core.host import BootLog, ModprobeLine
from tests.core.checks.states.base import States
from tests.core.hosts import (
    FIRST,
    OTHER_RELEASE,
    RELEASE,
    dkms_build,
    fallen,
    having,
    healthy,
    installed_kernel,
    known_of,
    loaded_modules,
    package,
    packages_of,
    put,
    said,
    without,
    without_module,
    without_module_file,
)

_UNLOADED = without_module(healthy())
_UNBUILT = without_module_file(_UNLOADED)
_ERROR = "nv.c:1: error: too few arguments to function"
_FAILED = (dkms_build(state="failed", failure=_ERROR, log="/var/lib/dkms/nvidia/make.log"),)
_NEW_KERNEL = "6.17.0-8-generic"
_BLACKLIST = ModprobeLine(file="/etc/modprobe.d/nvidia.conf", directive="blacklist", module="nouveau")
_NOUVEAU = put(healthy(), "kernel.modules", loaded_modules("nvidia_uvm", "nvidia", "nouveau"))
_OLD_XIDS = BootLog(index=-1, messages=(), xids=fallen(FIRST))

_NO_HEADERS = installed_kernel(RELEASE, has_headers=False, nvidia_modules=known_of(()))
#: A second kernel that the next boot takes.
_TWO_KERNELS = having(
    healthy(),
    {
        "kernel.next_release": OTHER_RELEASE,
        "kernel.installed": (installed_kernel(RELEASE), installed_kernel(OTHER_RELEASE)),
    },
)

STATES: dict[str, States] = {
    "kernel.module_on_disk": States(bad=_UNBUILT, unknown=without(_UNLOADED, ["kernel.installed"], "denied")),
    "kernel.headers": States(bad=put(_UNBUILT, "kernel.installed", (_NO_HEADERS,))),
    "kernel.dkms": States(bad=put(_UNBUILT, "kernel.dkms", _FAILED)),
    "kernel.module_signature": States(
        bad=having(
            said(
                _UNLOADED, ("module_signature_rejected", "Loading of module with unavailable key is rejected")
            ),
            {"kernel.secure_boot": "enabled", "kernel.lockdown": "integrity"},
        ),
        unknown=without(_UNLOADED, ["kernel.secure_boot", "kernel.lockdown"], "denied"),
    ),
    "kernel.next_boot": States(
        ok=_TWO_KERNELS,
        bad=put(
            _TWO_KERNELS,
            "kernel.installed",
            (installed_kernel(RELEASE), installed_kernel(OTHER_RELEASE, nvidia_modules=known_of(()))),
        ),
        unknown=put(_TWO_KERNELS, "kernel.installed", (installed_kernel(RELEASE),)),
        skip=healthy(),
    ),
    "kernel.messages": States(
        bad=said(_UNLOADED, ("open_modules_required", "NVRM: installed in this system requires open modules"))
    ),
    "kernel.headers_version": States(
        bad=having(
            _UNBUILT,
            {
                "kernel.installed": (_NO_HEADERS,),
                "packages": packages_of(package(f"linux-headers-{OTHER_RELEASE}")),
            },
        )
    ),
    "kernel.compiler": States(
        bad=having(
            _UNBUILT,
            {
                "kernel.compiler_on_path": "gcc (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0",
                "kernel.dkms": (
                    dkms_build(
                        state="failed",
                        failure="gcc: error: unrecognized command-line option '-ftrivial-auto-var-init=zero'",
                    ),
                ),
            },
        )
    ),
    "kernel.driver_builds": States(
        bad=having(
            _UNBUILT,
            {
                "kernel.release": _NEW_KERNEL,
                "kernel.next_release": _NEW_KERNEL,
                "kernel.installed": (installed_kernel(_NEW_KERNEL, nvidia_modules=known_of(())),),
                "kernel.dkms": (dkms_build(version="550.54.14", kernel=_NEW_KERNEL, state="added"),),
            },
        )
    ),
    "kernel.nouveau_blacklist": States(bad=put(_NOUVEAU, "kernel.module_options", (_BLACKLIST,))),
    "kernel.history": States(
        ok=put(healthy(), "kernel.logs", (BootLog(index=0, messages=()), _OLD_XIDS)),
    ),
}

__all__ = ["STATES"]

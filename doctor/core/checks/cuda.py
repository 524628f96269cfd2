"""Checks of CUDA: does it start, which libcuda, does the driver speak what the toolkits need."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, failed, passed, skipped, unknown, warned
from doctor.core.checks.applies import not_jetson, not_wsl, on_gpu_host
from doctor.core.checks.told import fact_untold
from doctor.core.claims.listed import is_beside
from doctor.core.claims.running import driver_in_container, nix_libcuda
from doctor.core.host import Absent, CudaProbe, Library, Toolkit, is_not_there, known
from doctor.core.matrix import ToolkitRow
from doctor.core.versions import Dotted
from doctor.core.views import default_library, same_version

__all__ = ["CHECKS", "NOT_ASKED"]

#: What `cuda.init` finds where nobody asked: a ready verdict then reaches as far as the evidence.
NOT_ASKED = "cuInit was not asked in this evidence"


@check("cuda.init", "cuInit", applies=(on_gpu_host,), critical=True)
def init(case: Case) -> Iterator[Outcome]:
    """`cuInit(0)` succeeds in a process of its own: CUDA programs can start."""
    fact = case.host.cuda.probe
    if isinstance(fact, Absent):
        yield _of_caller(case) or _of_other_place(case) or _not_probed(fact)
        return
    is_missing = fact.value.result is None and bool(fact.value.error)
    elsewhere = (_of_caller(case) or _of_other_place(case)) if is_missing else None
    yield elsewhere or _probe_outcome(fact.value)


def _of_other_place(case: Case) -> Outcome | None:
    """Where the libraries lie in a driver container, or in NixOS's own place: plain processes find none."""
    managed, nix = driver_in_container(case), nix_libcuda(case)
    if nix and not managed.holds:
        text = f"it lies at `{nix}`, where programs of NixOS look for it"
        return unknown("the loader finds no libcuda", wanted="cuInit returns 0", why=(text,))
    if not managed.holds:
        return None
    why = (managed.because, "ask inside a container that was given the GPU")
    return unknown("libcuda lies in a driver container", wanted="cuInit returns 0", why=why)


def _of_caller(case: Case) -> Outcome | None:
    """Where only the caller's LD_LIBRARY_PATH leads to a libcuda that starts."""
    other = known(case.host.cuda.probe_caller)
    if other is None or other.result != 0:
        return None
    why = ("a service started without that variable finds no libcuda",)
    found = f"only with LD_LIBRARY_PATH: libcuda from `{other.library_path}`"
    return warned(found, wanted="cuInit returns 0", why=why)


def _not_probed(fact: Absent) -> Outcome:
    if fact.reason == "not_collected":
        # Foreign reports never ask it; what they do not hold cannot leave a verdict open.
        return skipped(NOT_ASKED)
    if fact.reason == "not_installed":
        return failed("libcuda.so.1 is not on the host", wanted="cuInit returns 0")
    return unknown("cuInit gave no answer", wanted="cuInit returns 0", why=(fact.detail or fact.reason,))


def _probe_outcome(probe: CudaProbe) -> Outcome:
    wanted = "cuInit returns 0"
    where = f"libcuda from `{probe.library_path}`"
    if probe.result == 0:
        devices = f"{probe.device_count} device(s)" if probe.device_count is not None else "it starts"
        return passed(f"{devices}, {where}", wanted=wanted)
    if probe.result is None and probe.error:
        return failed(f"libcuda.so.1 cannot be loaded: {probe.error}", wanted=wanted)
    if probe.result is None:
        return unknown("it did not return", wanted=wanted)
    why = (where,) if probe.library_path else ()
    return failed(f"{probe.result} {probe.name}".rstrip(), wanted=wanted, why=why)


@check("cuda.libcuda", "libcuda of the driver", applies=(on_gpu_host, not_wsl, not_jetson))
def libcuda(case: Case) -> Iterator[Outcome]:
    """The libcuda that programs load belongs to the loaded driver, or is a newer compat library."""
    probe, driver = known(case.host.cuda.probe), known(case.host.driver.kernel_version)
    path, version = _libcuda(case, probe)
    if driver is None:
        yield fact_untold(
            case.host.driver.kernel_version, "the driver's version", absent="the module is not loaded"
        )
    elif version is None:
        fact, words = case.host.driver.libraries, "libcuda has no version to compare"
        yield skipped(words) if probe else fact_untold(fact, "the driver's libraries", absent=words)
    elif same_version(version, driver):
        yield passed(f"{version} from `{path}`")
    elif probe is not None and probe.result == 0:
        why = ("forward compatibility is in use",) if "/compat/" in path else ()
        yield passed(f"{version} from `{path}` works with driver {driver}", why=why)
    elif "/compat/" in path and probe is None:
        yield unknown(f"compat library {version} from `{path}`; whether it works was not asked")
    elif "/compat/" in path:
        yield failed(f"compat library {version} from `{path}`", wanted=f"libcuda of driver {driver}")
    else:
        # A plain version difference is `driver.userspace_match`'s to tell.
        yield skipped(f"libcuda is {version}, the module {driver}: see `driver.userspace_match`")


def _libcuda(case: Case, probe: CudaProbe | None) -> tuple[str, Dotted | None]:
    if probe is not None and (probe.library_path or probe.error):
        return probe.library_path, probe.library_version
    library = default_library(case, "libcuda.so.1")
    return (library.path, library.version) if library else ("", None)


@check(
    "cuda.driver_floor",
    "driver new enough for the toolkits",
    needs=("cuda.toolkits", "driver.kernel_version"),
    applies=(on_gpu_host, not_jetson),
)
def driver_floor(case: Case) -> Iterator[Outcome]:
    """Each CUDA major has a least driver; below it programs built with that toolkit do not start."""
    driver = known(case.host.driver.kernel_version)
    toolkits = known(case.host.cuda.toolkits) or ()
    if not toolkits or driver is None:
        yield skipped("no CUDA toolkit on the host" if not toolkits else "no driver version is known")
        return
    for toolkit in toolkits:
        yield _floor_outcome(case, toolkit, driver)


def _floor_outcome(case: Case, toolkit: Toolkit, driver: Dotted) -> Outcome:
    row = case.matrix.toolkit(toolkit.version) if toolkit.version else None
    if row is None:
        name = toolkit.version or toolkit.path
        text = f"CUDA {name} is not in matrix {case.matrix.edition.name}"
        return unknown(text, subject=toolkit.path)
    if driver >= row.driver_floor:
        return _above_floor(row, toolkit, driver)
    wanted = f"driver {row.driver_floor} or newer for CUDA {row.cuda}"
    compat = _compat_for(case, toolkit)
    if compat is not None:
        why = (f"`{compat.path}` is there: forward compatibility, for data-centre GPUs only",)
        return passed(f"driver {driver}", subject=toolkit.path, wanted=wanted, why=why)
    say = failed if toolkit.is_default else warned
    return say(f"driver {driver}", subject=toolkit.path, wanted=wanted, why=row.source[:1])


def _above_floor(row: ToolkitRow, toolkit: Toolkit, driver: Dotted) -> Outcome:
    if row.driver is not None and driver < row.driver:
        why = (f"minor-version compatibility: PTX that CUDA {row.cuda} makes needs driver {row.driver}",)
        return passed(f"driver {driver}", subject=toolkit.path, why=why)
    return passed(f"driver {driver}", subject=toolkit.path)


def _compat_for(case: Case, toolkit: Toolkit) -> Library | None:
    libraries = known(case.host.driver.libraries) or ()
    products = [case.matrix.product(d.device_id) for d in case.host.gpus_on_bus]
    if any(p is not None and p.supports_forward_compat is False for p in products):
        return None
    return next(
        (x for x in libraries if x.is_compat and toolkit.version and x.path.startswith(f"{toolkit.path}/")),
        None,
    )


@check(
    "cuda.toolkit_targets",
    "toolkit compiles for the GPU",
    needs=("cuda.toolkits", "pci"),
    applies=(on_gpu_host,),
)
def toolkit_targets(case: Case) -> Iterator[Outcome]:
    """Just-in-time builds need an nvcc that knows the GPU's compute capability."""
    for toolkit in known(case.host.cuda.toolkits) or ():
        row = case.matrix.toolkit(toolkit.version) if toolkit.version else None
        if toolkit.is_default and row is not None and row.sm_targets:
            yield from _target_outcomes(case, row)
            return
    yield skipped("no default toolkit whose targets are known")


def _target_outcomes(case: Case, row: ToolkitRow) -> Iterator[Outcome]:
    for device_id in sorted({d.device_id for d in case.host.gpus_on_bus if not is_beside(case, d)}):
        gpu = case.matrix.gpu(device_id)
        if gpu is None:
            yield unknown(f"{device_id} is not in the matrix", subject=device_id)
        elif gpu.compute_capability.replace(".", "") in row.sm_targets:
            yield passed(f"CUDA {row.cuda} knows {gpu.compute_capability}", subject=device_id)
        else:
            yield warned(
                f"CUDA {row.cuda} does not know compute capability {gpu.compute_capability}",
                subject=device_id,
                wanted=f"a toolkit with sm_{gpu.compute_capability.replace('.', '')} for {gpu.name}",
                why=("only just-in-time builds need it; prebuilt engines do not", *row.source[-1:]),
            )


@check("cuda.toolkit_link", "default toolkit consistent", needs=("cuda.toolkits",))
def toolkit_link(case: Case) -> Iterator[Outcome]:
    """`/usr/local/cuda` and the nvcc in it are of one version."""
    if is_not_there(case.host.cuda.toolkits) or not known(case.host.cuda.toolkits):
        yield skipped("no CUDA toolkit on the host")
        return
    for toolkit in known(case.host.cuda.toolkits) or ():
        version, nvcc = toolkit.version, toolkit.nvcc_release
        if version and nvcc and version.parts[:2] != nvcc.parts[:2]:
            yield warned(f"nvcc says {nvcc}", subject=toolkit.path, wanted=f"release {version}")
        else:
            yield passed(str(version or ""), subject=toolkit.path)


CHECKS = (init, libcuda, driver_floor, toolkit_targets, toolkit_link)

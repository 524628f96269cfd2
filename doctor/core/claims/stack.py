"""Claims about versions that must fit: module and libraries, driver and GPU, driver and CUDA."""

from __future__ import annotations

from doctor.core.check import Case
from doctor.core.claims.claimed import UNTOLD, Claimed, either, no, yes
from doctor.core.claims.listed import is_beside
from doctor.core.claims.modules import packages_half_installed
from doctor.core.claims.running import cuinit_works, nvml_answers
from doctor.core.host import KernelMessage, PciDevice, known
from doctor.core.pattern import pattern
from doctor.core.views import (
    driver_major,
    first_branch,
    is_stub,
    last_branch,
    messages,
    nvidia_file,
    report,
    running_kernel,
    same_version,
    working_gpus,
)


def userspace_differs(case: Case) -> Claimed:
    if case.virtualisation == "wsl2":
        return no("under WSL2 library and Windows driver have versions of their own")
    kernel, user = known(case.host.driver.kernel_version), known(case.host.driver.userspace_version)
    if kernel is None or user is None:
        refused = report(case)
        # NVML_ERROR_LIB_RM_VERSION_MISMATCH: the library itself compared the two.
        if refused and refused.error_code == 18:
            return yes("NVML refuses: driver and library versions differ")
        return UNTOLD
    if cuinit_works(case).holds and nvml_answers(case).holds:
        # Both refuse a module of another version: these libraries are not the ones in use.
        return no()
    return either(
        not same_version(kernel, user), f"loaded module is {kernel}, user-space libraries are {user}"
    )


def disk_matches_userspace(case: Case) -> Claimed:
    """The module on disk is the one the libraries want: a reload or reboot is enough."""
    user, found = known(case.host.driver.userspace_version), nvidia_file(running_kernel(case))
    next_kernel = known(case.host.kernel.next_release)
    for kernel in known(case.host.kernel.installed) or ():
        if kernel.release == next_kernel and nvidia_file(kernel):
            found = nvidia_file(kernel)
    if user is None or found is None or found.version is None:
        return UNTOLD
    return either(
        same_version(user, found.version),
        f"the module on disk for {found.kernel} is {found.version}, as the libraries want",
    )


def disk_matches_loaded(case: Case) -> Claimed:
    kernel, found = known(case.host.driver.kernel_version), nvidia_file(running_kernel(case))
    if kernel is None or found is None or found.version is None:
        return UNTOLD
    return either(same_version(kernel, found.version), f"the module on disk is {found.version} as well")


def libraries_unowned(case: Case) -> Claimed:
    """Driver libraries that no package owns although driver packages are installed."""
    mine = [x for x in known(case.host.driver.libraries) or () if not x.is_compat]
    if not mine or all(x.package is None for x in mine):
        return UNTOLD
    stray = [x.path for x in mine if x.package == "" and not is_stub(x)]
    return either(bool(stray), f"no package owns `{stray[0]}`" if stray else "")


def _in_question(case: Case) -> list[PciDevice]:
    """GPUs that the driver should drive and does not: what it lists, it drives, whatever the matrix says."""
    working = working_gpus(case)
    return [d for d in case.host.gpus_on_bus if d.address not in working and not is_beside(case, d)]


def _gpus_with(case: Case, wanted: str) -> list[PciDevice]:
    return [d for d in _in_question(case) if case.matrix.open_module(d.device_id) == wanted]


def _refused(case: Case, kind: str) -> KernelMessage | None:
    """The module's own word, in this boot, that it does not drive a card; not of one that it lists now."""
    settled = {d.address for d in case.host.gpus_on_bus} - {d.address for d in _in_question(case)}
    settled |= working_gpus(case)
    # A line without an address means no card in particular once some card works.
    settled |= {""} if settled else set()
    return next((m for m in messages(case, kind) if m.gpu not in settled), None)


def _all_in_matrix(case: Case) -> bool:
    """Whether the bus was read and the matrix knows every GPU on it that does not work."""
    return bool(case.host.gpus_on_bus) and all(case.matrix.gpu(d.device_id) for d in _in_question(case))


def flavour_open(case: Case) -> Claimed:
    return _flavour(case, "open")


def flavour_proprietary(case: Case) -> Claimed:
    return _flavour(case, "proprietary")


_FLAVOURS = (("open", flavour_open), ("proprietary", flavour_proprietary))


def _flavour(case: Case, wanted: str) -> Claimed:
    flavour = known(case.host.driver.flavour)
    if flavour is None:
        found = nvidia_file(running_kernel(case))
        flavour = found.flavour if found else None
    if flavour is None:
        return _flavour_said(case, wanted)
    return either(flavour == wanted, f"the kernel modules are the {flavour} ones")


def _flavour_said(case: Case, wanted: str) -> Claimed:
    """Each flavour has words that only it says: the open one names itself, the other asks for it."""
    by_open = next((m for m in messages(case, "unsupported_gpu") if "open nvidia.ko" in m.text), None)
    by_other = next(messages(case, "open_modules_required"), None)
    said = by_open or by_other
    if said is None or (by_open and by_other):
        return UNTOLD
    is_wanted = wanted == ("open" if by_open else "proprietary")
    return either(is_wanted, f"the {wanted} modules said: {said.text}")


def gpu_needs_open(case: Case) -> Claimed:
    said = _refused(case, "open_modules_required")
    if said:
        return yes(f"kernel: {said.text}")
    gpus = _gpus_with(case, "required")
    names = ", ".join(f"{d.address} [{d.device_id}]" for d in gpus)
    if gpus:
        return yes(f"{names} runs with the open modules only")
    return no() if _all_in_matrix(case) else UNTOLD


def gpu_refuses_open(case: Case) -> Claimed:
    said = _refused(case, "unsupported_gpu")
    if said and "open" in said.text:
        return yes(f"kernel: {said.text}")
    gpus = _gpus_with(case, "unsupported")
    names = ", ".join(f"{d.address} [{d.device_id}]" for d in gpus)
    if gpus:
        return yes(f"{names} has no GSP and needs the proprietary modules")
    return no() if _all_in_matrix(case) else UNTOLD


_BY_RELEASE = pattern(r"not supported by the NVIDIA (\d{3})\.[\d.]+ driver release")


def _said_unsupported(case: Case) -> tuple[KernelMessage, int | None, int | None, int] | None:
    """A release's word that it does not drive a card, the card's first and last branch, and the release's.

    The words are the same for a card that is too old and for one that is too new: the matrix tells.
    """
    said = _refused(case, "unsupported_gpu")
    found = _BY_RELEASE.search(said.text) if said else None
    if said is None or found is None:
        return None
    device = next((d for d in case.host.gpus_on_bus if d.address == said.gpu), None)
    first, last = case.matrix.branches_for(said.device_id or (device.device_id if device else ""))
    return said, first, last, int(found.group(1))


def gpu_dropped(case: Case) -> Claimed:
    said, major = _refused(case, "legacy_gpu"), driver_major(case)
    if said:
        return yes(f"kernel: {said.text}")
    if (word := _said_unsupported(case)) and word[2] is not None and word[3] > word[2]:
        return yes(f"kernel: {word[0].text}; R{word[2]} is the last branch for this GPU")
    if major is None or not case.host.gpus_on_bus:
        return UNTOLD
    for device in _in_question(case):
        last = last_branch(case, device.device_id)
        if last is not None and major > last:
            name = f"{device.address} [{device.device_id}]"
            return yes(f"R{last} is the last branch for {name}; the driver is R{major}")
    return no() if _all_in_matrix(case) else UNTOLD


def gpu_too_new(case: Case) -> Claimed:
    major = driver_major(case)
    if (word := _said_unsupported(case)) and word[1] is not None and word[3] < word[1]:
        return yes(f"kernel: {word[0].text}; R{word[1]} is the first branch for this GPU")
    if major is None or not case.host.gpus_on_bus:
        return UNTOLD
    for device in _in_question(case):
        first = first_branch(case, device.device_id)
        if first is not None and major < first:
            name = f"{device.address} [{device.device_id}]"
            return yes(f"R{first} is the first branch for {name}; the driver is R{major}")
    return no() if _all_in_matrix(case) else UNTOLD


def toolkit_needs_newer_driver(case: Case) -> Claimed:
    driver, toolkits = known(case.host.driver.kernel_version), known(case.host.cuda.toolkits)
    if driver is None or toolkits is None:
        return UNTOLD
    for toolkit in toolkits:
        row = case.matrix.toolkit(toolkit.version) if toolkit.version else None
        if row is not None and toolkit.is_default and driver < row.driver_floor:
            return yes(f"CUDA {toolkit.version} needs driver {row.driver_floor} or newer; it is {driver}")
    return no()


def unfit_cards(case: Case) -> frozenset[str]:
    """Cards that the loaded modules do not drive, and do not list: what they report follows from that.

    By their flavour or their branch. Where GB10 meets the proprietary modules it reports Xid 169, and no
    card hangs (start-technologies pull request 3693).
    """
    running = {flavour for flavour, runs in _FLAVOURS if runs(case).holds}
    major, cards = driver_major(case), set[str]()
    for device in _in_question(case):
        refused = {"required": "proprietary", "unsupported": "open"}.get(
            case.matrix.open_module(device.device_id) or ""
        )
        first, last = case.matrix.branches_for(device.device_id)
        is_outside = major is not None and ((first or 0) > major or (last or major) < major)
        if refused in running or is_outside:
            cards.add(device.address)
    return frozenset(cards)


def half_upgraded(case: Case) -> Claimed:
    """Packages stand half-way and the module on disk is still the loaded one: a reboot mends nothing."""
    half, same = packages_half_installed(case), disk_matches_loaded(case)
    if half.holds and same.holds:
        return yes(half.because)
    return no() if half.holds is False or same.holds is False else UNTOLD


def flavour_conflict(case: Case) -> Claimed:
    """A GPU and the flavour of the modules exclude each other."""
    for needs, runs in ((gpu_needs_open, flavour_proprietary), (gpu_refuses_open, flavour_open)):
        wanted, running = needs(case), runs(case)
        if wanted.holds and running.holds:
            return yes(f"{wanted.because}; {running.because}")
    told = _all_in_matrix(case) and flavour_open(case).holds is not None
    return no() if told else UNTOLD

"""Checks of where packages come from: entries that conflict, keys, locks, streams, a reboot that is due."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed, skipped, warned
from doctor.core.checks.applies import on_own_kernel
from doctor.core.checks.told import fact_untold
from doctor.core.claims.setup import duplicate_entries, entries_of_unread_keys, keyless_entries, lock_held
from doctor.core.host import is_not_there, known
from doctor.core.pattern import pattern
from doctor.core.views import driver_major

__all__ = ["CHECKS"]

_HERE = (on_own_kernel,)
#: `nvidia-driver:580-open`, `:580-dkms`, `:580`; `latest-dkms` and `open-dkms` follow whatever is newest.
_BRANCH = pattern(r"(\d{3})(?:-.*)?")


@check("system.repositories", "package sources agree", needs=("machine.repositories",), applies=_HERE)
def repositories(case: Case) -> Iterator[Outcome]:
    """Two entries of one repository with different keys: apt then reads no source at all."""
    found = duplicate_entries(case)
    for entry in found:
        why = ("every call of apt fails until one of the entries is gone",)
        place, _, words = entry.partition(": ")
        yield warned(words, subject=place, wanted="one entry a repository", why=why)
    if not found:
        entries = known(case.host.machine.repositories) or ()
        count = len(entries)
        yield passed(f"{count} read, and no two of them conflict" if count else "none of the GPU stack")


@check("system.repository_keys", "keys of package sources", needs=("machine.repositories",), applies=_HERE)
def repository_keys(case: Case) -> Iterator[Outcome]:
    """The keyring that an entry names is on disk; without it the repository counts as unsigned."""
    found = keyless_entries(case)
    for entry in found:
        why = ("the package manager refuses the repository until its key is there",)
        yield warned(entry, subject=entry.split("`")[1], wanted="the keyring on disk", why=why)
    if not found:
        told = [e for e in known(case.host.machine.repositories) or () if e.key_present is not None]
        unread = entries_of_unread_keys(case)
        common = (
            (f"of `{unread[0]}` the keys of the whole system count, which were not read",) if unread else ()
        )
        words = "each keyring that an entry names is there"
        yield passed(words, why=common) if told else skipped("no entry names a keyring")


@check("system.package_lock", "package manager free", needs=("machine.package_locks",), applies=_HERE)
def package_lock(case: Case) -> Iterator[Outcome]:
    """Whether somebody installs at this moment. It ends by itself: information, and a reason to wait."""
    held = lock_held(case)
    if held.holds:
        why = ("wait for it before anything is installed; the lock is never removed by hand",)
        yield passed(held.because, why=why)
    else:
        yield passed("nobody holds a lock")


@check(
    "system.module_stream", "driver stream fits the driver", needs=("machine.module_streams",), applies=_HERE
)
def module_stream(case: Case) -> Iterator[Outcome]:
    """The dnf stream in force against the driver that is installed: the next update follows the stream."""
    streams = [s for s in known(case.host.machine.module_streams) or () if s.module == "nvidia-driver"]
    enabled, major = [s.stream for s in streams if s.state == "enabled"], driver_major(case)
    if is_not_there(case.host.machine.module_streams):
        yield skipped("dnf keeps no streams here")
        return
    if not enabled:
        yield passed("no stream of `nvidia-driver` is enabled")
    for stream in enabled:
        branch = _BRANCH.fullmatch(stream)
        if branch and major is None:
            version, words = case.host.driver.userspace_version, f"stream `{stream}`, and no driver yet"
            yield fact_untold(version, "the driver's version", absent=words, subject=stream)
            continue
        if branch and major is not None and int(branch.group(1)) != major:
            why = ("`dnf update` moves the driver to the stream's branch",)
            text = f"stream `{stream}`, driver R{major}"
            yield warned(text, subject=stream, wanted=f"a stream of R{major}", why=why)
        else:
            yield passed(f"stream `{stream}`", subject=stream)


@check("system.reboot_required", "no reboot due", needs=("packages",), applies=_HERE)
def reboot_required(case: Case) -> Iterator[Outcome]:
    """The package manager's mark. Information: whether the driver waits for it, other checks say."""
    packages = known(case.host.packages)
    mark = packages.reboot_required if packages else case.host.packages
    due = known(packages.reboot_required) if packages else None
    if due is None:
        yield fact_untold(mark, "the mark of a reboot", absent="nothing here keeps such a mark")
    elif due:
        yield passed("a reboot is due", why=("updated packages wait for it",))
    else:
        yield passed("none is due")


CHECKS = (repositories, repository_keys, package_lock, module_stream, reboot_required)

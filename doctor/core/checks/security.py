"""Checks of what could change or open the host behind the admin's back."""

from __future__ import annotations

from collections.abc import Iterator

from doctor.core.check import Case, Outcome, check, passed, skipped, unknown, warned
from doctor.core.checks.applies import not_jetson, not_wsl, on_gpu_host, on_own_kernel, with_module
from doctor.core.claims.running import updates_unfenced
from doctor.core.claims.setup import is_of_stack
from doctor.core.host import known
from doctor.core.rows.relation import Advisory
from doctor.core.versions import Dotted
from doctor.core.views import DRIVER_PACKAGE

__all__ = ["CHECKS"]


@check(
    "security.automatic_updates",
    "driver fenced from automatic updates",
    needs=("packages",),
    applies=(on_gpu_host, on_own_kernel),
)
def automatic_updates(case: Case) -> Iterator[Outcome]:
    """An unattended upgrade replaces the libraries under a loaded module: the mismatch of next Monday."""
    packages = known(case.host.packages)
    if packages is None or not any(DRIVER_PACKAGE.match(p.name) for p in packages.installed):
        yield skipped("the driver does not come from packages")
        return
    claim = updates_unfenced(case)
    wanted = "driver packages held, or left out of automatic updates"
    if claim.holds:
        changes = known(packages.changes) or ()
        seen = [
            f"{c.when} {c.command}: {', '.join(c.names[:2])}" for c in changes if "unattended" in c.command
        ]
        yield warned(claim.because, wanted=wanted, why=tuple(seen[:1]))
    elif claim.holds is False:
        yield passed("held, excluded, or nothing updates by itself", wanted=wanted)
    else:
        yield unknown("whether updates run by themselves was not read", wanted=wanted)


@check(
    "security.unverified_repositories",
    "signatures of the GPU stack checked",
    needs=("machine.repositories",),
    applies=(on_own_kernel,),
)
def unverified_repositories(case: Case) -> Iterator[Outcome]:
    """Entries that switch the check off: `trusted=yes`, `gpgcheck=0`."""
    found = 0
    for entry in known(case.host.machine.repositories) or ():
        if entry.is_enabled and entry.checks_signature is False and is_of_stack(f"{entry.uri} {entry.name}"):
            found += 1
            why = ("packages run scripts as root, and the driver runs in the kernel",)
            text = f"`{entry.file}` takes packages without a signature"
            yield warned(
                text, subject=f"{entry.file} {entry.name}".strip(), wanted="signatures checked", why=why
            )
    if not found:
        yield passed("no entry of the GPU stack switches the check off")


@check(
    "security.driver_advisory",
    "driver without open bulletin",
    needs=("driver.kernel_version",),
    applies=(on_gpu_host, not_wsl, not_jetson, with_module),
)
def driver_advisory(case: Case) -> Iterator[Outcome]:
    """The release of the branch from which on no bulletin is open: a warning for the policy *harden*."""
    driver = known(case.host.driver.kernel_version)
    if driver is None:
        yield skipped("no driver version is known")
        return
    classes = _classes(case)
    rows = [
        row
        for row in case.matrix.edition.advisories
        if row.component == "driver" and (row.products == "all" or row.products in classes) and row.fixed_in
    ]
    open_rows = [row for row in rows if _is_open(row, driver)]
    fixes = [fix for row in open_rows for fix in row.fixed_in if fix.major == driver.major]
    if open_rows:
        count = (
            "one open bulletin" if len(open_rows) == 1 else f"{len(open_rows)} open bulletins, the last one"
        )
        text = f"{driver} has {count} {open_rows[-1].bulletin}"
        why = f"mended in {max(fixes)}" if fixes else f"R{driver.major} got no correction"
        wanted = f"{max(fixes)} or newer" if fixes else "a branch that gets corrections"
        say = warned if case.goal.policy == "harden" else passed
        yield say(text, wanted=wanted, why=(why, *open_rows[-1].source[:1]))
    else:
        yield passed(f"none for {driver} in matrix {case.matrix.edition.name}")


def _classes(case: Case) -> set[str]:
    """The classes of the cards that are there: bulletins have floors of their own for each."""
    rows = (case.matrix.gpu(d.device_id, d.subsystem_id) for d in case.host.gpus_on_bus)
    return {case.matrix.product_class(row.name) for row in rows if row}


def _is_open(row: Advisory, driver: Dotted) -> bool:
    """A branch that a bulletin leaves out got no correction, unless it began after those it names."""
    own = next((fix for fix in row.fixed_in if fix.major == driver.major), None)
    return driver < own if own else driver.major < max(row.fixed_in).major


@check(
    "security.device_nodes",
    "device nodes owned by root",
    needs=("driver.device_nodes",),
    applies=(on_gpu_host, not_wsl, not_jetson),
)
def device_nodes(case: Case) -> Iterator[Outcome]:
    """Who owns a node may change its mode. Nodes open to everybody are the driver's default."""
    nodes = [n for n in known(case.host.driver.device_nodes) or () if n.path.startswith("/dev/nvidia")]
    foreign = [
        n for n in nodes if n.owner and n.owner.partition(":")[0] not in ("root", "0", "nobody", "65534")
    ]
    if nodes and not any(n.owner for n in nodes):
        yield skipped("who owns them was not told")
        return
    for node in foreign:
        yield warned(f"owned by {node.owner}", subject=node.path, wanted="root")
    if not foreign:
        modes = ", ".join(sorted({n.mode for n in nodes}))
        yield passed(f"{len(nodes)} nodes, mode {modes}" if nodes else "no nodes")


@check(
    "security.pending_keys",
    "no key waits for the console",
    needs=("machine.pending_keys",),
    applies=(on_gpu_host, on_own_kernel),
)
def pending_keys(case: Case) -> Iterator[Outcome]:
    """A machine owner key that was imported takes effect when a person confirms it at the next boot."""
    keys = known(case.host.machine.pending_keys) or ()
    for key in keys:
        why = ("a person confirms it at the next boot; until then modules signed with it are refused",)
        yield passed(f"`{key}` waits", subject=key, why=why)
    if not keys:
        yield passed("none")


CHECKS = (automatic_updates, unverified_repositories, driver_advisory, device_nodes, pending_keys)

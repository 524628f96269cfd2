"""The answers that a check cannot give, each with the reason: the one list of them.

`test_states.py` holds it to the code of the checks: what stands here no path of a check leads to, and an
answer that no path leads to stands here.
"""

from __future__ import annotations

from tests.core.checks.states.base import Kind

__all__ = ["NEVER"]

NEVER: dict[tuple[str, Kind], str] = {
    (
        "kernel.history",
        "bad",
    ): "counts what earlier boots logged; what is wrong now `gpu.xid` and others judge",
    ("driver.module_parameters", "bad"): "every option is a choice: it says which differ from the default",
    (
        "driver.options_in_force",
        "bad",
    ): "an option that waits for the next load is no fault: it says which wait",
    (
        "gpu.in_matrix",
        "bad",
    ): "a card that the matrix lacks is newer than it, or rare: unknown, never unsupported",
    ("gpu.memory_in_use", "bad"): "memory is there to be used: it says how much is taken and by whom",
    ("gpu.ecc_mode", "bad"): "off is a choice, and some cards have none: it says what follows",
    ("gpu.persistence", "bad"): "off is the default, and costs seconds at a start alone: it says so",
    ("fabric.not_needed", "bad"): "a service that nobody needs harms nobody, failed or not",
    ("system.nvidia_gpu", "skip"): "it is the question on which all others rest: it applies to every host",
    ("system.collection", "bad"): "what did not answer is unknown; what it would have told other checks miss",
    (
        "system.caller_paths",
        "bad",
    ): "a path of the caller's is a choice; libcuda that fails by it `cuda.init` judges",
    (
        "system.oom_kills",
        "bad",
    ): "a kill is history, and its reason may be gone: it says who died by which limit",
    (
        "system.governor",
        "bad",
    ): "`powersave` of intel_pstate and amd_pstate speeds up all the same: it says which is in force",
    ("system.numa", "bad"): "where a card hangs is how the machine is built: it says where",
    (
        "system.package_lock",
        "bad",
    ): "a lock ends by itself: it says who holds it, so that nobody starts beside it",
    (
        "system.reboot_required",
        "bad",
    ): "most updates wait without harm; those of the driver other checks judge",
    (
        "network.numa_affinity",
        "bad",
    ): "where cards are plugged is how the machine is built: it says what crosses",
    (
        "security.pending_keys",
        "bad",
    ): "a key waits for a person by design; modules it would let in others judge",
}

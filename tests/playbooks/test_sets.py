"""What a transaction may do, and the cause that a package manager's words name."""

from __future__ import annotations

import mopt_sets
import pytest


def change(name, before="", after=""):
    return {"name": name, "before": before, "after": after}


def request(install=(), remove=(), **more):
    return {
        "install": [dict(zip(("name", "version"), w.split("="), strict=False)) for w in install],
        "remove": list(remove),
        **more,
    }


CASES = {
    "exactly the plan": ([change("a", "", "1")], request(["a=1"]), {}, set(), []),
    "another version": ([change("a", "", "2")], request(["a=1"]), {}, set(), ["would bring `a` to 2, not 1"]),
    "any version where none is named": ([change("a", "", "2")], request(["a"]), {}, set(), []),
    "an addition": (
        [change("a", "", "1"), change("b", "", "1")],
        request(["a=1"]),
        {},
        set(),
        ["would add `b` 1"],
    ),
    "an allowed addition": (
        [change("a", "", "1"), change("b", "", "1")],
        request(["a=1"], extra_allowed=["b*"]),
        {},
        set(),
        [],
    ),
    "an upgrade by the way": (
        [change("b", "1", "2")],
        request(),
        {"b": ("1",)},
        set(),
        ["would change `b` 2"],
    ),
    "an allowed name is not allowed to go": (
        [change("b", "1")],
        request(extra_allowed=["*"]),
        {"b": ("1",)},
        set(),
        ["would remove `b` 1"],
    ),
    "a planned removal": ([change("b", "1")], request(remove=["b"]), {"b": ("1",)}, set(), []),
    "a removal that does not come": (
        [],
        request(remove=["b"]),
        {"b": ("1",)},
        set(),
        ["would leave `b` installed"],
    ),
    "a wish that does not come true": ([], request(["a=2"]), {"a": ("1",)}, set(), ["would leave `a 2` out"]),
    "a wish that is true already": ([], request(["a=1"]), {"a": ("1",)}, set(), []),
    "an epoch that says nothing": ([change("a", "", "1-1")], request(["a=0:1-1"]), {}, set(), []),
    "a hold": (
        [change("a", "1", "2")],
        request(["a=2"]),
        {"a": ("1",)},
        {"a"},
        ["`a` is held at 1, and the plan does not lift that"],
    ),
    "a hold that the plan lifts": (
        [change("a", "1", "2")],
        request(["a=2"], unlock=["a"]),
        {"a": ("1",)},
        {"a"},
        [],
    ),
    "what an earlier transaction takes": (
        [change("b", "1")],
        request(also_gone=["b"]),
        {"b": ("1",)},
        set(),
        [],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_plan_and_simulation(case):
    changes, asked, present, held, wanted = case
    assert mopt_sets.deviations(changes, asked, present, held) == wanted


SAID = {
    "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 812": "prov.package_lock",
    "LockError: Failed to obtain the transaction lock (logged in as: root).": "prov.package_lock",
    "E: Conflicting values set for option Signed-By regarding x": "prov.repo_duplicate_entry",
    "The following signatures: NO_PUBKEY A4B469963BF863CC": "prov.repo_key",
    'GPG keys listed for the "x" repository are not correct for this package': "prov.repo_key",
    "E: Failed to fetch https://x/InRelease  503  Gone\nE: 'x' is not signed.": "prov.mirror_unreachable",
    "E: Failed to fetch https://x/InRelease  The following signatures were invalid: x": "prov.repo_key",
    "No match for argument: kernel-devel-5.14.0-611.el9_7": "driver.headers_missing",
    "E: Version '6.8.0-60.63' for 'linux-headers-6.8.0-60-generic' was not found": "driver.headers_missing",
    "E: Unable to locate package linux-headers-6.8.0-60-generic": "driver.headers_missing",
    "Error: GPG check FAILED: Public key for x.rpm is not installed": "prov.repo_key",
    "E: Failed to fetch https://x/y.deb  Could not connect to x:443": "prov.mirror_unreachable",
    "Error: Error downloading packages:\n  Curl error (56): Failure": "prov.mirror_unreachable",
    "dpkg: cannot copy extracted data for x: No space left on device": "prov.disk_full",
    "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'": "prov.packages_half_configured",
    "Error! Bad return status for module build on kernel: 6.8.0-60-generic": "driver.dkms_build_failed",
    "E: Unable to locate package nvidia-open-590": "prov.package_renamed",
    "package nvidia-open is filtered out by modular filtering": "prov.modular_filtering",
    "nothing provides dkms needed by kmod-nvidia-open-dkms": "prov.dependency_repo_stale",
    "all went well": "",
}


@pytest.mark.parametrize("text", SAID)
def test_words_name_a_cause(text):
    assert mopt_sets.cause_of(text) == SAID[text]


def test_a_long_text_takes_no_time():
    assert mopt_sets.cause_of("a dkms " * 400_000) == ""


def test_what_changed_tells_versions_side_by_side():
    assert mopt_sets.changed({"k": ("1", "2"), "a": ("1",)}, {"k": ("2", "3"), "b": ("1",)}) == [
        change("a", "1"), change("b", "", "1"), change("k", "1", "3"),
    ]  # fmt: skip

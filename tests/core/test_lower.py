"""From a stack to staged variables: what every document holds to, and what each trap of packages asks."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from doctor.core.lower import digest_of, lower
from doctor.core.lower.ready import repository_file
from doctor.core.stages import STAGES, Variables
from doctor.report.machine import to_json
from tests.core.hosts import put
from tests.core.lowering import (
    FOLDER,
    OPEN_580,
    QUESTIONS,
    ROCKY,
    UBUNTU,
    Question,
    carried_out,
    driver_ground,
    ground,
    ground_of,
    installed,
    names,
    packages,
    packages_of,
    removed,
    stage,
    variables,
    with_host,
)

# --- what every document holds to -----------------------------------------------------------------


@pytest.mark.parametrize("name", QUESTIONS)
def test_reference_variables_are_those_of_the_rows(name: str) -> None:
    """`python -m tests.core.lowering` writes them again after a change that is meant."""
    assert (FOLDER / f"{name}.json").read_bytes() == to_json(variables(name))


def test_no_reference_is_left_over() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(QUESTIONS)


@pytest.mark.parametrize("name", QUESTIONS)
def test_stages_stand_in_their_order(name: str) -> None:
    assert tuple(one.id for one in variables(name).mopt_stages) == STAGES


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_package_is_named_once(name: str) -> None:
    counted = Counter((one.name, one.version) for one in installed(variables(name)))
    assert counted.most_common(1)[0][1] == 1
    for one in (t for s in variables(name).mopt_stages for t in s.packages):
        assert len({package.name for package in one.install}) == len(one.install)


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_driver_has_one_version_and_so_has_its_fabric(name: str) -> None:
    """All but what has numbers of its own: modules of Canonical by kernel, nvlsm, diagnostics."""
    document = variables(name)
    mine = [one for which in ("driver", "fabric") for one in packages_of(document, which) if one.version]
    want = ground(name).driver
    assert mine
    assert all(want in one.version for one in mine)


@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_is_both_held_and_pinned(name: str) -> None:
    document = variables(name)
    pins = [one for one in names(document, "driver") if one.startswith("nvidia-driver-pinning-")]
    pins += [pin.packages for pin in stage(document, "driver").pins]
    held = set(stage(document, "lock").hold)
    versioned = {
        one.name for which in ("driver", "fabric") for one in packages_of(document, which) if one.version
    }
    # The lock is on sources called after nvidia.
    pinned = {one for one in versioned if "nvidia" in one} if pins else set()
    assert not held & pinned
    assert versioned - pinned <= held


@pytest.mark.parametrize("name", QUESTIONS)
def test_undo_knows_every_path(name: str) -> None:
    document = variables(name)
    kept = set(document.mopt_capsule.files)
    for one in document.mopt_stages:
        paths = {entry.path for entry in one.files} | {pin.file for pin in one.pins}
        paths |= {repository_file(r) for r in one.repositories}
        paths |= {r.key.keyring for r in one.repositories if r.key}
        paths |= {c.config for c in one.containers if c.mode == "runtime"}
        paths |= {e.descriptor for e in one.environments}
        assert paths <= kept
    globs = document.mopt_capsule.package_patterns
    named = {one.name for one in installed(document)}
    assert all(any(fnmatchcase(one, glob) for glob in globs) for one in named)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_host_that_matches_is_left_alone(name: str) -> None:
    done = ground(name)
    again = lower(with_host(done, carried_out(variables(name), done.host)))
    assert [one.packages for one in again.mopt_stages] == [()] * len(STAGES)
    assert stage(again, "lock") == stage(variables(name), "lock")


@pytest.mark.parametrize("name", QUESTIONS)
def test_one_package_astray_brings_its_whole_set(name: str) -> None:
    done = ground(name)
    host = carried_out(variables(name), done.host)
    first = stage(variables(name), "driver").packages[-1].install[0]
    kept = msgspec.structs.replace(
        host.packages.value,  # type: ignore[union-attr]
        installed=tuple(one for one in host.packages.value.installed if one.name != first.name),  # type: ignore[union-attr]
    )
    again = lower(with_host(done, put(host, "packages", kept)))
    changed = [one for stage_ in again.mopt_stages for one in stage_.packages]
    assert [one.install for one in changed] == [stage(variables(name), "driver").packages[-1].install]
    assert not any(one.remove for one in changed)


def test_the_same_question_gives_the_same_bytes() -> None:
    question = QUESTIONS["ubuntu-24.04-h100-580-stack"]
    assert to_json(lower(ground_of(question))) == to_json(lower(ground_of(question)))


def test_the_digest_is_of_the_stages() -> None:
    one, other = variables(UBUNTU), variables("ubuntu-24.04-h100-595-open")
    assert one.mopt_plan.digest == digest_of(one.mopt_stages) != other.mopt_plan.digest
    stages = one.mopt_stages
    changed = (*stages[:-1], msgspec.structs.replace(stages[-1], hold=("x",)))
    assert digest_of(changed) != one.mopt_plan.digest


def test_a_document_reads_back() -> None:
    data = to_json(variables("ubuntu-24.04-h100-580-stack"))
    assert msgspec.json.decode(data, type=Variables) == variables("ubuntu-24.04-h100-580-stack")


_VERSIONS = {
    "ubuntu-22.04": ("580.65.06", "580.126.20", "595.71.05"),
    "ubuntu-24.04": ("570.172.08", "580.105.08", "580.126.20", "590.48.01", "595.71.05"),
    "ubuntu-26.04": ("595.45.04", "595.71.05"),
    "rocky-8": ("535.261.03", "580.126.20", "595.71.05"),
    "rocky-9": ("535.261.03", "570.172.08", "580.126.20", "595.71.05", "610.43.02"),
    "rocky-10": ("580.126.20", "595.71.05"),
}
_PAIRS = [(system, version) for system, versions in _VERSIONS.items() for version in versions]


@settings(max_examples=60, deadline=None)
@given(
    case=st.sampled_from(_PAIRS),
    after=st.sampled_from(_PAIRS),
    gpu=st.sampled_from(["L40Sx2", "H100x8"]),
    flavours=st.tuples(st.sampled_from(["open", "proprietary"]), st.sampled_from(["open", "proprietary"])),
)
def test_any_change_ends_with_the_set_of_the_new_driver(case, after, gpu, flavours) -> None:
    """From any driver to any other: what remains of the driver is what the new plan names, no more."""
    system, old = case
    new = after[1] if after[1] in _VERSIONS[system] else old
    first = driver_ground(system, gpu, old, flavours[0])
    second = driver_ground(system, gpu, new, flavours[1])
    if gpu != "L40Sx2":
        fabric = first.catalogue.versions_of("fabric")
        assume(old in fabric and new in fabric)
    before = carried_out(lower(first), first.host)
    document = lower(with_host(second, before))
    left = {one.name: one.version for one in before.packages.value.installed}  # type: ignore[union-attr]
    for one in (t for s in document.mopt_stages for t in s.packages):
        assert not set(one.remove) & {package.name for package in one.install}
        assert set(one.remove) <= set(left)
        for name in one.remove:
            del left[name]
        left.update({package.name: package.version or "1.2-3" for package in one.install})
    fresh = lower(second)
    drivers = {p.name: p.version for which in ("driver", "fabric") for p in packages_of(fresh, which)}
    others = {p.name for s in fresh.mopt_stages for t in s.packages for p in t.install} - set(drivers)
    assert {name: v for name, v in left.items() if name not in others} == {
        name: version or "1.2-3" for name, version in drivers.items()
    }


# --- names that change between branches -----------------------------------------------------------

CLIFFS = {
    "suffixed at 580": (UBUNTU, "driver", {"nvidia-headless-580-open", "nvidia-utils-580"}, {"nvidia-open"}),
    "bare from 590": (
        "ubuntu-24.04-h100-595-open",
        "driver",
        {"nvidia-headless-open", "nvidia-dkms-open"},
        {"nvidia-headless-595-open", "nvidia-open-595"},
    ),
    "fabric is bare at 580 already": (
        UBUNTU,
        "fabric",
        {"nvidia-fabricmanager"},
        {"nvidia-fabricmanager-580"},
    ),
    "rpm without the hyphen": (ROCKY, "fabric", {"nvidia-fabricmanager"}, {"nvidia-fabric-manager"}),
    "headless has no nvidia-smi": (UBUNTU, "driver", {"nvidia-utils-580"}, set()),
    "modprobe floats": (ROCKY, "driver", {"nvidia-modprobe", "kmod-nvidia-open-dkms"}, set()),
    "kmod by name on EL10": (
        "rocky-10-h100-580-open",
        "driver",
        {"kmod-nvidia-open-dkms"},
        {"kmod-nvidia-latest-dkms", "nvidia-open"},
    ),
    "proprietary kmod": (
        "rocky-9-v100-580-proprietary",
        "driver",
        {"kmod-nvidia-latest-dkms"},
        {"kmod-nvidia-open-dkms"},
    ),
    "old names of the rpm at 535": (
        "rocky-9-l40s-535-open",
        "driver",
        {"nvidia-driver-NVML"},
        {"libnvidia-ml", "libnvidia-gpucomp"},
    ),
    "never a toolkit with a driver": (
        "ubuntu-24.04-h100-580-stack",
        "cuda",
        {"cuda-toolkit-13-0"},
        {"cuda", "cuda-13-0", "cuda-runtime-13-0"},
    ),
    "signed modules of this kernel and the next": (
        "ubuntu-24.04-l40s-580-canonical",
        "driver",
        {
            "linux-modules-nvidia-580-server-open-6.8.0-60-generic",
            "linux-modules-nvidia-580-server-open-generic",
        },
        {"nvidia-dkms-580-server-open"},
    ),
    "both diagnostics for old cards": (
        "ubuntu-24.04-v100-580-proprietary",
        "dcgm",
        {"datacenter-gpu-manager-4-cuda12", "datacenter-gpu-manager-4-cuda13"},
        set(),
    ),
    "one diagnostic for new cards": (
        "ubuntu-24.04-b200-595-open",
        "dcgm",
        {"datacenter-gpu-manager-4-cuda13"},
        {"datacenter-gpu-manager-4-cuda12"},
    ),
    "nvlink 5": (
        "ubuntu-24.04-b200-595-open",
        "fabric",
        {"nvlsm", "libnvsdm", "nvidia-fabricmanager"},
        set(),
    ),
    "compiler of an HWE kernel": ("ubuntu-22.04-h100-580-open", "kernel", {"gcc-12"}, set()),
    "zstd on 26.04": ("ubuntu-26.04-h100-595-open", "bootstrap", {"zstd"}, set()),
}


@pytest.mark.parametrize("name", CLIFFS)
def test_names(name: str) -> None:
    question, which, wanted, unwanted = CLIFFS[name]
    found = set(names(variables(question), which))
    assert wanted <= found
    assert not unwanted & found


VERSIONS = {
    "revision of one release": (OPEN_580.replace("126.20", "105.08"), "580.105.08-0ubuntu1"),
    "revision of a later one": (OPEN_580, "580.126.20-1ubuntu1"),
    "leading zeros": (OPEN_580.replace("126.20", "126.09"), "580.126.09-1ubuntu1"),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_revisions_are_read_and_not_built(name: str) -> None:
    goal, version = VERSIONS[name]
    document = lower(ground_of(Question("ubuntu-24.04", "L40Sx2", goal)))
    assert {one.version for one in packages_of(document, "driver")[1:]} == {version}


def test_a_host_without_nvswitch_has_no_fabric_manager() -> None:
    assert names(variables("ubuntu-22.04-l40s-595-open"), "fabric") == []


def test_a_needless_fabric_manager_goes() -> None:
    question = ground("ubuntu-24.04-l40s-580-proprietary")
    host = carried_out(variables("ubuntu-24.04-l40s-580-proprietary"), question.host)
    rows = {one.name: one.version for one in host.packages.value.installed}  # type: ignore[union-attr]
    rows["nvidia-fabricmanager"] = "580.126.20-1"
    document = lower(with_host(question, put(host, "packages", packages("dpkg", rows))))
    assert removed(document, "fabric") == ["nvidia-fabricmanager"]

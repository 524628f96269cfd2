"""From a stack to staged variables: what every document holds to, and what each trap of packaging asks for."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doctor.core.host import Absent
from doctor.core.host_container import ContainerEngine, Kubernetes
from doctor.core.lower import Choices, digest_of, lower
from doctor.core.lower.ready import repository_file
from doctor.core.stages import STAGES, PackageVersion, Variables
from doctor.errors import UsageError
from doctor.report.machine import to_json
from tests.core.hosts import having, known_of, put
from tests.core.lowering import (
    CUDA_STACK,
    FOLDER,
    KERNELS,
    OPEN_580,
    OPEN_595,
    PROPRIETARY_580,
    QUESTIONS,
    Question,
    carried_out,
    ground,
    ground_of,
    installed,
    on_bus,
    packages,
    stage,
    variables,
    with_host,
)

UBUNTU = "ubuntu-24.04-h100-580-open"
ROCKY = "rocky-9-h100-580-open"


def names(document: Variables, which: str) -> list[str]:
    """What a stage installs."""
    return [package.name for one in stage(document, which).packages for package in one.install]


def removed(document: Variables, which: str) -> list[str]:
    return [name for one in stage(document, which).packages for name in one.remove]


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
    by_name = Counter(one for one, _version in counted)
    assert {one for one, count in by_name.items() if count > 1} <= {"kernel-devel"}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_driver_has_one_version_and_so_has_its_fabric(name: str) -> None:
    """All but what has numbers of its own: modules of Canonical by kernel, nvlsm, diagnostics."""
    document = variables(name)
    mine = [one for which in ("driver", "fabric") for one in packages_of(document, which) if one.version]
    want = ground(name).driver
    assert mine
    assert all(want in one.version for one in mine)


def packages_of(document: Variables, which: str) -> list[PackageVersion]:
    return [package for one in stage(document, which).packages for package in one.install]


@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_is_both_held_and_pinned(name: str) -> None:
    document = variables(name)
    pins = [one for one in names(document, "driver") if one.startswith("nvidia-driver-pinning-")]
    pins += [pin.packages for pin in stage(document, "driver").pins]
    held = set(stage(document, "lock").hold)
    versioned = {
        one.name for which in ("driver", "fabric") for one in packages_of(document, which) if one.version
    }
    if pins:
        assert not held & versioned
    else:
        assert versioned <= held


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
    target=st.sampled_from(_PAIRS),
    gpu=st.sampled_from(["L40Sx2", "H100x8"]),
    flavours=st.tuples(st.sampled_from(["open", "proprietary"]), st.sampled_from(["open", "proprietary"])),
)
def test_any_change_ends_with_the_set_of_the_new_driver(case, target, gpu, flavours) -> None:
    """From any driver to any other: what remains of the driver is what the new plan names, no more."""
    system = case[0]
    after = target[1] if target[1] in _VERSIONS[system] else case[1]
    first = ground_of(Question(system, gpu, f"driver=={case[1]},kernel-modules=={flavours[0]}"))
    second = ground_of(Question(system, gpu, f"driver=={after},kernel-modules=={flavours[1]}"))
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
    "nvlink 5": ("ubuntu-24.04-b200-595-open", "fabric", {"nvlsm", "nvidia-fabricmanager"}, set()),
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


# --- locks ----------------------------------------------------------------------------------------


def test_the_branch_lock_lies_on_disk_before_the_driver_is_resolved() -> None:
    first, second = stage(variables(UBUNTU), "driver").packages
    assert [one.name for one in first.install] == ["nvidia-driver-pinning-580.126.20"]
    assert "nvidia-headless-580-open" in [one.name for one in second.install]


def test_before_570_a_preference_file_is_the_lock() -> None:
    driver = stage(variables("ubuntu-24.04-l40s-535-open"), "driver")
    assert len(driver.packages) == 1
    (pin,) = driver.pins
    assert (pin.pin, pin.priority) == ("version 535.261.03*", 1001)
    assert "src:*nvidia*:any" in pin.packages.split()


def test_that_file_goes_where_a_package_is_the_lock() -> None:
    entries = {entry.path: entry.state for entry in stage(variables(UBUNTU), "driver").files}
    assert entries == {"/etc/apt/preferences.d/mopt-driver": "absent"}


STREAMS = {
    ROCKY: "580-open",
    "rocky-9-h100-595-open": "595-open",
    "rocky-9-v100-580-proprietary": "580-dkms",
    "rocky-8-h100-580-open": "580-open",
    "rocky-10-h100-580-open": "",
    UBUNTU: "",
}


@pytest.mark.parametrize("name", STREAMS)
def test_module_streams(name: str) -> None:
    found = [one.stream for one in stage(variables(name), "repositories").streams]
    assert found == [stream for stream in (STREAMS[name],) if stream]


def test_the_holds_of_a_host_are_lifted_for_what_changes_only() -> None:
    question = ground("rocky-9-h100-595-open")
    before = carried_out(variables(ROCKY), ground(ROCKY).host)
    assert isinstance(before.packages, type(known_of(0)))
    held = tuple(f"{one.name}-{one.version}.*" for one in before.packages.value.installed)
    held_host = put(
        before, "packages", msgspec.structs.replace(before.packages.value, holds=known_of((*held, "zlib")))
    )
    document = lower(with_host(question, held_host))
    assert set(stage(document, "driver").unlock) == set(names(document, "driver"))
    assert set(stage(document, "fabric").unlock) == set(names(document, "fabric"))
    assert stage(document, "bootstrap").unlock == ()


def test_automatic_updates_pass_the_stack_by() -> None:
    (entry,) = stage(variables(UBUNTU), "lock").files
    assert entry.path == "/etc/apt/apt.conf.d/52mopt-stack"
    assert '"libnvidia-";' in entry.content
    assert "linux-image" not in entry.content
    (signed,) = stage(variables("ubuntu-24.04-l40s-580-canonical"), "lock").files
    assert '"linux-image-";' in signed.content, "a kernel without its signed module boots without a driver"


# --- changes of a host ----------------------------------------------------------------------------


def changed(system: str, before: str, after: str, *, gpu: str = "L40Sx2") -> Variables:
    first = ground_of(Question(system, gpu, before))
    second = ground_of(Question(system, gpu, after))
    return lower(with_host(second, carried_out(lower(first), first.host)))


def test_names_of_the_old_branch_go_in_the_same_transaction() -> None:
    document = changed("ubuntu-24.04", OPEN_580, OPEN_595)
    lock, main = stage(document, "driver").packages
    assert lock.remove == ("nvidia-driver-pinning-580.126.20",)
    assert set(main.remove) == {
        *("libnvidia-compute-580", "nvidia-compute-utils-580", "nvidia-dkms-580-open"),
        *("nvidia-headless-580-open", "nvidia-utils-580"),
    }


def test_back_to_an_older_branch_takes_the_bare_names_away() -> None:
    document = changed("ubuntu-24.04", OPEN_595, OPEN_580)
    assert {"nvidia-headless-open", "libnvidia-compute"} <= set(removed(document, "driver"))


def test_a_downgrade_is_said_where_names_stay() -> None:
    down = changed("rocky-9", OPEN_595, OPEN_580)
    up = changed("rocky-9", OPEN_580, OPEN_595)
    assert stage(down, "driver").packages[0].allow_downgrade
    assert not stage(up, "driver").packages[0].allow_downgrade
    assert removed(down, "driver") == removed(up, "driver") == []


def test_another_flavour_replaces_the_modules_only() -> None:
    document = changed("ubuntu-24.04", OPEN_580, PROPRIETARY_580)
    assert set(removed(document, "driver")) == {"nvidia-headless-580-open", "nvidia-dkms-580-open"}


def test_libraries_beside_the_set_move_along() -> None:
    """Decoding is no part of the lean set; a host that has it keeps it, at the new version and name."""
    first = ground(UBUNTU)
    host = carried_out(variables(UBUNTU), first.host)
    rows = {one.name: one.version for one in host.packages.value.installed}  # type: ignore[union-attr]
    rows |= {"libnvidia-decode-580": "580.126.20-1ubuntu1", "libnvidia-cfg1-580": "580.126.20-1ubuntu1"}
    host = put(host, "packages", packages("dpkg", rows))
    newer = lower(
        with_host(ground_of(Question("ubuntu-24.04", "H100x8", OPEN_580.replace("126.20", "159.04"))), host)
    )
    versions = {one.name: one.version for one in packages_of(newer, "driver")}
    assert versions["libnvidia-decode-580"] == versions["libnvidia-cfg1-580"] == "580.159.04-1ubuntu1"
    branch = lower(with_host(ground("ubuntu-24.04-h100-595-open"), host))
    versions = {one.name: one.version for one in packages_of(branch, "driver")}
    assert versions["libnvidia-decode"] == "595.71.05-1ubuntu1"
    assert "libnvidia-decode-580" in removed(branch, "driver")


def test_a_desktop_keeps_its_libraries() -> None:
    rows = {"nvidia-open-580": "580.105.08-0ubuntu1", "libnvidia-gl-580": "580.105.08-0ubuntu1"}
    host = put(ground(UBUNTU).host, "packages", packages("dpkg", rows))
    document = lower(with_host(ground(UBUNTU), host))
    assert {"nvidia-open-580", "nvidia-driver-580-open"} <= set(names(document, "driver"))
    assert removed(document, "driver") == []


def test_the_old_dcgm_is_taken_away_first() -> None:
    question = ground("ubuntu-24.04-b200-595-open")
    host = put(question.host, "packages", packages("dpkg", {"datacenter-gpu-manager": "1:3.3.9"}))
    first, second = stage(lower(with_host(question, host)), "dcgm").packages
    assert (first.remove, first.install) == (("datacenter-gpu-manager",), ())
    assert "datacenter-gpu-manager-4-core" in [one.name for one in second.install]
    assert second.remove == ()


def test_toolkits_stand_side_by_side() -> None:
    goal = "cuda-toolkit=={}"
    document = changed("ubuntu-24.04", goal.format("12.9"), goal.format("13.0"))
    assert names(document, "cuda") == ["cuda-toolkit-13-0"]
    assert removed(document, "cuda") == []


def test_libraries_are_those_of_the_toolkit() -> None:
    document = variables("ubuntu-24.04-h100-580-stack")
    versions = {one.name: one.version for one in installed(document)}
    assert versions["libnccl2"] == versions["libnccl-dev"] == "2.28.9-1+cuda13.0"
    tensorrt = {one.version for one in packages_of(document, "tensorrt")}
    assert tensorrt == {"10.13.3.9-1+cuda13.0"}
    assert {"libnvinfer10", "libnvinfer-bin", "libnvonnxparsers10", "tensorrt"} <= set(versions)


def test_a_newer_tensorrt_takes_its_companions_along() -> None:
    first = ground("ubuntu-24.04-h100-580-stack")
    host = carried_out(variables("ubuntu-24.04-h100-580-stack"), first.host)
    rows = {one.name: one.version for one in host.packages.value.installed}  # type: ignore[union-attr]
    host = put(host, "packages", packages("dpkg", rows | {"python3-libnvinfer": "10.13.3.9-1+cuda13.0"}))
    goal = CUDA_STACK.replace("10.13.3.9", "11.0.0.114").replace("13.0", "13.2").replace("2.28.9", "2.30.4")
    document = lower(
        with_host(
            ground_of(Question("ubuntu-24.04", "H100x8", goal.replace("580.126.20", "595.71.05"))), host
        )
    )
    versions = {one.name: one.version for one in packages_of(document, "tensorrt")}
    assert versions["python3-libnvinfer"] == versions["libnvinfer11"] == "11.0.0.114-1+cuda13.2"
    assert "libnvinfer10" in removed(document, "tensorrt")


def test_the_toolkit_of_containers_is_a_whole_set() -> None:
    found = packages_of(variables("rocky-9-h100-580-stack"), "container")
    assert len(found) == 4
    assert {one.version for one in found} == {"1.20.0-1"}


def test_both_kernels_get_headers() -> None:
    host = put(ground(ROCKY).host, "kernel.next_release", "5.14.0-687.1.el9_8.x86_64")
    found = packages_of(lower(with_host(ground(ROCKY), host)), "kernel")
    assert [(one.name, one.version) for one in found] == [
        ("kernel-devel", "5.14.0-611.el9_7"),
        ("kernel-devel", "5.14.0-687.1.el9_8"),
    ]
    kernel = stage(lower(with_host(ground(ROCKY), host)), "driver").kernel
    assert kernel is not None
    assert len(kernel.kernels) == 2


COMPILERS = {
    "x86_64-linux-gnu-gcc-13 (Ubuntu 13.3.0-6ubuntu2~24.04) 13.3.0": [],
    "x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0": ["gcc-12"],
    "clang version 18": [],
}


@pytest.mark.parametrize("text", COMPILERS)
def test_the_compiler_that_the_kernel_was_built_with(text: str) -> None:
    host = put(ground(UBUNTU).host, "kernel.compiler", text)
    found = names(lower(with_host(ground(UBUNTU), host)), "kernel")
    assert found[1:] == COMPILERS[text]


# --- containers and engines -----------------------------------------------------------------------


def engines(*found: ContainerEngine) -> list[str]:
    host = put(ground(UBUNTU).host, "containers.engines", found)
    document = lower(with_host(ground("ubuntu-24.04-h100-580-stack"), host))
    return [one.engine for one in stage(document, "container").containers]


def test_engines_that_are_there_are_wired() -> None:
    docker, podman = ContainerEngine(name="docker"), ContainerEngine(name="podman")
    own = ContainerEngine(name="containerd", config_path="/etc/containerd/config.toml")
    only_for_docker = msgspec.structs.replace(own, disabled_plugins=("cri",))
    assert engines() == []
    assert engines(podman, docker) == ["docker", "podman"]
    assert engines(docker, own) == ["containerd", "docker"]
    assert engines(docker, only_for_docker) == ["docker"]
    assert engines(ContainerEngine(name="docker", is_snap=True)) == [], "a snap's configuration is its own"


def test_podman_takes_cdi_and_no_old_specification() -> None:
    container = stage(variables("rocky-9-h100-580-stack"), "container")
    assert [(one.engine, one.mode) for one in container.containers] == [("podman", "cdi")]
    assert {entry.path: entry.state for entry in container.files}["/etc/cdi/nvidia.yaml"] == "absent"


def test_an_engine_has_an_environment_of_its_own() -> None:
    (one,) = stage(variables("ubuntu-24.04-l40s-580-vllm"), "engine").environments
    assert (one.engine, one.version, one.import_name) == ("vllm", "0.33.0", "vllm")
    assert one.requirements == "vllm==0.33.0\n"
    assert one.descriptor.startswith("/var/lib/mopt-doctor/engines/")
    assert names(variables("ubuntu-24.04-l40s-580-vllm"), "tensorrt") == []


def test_tensorrt_llm_gets_mpi() -> None:
    document = lower(ground_of(Question("ubuntu-24.04", "L40Sx2", f"{OPEN_580},tensorrt-llm==1.2.1")))
    assert names(document, "engine") == ["libopenmpi-dev"]
    assert names(document, "tensorrt") == [], "its TensorRT comes as wheels"


# --- sites ----------------------------------------------------------------------------------------


def test_every_address_is_the_sites_own() -> None:
    repositories = stage(variables("ubuntu-24.04-l40s-580-airgap"), "repositories").repositories
    assert {r.id: r.uris for r in repositories} == {
        "mopt-cuda": ("https://mirror.example/cuda/ubuntu2404/",),
        "mopt-container-toolkit": ("https://mirror.example/toolkit/",),
    }
    assert all(r.key and r.key.file == "site.asc" and not r.key.url for r in repositories)
    assert {r.key.fingerprint for r in repositories if r.key} == {"0123456789ABCDEF"}


def test_an_air_gap_without_an_address_is_said() -> None:
    with pytest.raises(UsageError, match="needs an address for the repository `cuda`"):
        lower(with_host(ground(UBUNTU), ground(UBUNTU).host, origin="airgap"))


def test_a_mirror_of_nothing_is_said() -> None:
    with pytest.raises(UsageError, match="--mirror cude"):
        lower(with_host(ground(UBUNTU), ground(UBUNTU).host, mirrors={"cude": "https://x"}))


def test_a_version_without_a_package_is_said_with_those_there_are() -> None:
    question = ground_of(Question("ubuntu-24.04", "L40Sx2", "driver==580.65.06,dcgm==4.7.0"))
    stack = msgspec.structs.replace(
        question.stack, components={**question.stack.components, "driver": "580.82.07"}
    )
    with pytest.raises(UsageError, match=r"no package version of (pinning|driver) 580.82.07") as caught:
        lower(msgspec.structs.replace(question, stack=stack))
    assert any("580.126.20" in hint for hint in caught.value.hints)


def test_the_choice_falls_on_a_driver_that_has_a_package() -> None:
    canonical = Choices(origin="canonical")
    question = ground_of(Question("ubuntu-24.04", "L40Sx2", "driver==580.*", ("secure-boot==on",), canonical))
    assert question.driver == "580.173.02"
    assert any("instead of" in text for text in question.stack.advice)


# --- refusals -------------------------------------------------------------------------------------

RPMFUSION = packages("rpm", {"akmod-nvidia": "3:580.95.05-1.el9"}, vendor="RPM Fusion")
ELREPO = packages("rpm", {"nvidia-x11-drv": "580.95.05-1.el9.elrepo"}, vendor="ELRepo")
PPA = packages("dpkg", {"libnvidia-compute-580": "580.95.05-0ubuntu0~gpu24.04.1"})
CANONICAL = packages(
    "dpkg", {"nvidia-utils-580-server": "580.126.20-0ubuntu0.24.04.2"}, vendor="<x@lists.ubuntu.com>"
)
MIXED = packages("dpkg", {"nvidia-utils-580-server": "1-1", "nvidia-dkms-580-open": "580.126.20-1ubuntu1"})


def _library(package: str | None):
    from tests.core.hosts import library

    return (library("libcuda.so.1", package=package, is_default=True),)


def _place(kind: str, **fields):
    from doctor.core.host import Virtualisation

    return Virtualisation(kind=kind, **fields)


REFUSALS = {
    "rpm fusion": (ROCKY, {"packages": RPMFUSION}, "driver-of-rpm-fusion"),
    "elrepo": (ROCKY, {"packages": ELREPO}, "driver-of-elrepo"),
    "graphics ppa": (UBUNTU, {"packages": PPA}, "driver-of-graphics-ppa"),
    "another origin": (UBUNTU, {"packages": CANONICAL}, "plan.origin_changes"),
    "both origins": (UBUNTU, {"packages": MIXED}, "policy.mixed_repositories"),
    "run file": (
        UBUNTU,
        {"packages": packages("dpkg", {}), "driver.libraries": _library("")},
        "driver.mixed_install_sources",
    ),
    "driver container": (
        UBUNTU,
        {"driver.container_root": "/run/nvidia/driver"},
        "container.driver_double_managed",
    ),
    "gpu operator": (
        UBUNTU,
        {"containers.kubernetes": Kubernetes(distribution="kubelet", has_nvidia_operator=True)},
        "container.driver_double_managed",
    ),
    "dgx os": (UBUNTU, {"system.platform": "dgx_os"}, "dgx-os-managed"),
    "inside a container": (
        UBUNTU,
        {"system.virtualisation": _place("container", name="docker")},
        "plan.inside_container",
    ),
    "no gpu": (UBUNTU, {"pci": ()}, "system.no_nvidia_gpu"),
    "secure boot": (
        UBUNTU,
        {"kernel.secure_boot": "enabled", "machine.enrolled_keys": ()},
        "driver.module_signature_rejected",
    ),
    "secure boot, keys unread": (
        ROCKY,
        {"kernel.secure_boot": "enabled", "machine.enrolled_keys": Absent(reason="denied")},
        "driver.module_signature_rejected",
    ),
    "64k pages": (ROCKY, {"kernel.release": "5.14.0-611.el9_7.aarch64+64k"}, "plan.kernel_of_another_kind"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    question, facts, cause = REFUSALS[name]
    document = lower(with_host(ground(question), having(ground(question).host, facts)))
    assert [one.cause for one in document.mopt_refusals] == [cause]
    assert all(one.text and one.way_out for one in document.mopt_refusals)
    assert document.mopt_stages == ()


NO_REFUSALS = {
    "nothing read": (UBUNTU, {}),
    "nvidia's own": (UBUNTU, {"packages": packages("dpkg", {"nvidia-dkms-580-open": "580.126.20-1ubuntu1"})}),
    "nvidia's own rpm": (
        ROCKY,
        {"packages": packages("rpm", {"kmod-nvidia-open-dkms": "3:580.126.20-1.el9"})},
    ),
    "owned library": (
        UBUNTU,
        {"packages": packages("dpkg", {}), "driver.libraries": _library("libnvidia-compute-580")},
    ),
    "owner not asked": (UBUNTU, {"packages": packages("dpkg", {}), "driver.libraries": _library(None)}),
    "kubernetes without the operator": (
        UBUNTU,
        {"containers.kubernetes": Kubernetes(distribution="kubelet", has_nvidia_operator=False)},
    ),
    "virtual machine": (UBUNTU, {"system.virtualisation": _place("vm", name="kvm")}),
    "secure boot off": (UBUNTU, {"kernel.secure_boot": "disabled"}),
    "enrolled key": (
        UBUNTU,
        {
            "kernel.secure_boot": "enabled",
            "machine.enrolled_keys": ("CN=host Secure Boot Module Signature key",),
        },
    ),
    "enrolled key of dkms": (
        ROCKY,
        {"kernel.secure_boot": "enabled", "machine.enrolled_keys": ("CN=DKMS module signing key",)},
    ),
    "signed modules": (
        "ubuntu-24.04-l40s-580-canonical",
        {"kernel.secure_boot": "enabled", "machine.enrolled_keys": ()},
    ),
    "run file's remains under a compat folder": (UBUNTU, {"driver.libraries": _library("")}),
}


@pytest.mark.parametrize("name", NO_REFUSALS)
def test_no_refusal(name: str) -> None:
    question, facts = NO_REFUSALS[name]
    document = lower(with_host(ground(question), having(ground(question).host, facts)))
    assert document.mopt_refusals == ()
    assert document.mopt_stages


def test_an_origin_is_changed_where_that_was_decided() -> None:
    host = put(ground(UBUNTU).host, "packages", CANONICAL)
    document = lower(with_host(ground(UBUNTU), host, change_origin=True))
    assert document.mopt_refusals == ()
    assert removed(document, "driver") == ["nvidia-utils-580-server"]


def test_the_pinning_package_goes_with_its_origin() -> None:
    question = ground("ubuntu-24.04-l40s-580-canonical")
    rows = {"nvidia-driver-pinning-580.126.20": "580.126.20-1", "nvidia-dkms-580-open": "580.126.20-1ubuntu1"}
    host = put(question.host, "packages", packages("dpkg", rows))
    first, second = stage(lower(with_host(question, host, change_origin=True)), "driver").packages
    assert first.remove == ("nvidia-driver-pinning-580.126.20",)
    assert second.remove == ("nvidia-dkms-580-open",)


@pytest.mark.parametrize("kind", ["windows", "vgpu-guest", "dgx-os", "jetpack"])
def test_drivers_of_other_owners_are_refused_with_their_row(kind: str) -> None:
    question = ground(UBUNTU)
    target = msgspec.structs.replace(question.target, driver_kind=kind)
    stack = msgspec.structs.replace(question.stack, target=target)
    document = lower(msgspec.structs.replace(question, stack=stack))
    row = next(row for row in question.matrix.edition.owners if row.driver_kind == kind)
    assert [one.cause for one in document.mopt_refusals] == [row.id]


def test_a_system_without_rows_is_refused() -> None:
    question = ground(UBUNTU)
    for name in ("debian-12", "almalinux-9.6", "rhel-9.6", ""):
        target = msgspec.structs.replace(question.target, os=name)
        stack = msgspec.structs.replace(question.stack, target=target)
        document = lower(msgspec.structs.replace(question, stack=stack))
        assert [one.cause for one in document.mopt_refusals] == ["plan.system_without_packages"], name


def test_gpus_on_the_bus_are_no_refusal() -> None:
    host = on_bus(ground(UBUNTU).host, "10de:2330")
    assert lower(with_host(ground(UBUNTU), host)).mopt_refusals == ()


def test_kernels_of_every_system_are_named() -> None:
    assert {question.os for question in QUESTIONS.values()} == set(KERNELS)

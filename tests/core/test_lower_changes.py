"""Plans for hosts that have something already: locks, old names, companions, kernels."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.lower import lower
from doctor.core.stages import Variables
from tests.core.hosts import known_of, put
from tests.core.lowering import (
    CUDA_STACK,
    OPEN_580,
    OPEN_595,
    PROPRIETARY_580,
    QUESTIONS,
    ROCKY,
    UBUNTU,
    Question,
    carried_out,
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


def test_a_driver_that_stays_is_left_alone_whatever_its_module_says() -> None:
    """Where no module is loaded nothing tells the flavour: that is no reason to change it."""
    question = ground_of(
        Question("ubuntu-24.04", "L40Sx2", "container-toolkit==1.20.0", ("driver==580.82.07",))
    )
    document = lower(question)
    assert names(document, "driver") == []
    assert len(names(document, "container")) == 4
    switch = ("driver==580.126.20", "kernel-modules==proprietary")
    other = lower(ground_of(Question("ubuntu-24.04", "L40Sx2", "kernel-modules==open", switch)))
    assert "nvidia-dkms-580-open" in names(other, "driver")


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
    more = ("libnvidia-decode-580", "libnvidia-cfg1-580", "libnvidia-gpucomp-580")
    rows |= dict.fromkeys(more, "580.126.20-1ubuntu1")
    host = put(host, "packages", packages("dpkg", rows))
    newer = lower(
        with_host(ground_of(Question("ubuntu-24.04", "H100x8", OPEN_580.replace("126.20", "159.04"))), host)
    )
    versions = {one.name: one.version for one in packages_of(newer, "driver")}
    assert versions["libnvidia-decode-580"] == versions["libnvidia-cfg1-580"] == "580.159.04-1ubuntu1"
    oldest = lower(with_host(ground("ubuntu-24.04-l40s-535-open"), host))
    versions = {one.name: one.version for one in packages_of(oldest, "driver")}
    assert versions["libnvidia-decode-535"] == "535.261.03-0ubuntu1"
    assert "libnvidia-gpucomp-535" not in versions, "there was none before 570"
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


OTHERS = {
    **dict.fromkeys(
        ["linux-headers-6.8.0-59-generic", "linux-headers-generic", "gcc-11", "gcc", "dkms"], "1-1"
    ),
    **dict.fromkeys(["kernel-devel", "kernel-headers", "zstd", "openmpi", "libnvidia-egl-wayland1"], "1-1"),
    **dict.fromkeys(
        ["libnvidia-container1", "nvidia-settings-extras", "cuda-toolkit-12-4", "libcudnn8"], "1-1"
    ),
    **dict.fromkeys(["nvidia-cuda-toolkit", "xserver-xorg-core", "linux-image-6.8.0-59-generic"], "1-1"),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_others_have_a_use_for_stays(name: str) -> None:
    """The compilers, headers of other kernels, libraries with a name that only looks alike."""
    question = ground(name)
    done = carried_out(variables(name), question.host)
    rows = {one.name: one.version for one in done.packages.value.installed}  # type: ignore[union-attr]
    manager = done.packages.value.manager  # type: ignore[union-attr]
    vendor = done.packages.value.installed[0].origin  # type: ignore[union-attr]
    pairs = [*rows.items(), *((other, version) for other, version in OTHERS.items() if other not in rows)]
    document = lower(with_host(question, put(done, "packages", packages(manager, pairs, vendor))))
    assert document.mopt_refusals == ()
    assert not [one for stage_ in document.mopt_stages for t in stage_.packages for one in t.remove]


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
    transactions = stage(lower(with_host(ground(ROCKY), host)), "kernel").packages
    assert len(transactions) == 2, "a name with two versions cannot stand in one"
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

"""Plans for what serves, for sites with mirrors, and for hosts on which nothing is done."""

from __future__ import annotations

import msgspec
import pytest

from doctor.core.host import Absent
from doctor.core.host_container import ContainerEngine, Kubernetes
from doctor.core.lower import Choices, lower
from doctor.core.lower.pins import pins_of
from doctor.errors import UsageError
from tests.core.hosts import having, put
from tests.core.lowering import (
    KERNELS,
    OPEN_580,
    OPEN_595,
    QUESTIONS,
    ROCKY,
    UBUNTU,
    Question,
    ground,
    ground_of,
    names,
    on_bus,
    packages,
    removed,
    stage,
    variables,
    with_host,
)

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


def test_before_1_18_nothing_writes_the_file_at_a_boot() -> None:
    question = Question("rocky-9", "H100x8", f"{OPEN_580},container-toolkit==1.17.8", ("podman==5.0",))
    container = stage(lower(ground_of(question)), "container")
    assert [one.config for one in container.containers] == ["/etc/cdi/nvidia.yaml"]
    assert "/etc/cdi/nvidia.yaml" not in {entry.path for entry in container.files}
    assert container.services.enable == ()
    newer = stage(variables("rocky-9-h100-580-stack"), "container")
    assert [one.config for one in newer.containers] == ["/var/run/cdi/nvidia.yaml"]
    assert newer.services.enable == ("nvidia-cdi-refresh",)


def test_what_is_written_beside_an_engines_own_file_is_undone_too() -> None:
    have = ("containerd==2.1", "cri-o==1.31")
    document = lower(ground_of(Question("rocky-9", "H100x8", f"{OPEN_580},container-toolkit==1.20.0", have)))
    written = {one.engine: (one.config, one.drop_in) for one in stage(document, "container").containers}
    assert written == {
        "containerd": ("/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"),
        "crio": ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/99-nvidia.toml"),
    }
    assert {path for pair in written.values() for path in pair} <= set(document.mopt_capsule.files)


@pytest.mark.parametrize(("have", "is_refreshed"), [("podman==5.4", True), ("docker==27.0", False)])
def test_a_new_driver_makes_podmans_file_anew(have: str, is_refreshed: bool) -> None:
    """The toolkit is neither asked for nor changed."""
    question = Question("rocky-9", "H100x8", OPEN_580, ("container-toolkit==1.20.0", have))
    container = stage(lower(ground_of(question)), "container")
    assert container.packages == ()
    assert [one.engine for one in container.containers] == (["podman"] if is_refreshed else [])


LOCK = f"vllm==0.33.0 --hash=sha256:{'a' * 64}\n"


def test_a_lock_takes_the_place_of_the_pin() -> None:
    question = ground("ubuntu-24.04-l40s-580-vllm")
    locks = {"lock.txt": pins_of(LOCK, "lock.txt")}
    (one,) = stage(lower(with_host(question, question.host, engine_locks=locks)), "engine").environments
    assert one.requirements == LOCK


def test_a_lock_of_no_engine_of_the_plan_is_refused() -> None:
    question = ground("ubuntu-24.04-l40s-580-vllm")
    locks = {"lock.txt": pins_of(LOCK.replace("vllm", "sglang"), "lock.txt")}
    with pytest.raises(UsageError, match="none of the plan's engines: vllm"):
        lower(with_host(question, question.host, engine_locks=locks))


def test_an_environment_is_part_of_what_is_undone() -> None:
    document = variables("ubuntu-24.04-l40s-580-vllm")
    (one,) = stage(document, "engine").environments
    assert {one.path, one.descriptor} <= set(document.mopt_capsule.files)


def test_preflight_gets_the_signs_of_its_system_alone() -> None:
    for name, kind in ((UBUNTU, "~gpu"), (ROCKY, "akmod")):
        signs = variables(name).mopt_signs
        words = " ".join(word for one in signs for word in (*one.subjects, *one.versions))
        assert kind in words
        assert ("akmod" in words) is (name == ROCKY)
        assert {"plan.dgx_os", "plan.jetson", "plan.foreign_driver", "driver.mixed_install_sources"} <= {
            one.refusal.cause for one in signs
        }
        assert all(ground(name).matrix.cause(one.refusal.cause) for one in signs)
    without = lower(
        ground_of(Question("rocky-9", "H100x8", "container-toolkit==1.20.0", ("driver==580.126.20",)))
    )
    assert "unowned" not in {one.kind for one in without.mopt_signs}


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


def test_another_origin_that_has_it_is_named() -> None:
    question = ground_of(Question("ubuntu-26.04", "L40Sx2", "driver==580.173.02"))
    with pytest.raises(UsageError, match=r"no package names of driver 580\.173\.02") as caught:
        lower(question)
    assert any("--origin canonical" in hint for hint in caught.value.hints)


def test_a_version_that_nobody_read_is_told() -> None:
    told = lower(ground_of(Question("ubuntu-24.04", "L40Sx2", "driver==580.178.04")))
    assert any("no index was read" in text for text in stage(told, "driver").why)
    assert not any("no index" in text for text in stage(variables(UBUNTU), "driver").why)


def test_a_rack_has_imex_and_no_manager_of_its_own() -> None:
    document = lower(ground_of(Question("ubuntu-24.04", "GB200x4", OPEN_595)))
    assert names(document, "fabric") == ["nvidia-imex"]
    (repository,) = stage(document, "repositories").repositories
    assert repository.uris[0].endswith("/ubuntu2404/sbsa/"), "servers of arm64 have a directory of their own"
    assert repository.architectures == ("arm64",)


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
    "rpm fusion": (ROCKY, {"packages": RPMFUSION}, "plan.foreign_driver"),
    "elrepo": (ROCKY, {"packages": ELREPO}, "plan.foreign_driver"),
    "graphics ppa": (UBUNTU, {"packages": PPA}, "plan.foreign_driver"),
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
    "dgx os": (UBUNTU, {"system.platform": "dgx_os"}, "plan.dgx_os"),
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
    assert ground(question).matrix.cause(cause), "`explain` knows it"
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
def test_drivers_of_other_owners_are_refused_with_what_their_row_says(kind: str) -> None:
    question = ground(UBUNTU)
    target = msgspec.structs.replace(question.target, driver_kind=kind)
    stack = msgspec.structs.replace(question.stack, target=target)
    document = lower(msgspec.structs.replace(question, stack=stack))
    row = next(row for row in question.matrix.edition.owners if row.driver_kind == kind)
    assert [(one.text, one.way_out) for one in document.mopt_refusals] == [(row.fact, row.instead)]
    assert question.matrix.cause(document.mopt_refusals[0].cause)


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

"""The rpm half of the package graph: templates, module streams, and Rocky's own repositories."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from typing import Any

from tests.lab.graph import Row, Stub, fill, graph, released
from tests.lab.systems import SYSTEM_FACTS, SystemFacts

__all__ = ["module_streams", "rpm_stubs"]

#: CUDA's parts have the names of the Ubuntu packages, `-devel` for `-dev`, and no parts of a driver.
CUDA = {
    "cuda-toolkit-{v}": ("cuda-compiler-{v}", "cuda-libraries-{v}", "cuda-libraries-devel-{v}", "cuda-tools-{v}"),
    "cuda-compiler-{v}": ("cuda-nvcc-{v}",), "cuda-nvcc-{v}": (), "cuda-tools-{v}": (), "cuda-nvrtc-{v}": (),
    "cuda-libraries-{v}": ("cuda-cudart-{v}", "libcublas-{v}", "cuda-nvrtc-{v}", "libnvjitlink-{v}"),
    "cuda-libraries-devel-{v}": ("cuda-cudart-{v}",), "libcublas-{v}": (), "libnvjitlink-{v}": (),
    "cuda-cudart-{v}": ("cuda-toolkit-{v}-config-common",), "cuda-toolkit-{v}-config-common": (),
    "cuda-runtime-{v}": ("cuda-libraries-{v}", "cuda-drivers"), "cuda-{v}": ("cuda-runtime-{v}", "cuda-toolkit-{v}"),
}  # fmt: skip


def rpm_stubs(system: str) -> list[Stub]:
    """Every stub of a Rocky Linux."""
    facts = SYSTEM_FACTS[system]
    found: dict[tuple[str, str, str], Stub] = {}
    for stub in (*_driver(facts), *_fabric(facts), *_software(facts), *_toolkit(facts), *_own(facts)):
        found.setdefault((stub.repository, stub.name, stub.version), stub)
    return list(found.values())


def _template_of(branch: int) -> str:
    return "driver_535" if branch < 570 else "driver_common_580" if branch < 610 else "driver_common_610"


def _rows(template: str) -> list[Row]:
    """A template's rows, with `same_as` resolved."""
    rows: list[Row] = []
    for row in graph()["rpm_templates"][template]:
        if "same_as" not in row:
            rows.append(row)
            continue
        names = row.get("names")
        rows += [
            r
            for r in _rows(row["same_as"])
            if (names is None or r["name"] in names) and r["name"] not in row.get("drop", ())
        ]
        rows += [{"name": name} for name in row.get("add", ())]
    return rows


def _driver(facts: SystemFacts) -> Iterator[Stub]:
    for version, package in released("driver", facts.name).items():
        branch = int(version.partition(".")[0])
        values = {"V": version, "E": "3:", "D": f".el{facts.major}", "B": str(branch)}
        gone = (
            {"libnvidia-ml", "libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-fbc"} if branch < 570 else set()
        )
        for row in _rows(_template_of(branch)):
            if branch > int(row.get("until_branch", 9999)):
                continue
            yield _rpm(row, package, values, gone, facts)


def _rpm(row: Row, version: str, values: Mapping[str, str], gone: set[str], facts: SystemFacts) -> Stub:
    relations: dict[str, tuple[str, ...]] = {}
    for kind in ("requires", "provides", "conflicts", "obsoletes", "recommends"):
        words = [fill(w, values) for w in row.get(kind, ())]
        if kind == "recommends" and facts.major == "10":
            words += [fill(w, values) for w in row.get("recommends_el10", ())]
        kept = tuple(w for w in words if w.partition(" ")[0].partition("(")[0] not in gone)
        if kept:
            relations[kind] = kept
    files = list(row.get("files", ()))
    name = fill(row["name"], values)
    if name == "nvidia-driver-NVML":
        files.append("/usr/lib64/libnvidia-ml.so.${V}")
    if name == "nvidia-driver-common":
        files.append("/usr/lib64/libnvidia-ml.so.${V}")
    if name.startswith("kmod-nvidia-") and name.endswith("-dkms"):
        files.append("/usr/src/nvidia-${V}/dkms.conf")
    return Stub(
        name=name, version=version, architecture=row.get("arch", "x86_64"), repository="cuda", relations=relations,
        files=tuple(fill(f, values) for f in files), effect=row.get("post", ""), values=values,
    )  # fmt: skip


def _fabric(facts: SystemFacts) -> Iterator[Stub]:
    for version, package in released("fabric", facts.name).items():
        branch = int(version.partition(".")[0])
        template = "fabric_rpm_pre580" if branch < 580 else "fabric_rpm_580"
        values = {"V": version, "B": str(branch), "E": "", "D": ""}
        for row in graph()["rpm_templates"][template]:
            own = {**row}
            if row["name"] in ("nvidia-fabric-manager", "nvidia-fabricmanager"):
                own["files"] = FABRIC_FILES
            number = package if row.get("version", "").startswith("${V}") else row["version"]
            yield _rpm(own, number, values, set(), facts)


FABRIC_FILES = (
    "/usr/bin/nv-fabricmanager", "/usr/bin/nvidia-fabricmanager-start.sh", "/usr/share/nvidia/nvswitch/fabricmanager.cfg",
    "/usr/lib/systemd/system/nvidia-fabricmanager.service",
)  # fmt: skip


def _plain(name: str, version: str, repository: str, requires: tuple[str, ...] = (), **more: Any) -> Stub:
    return Stub(
        name=name, version=version, architecture=more.pop("architecture", "x86_64"), repository=repository,
        relations={"requires": requires} if requires else {}, **more,
    )  # fmt: skip


def _software(facts: SystemFacts) -> Iterator[Stub]:
    """CUDA, cuDNN, NCCL, TensorRT, DCGM."""
    for version, package in released("cuda-toolkit", facts.name).items():
        dashed = version.replace(".", "-")
        for name, requires in CUDA.items():
            files = (
                (f"/usr/local/cuda-{version}/bin/nvcc", f"/usr/local/cuda-{version}/version.json")
                if "nvcc" in name
                else ()
            )
            yield _plain(
                name.format(v=dashed), package, "cuda", tuple(r.format(v=dashed) for r in requires),
                files=files, values={"V": version, "CDOT": version},
            )  # fmt: skip
        if version == max(released("cuda-toolkit", facts.name), key=lambda v: tuple(map(int, v.split(".")))):
            yield _plain("cuda", package, "cuda", (f"cuda-{dashed}",))
    for version in released("cudnn", facts.name).values():
        for major in ("12", "13"):
            yield _plain(f"libcudnn9-cuda-{major}", version, "cuda")
    for version in ("2.21.5-1+cuda12.4", "2.28.9-1+cuda13.0", "2.30.4-1+cuda13.2"):
        yield _plain("libnccl", version, "cuda")
        yield _plain("libnccl-devel", version, "cuda", (f"libnccl = {version}",))
    yield from _tensorrt(facts)
    for row in graph()["deb_templates"]["dcgm"]:
        yield from _dcgm(row, facts)


def _tensorrt(facts: SystemFacts) -> Iterator[Stub]:
    from tests.lab.graph import matrix

    for row in matrix()["package_versions"]:
        if row["part"] == "tensorrt" and facts.name in row["systems"]:
            for version, package in row["versions"].items():
                major = version.partition(".")[0]
                base = f"libnvinfer{major}"
                for name, requires in {
                    base: (), "libnvinfer-devel": (base,), "libnvinfer-bin": (base,), "python3-libnvinfer": (base,),
                    "tensorrt-libs": (base,), "tensorrt": ("tensorrt-libs", "libnvinfer-devel", "libnvinfer-bin"),
                }.items():  # fmt: skip
                    files = ("/usr/src/tensorrt/bin/trtexec",) if name == "libnvinfer-bin" else ()
                    yield _plain(
                        name,
                        package,
                        "cuda",
                        tuple(f"{r} = {package}" for r in requires),
                        files=files,
                        values={"V": version},
                    )


def _dcgm(row: Row, facts: SystemFacts) -> Iterator[Stub]:
    for version, package in released("dcgm", facts.name).items():
        for major in row.get("for_each_CM", [""]):
            values = {"V": version, "CM": str(major)}
            own = package if "1:${V}" in row["version"] and "3.3.9" not in row["version"] else "1:3.3.9-1"
            requires = tuple(
                fill(d, values).replace("(", "").replace(")", "")
                for d in row.get("depends", ())
                if "|" not in d
            )
            yield Stub(
                name=fill(row["name"], values), version=own, architecture="x86_64", repository="cuda",
                relations={
                    "requires": requires,
                    "conflicts": tuple(row.get("conflicts", ())),
                    "recommends": tuple(fill(r, values) for r in row.get("recommends", ()) if "libnuma" not in r),
                },
                files=tuple(row.get("files", ())), values=values,
            )  # fmt: skip


def _toolkit(facts: SystemFacts) -> Iterator[Stub]:
    files = {row["name"]: row.get("files", ()) for row in graph()["deb_templates"]["container_toolkit"]}
    for version, package in released("container-toolkit", facts.name).items():
        for row in graph()["rpm_templates"]["container_toolkit_rpm"]:
            values = {"V": version}
            relations = {
                k: tuple(fill(w, values).replace("==", "=") for w in row.get(k, ()))
                for k in ("requires", "provides", "obsoletes", "conflicts")
            }
            yield Stub(
                name=row["name"], version=package, architecture="x86_64", repository="container-toolkit",
                relations={k: v for k, v in relations.items() if v}, files=tuple(files[row["name"]]), values=values,
            )  # fmt: skip


def _own(facts: SystemFacts) -> Iterator[Stub]:
    """Rocky's repositories and EPEL."""
    for name in graph()["base_stubs"]["rpm"]:
        if "${" in name or name in (
            "dkms",
            "shadow-utils",
            "kernel-devel-matched",
            "kernel-headers",
            "mokutil",
        ):
            continue
        yield _plain(name, "1.0-1", "crb" if name == "egl-x11" else "appstream")
    dist = f"el{facts.major}"
    yield _plain(
        "dkms",
        f"3.0.13-1.{dist}",
        "epel",
        ("gcc", "make", "patch", "kernel-devel"),
        architecture="noarch",
        effect="dkms_tool",
    )
    yield _plain(
        "epel-release", f"{facts.major}-10.{dist}", "extras", architecture="noarch", effect="epel_release"
    )
    for name in ("gcc", "make", "patch", "perl-interpreter", "elfutils-libelf-devel", "docker-ce", "podman", "containerd", "dnf-automatic",
                 "openmpi-devel", "cpp", "glibc-devel", "python3-dnf-plugin-versionlock", "python3-dnf-plugins-core", "grubby", "dracut",
                 "mokutil", "numactl-libs"):  # fmt: skip
        yield _plain(name, f"1.0-1.{dist}", "appstream", effect="gcc" if name == "gcc" else "")
    for kernel in facts.kernels:
        version = kernel.removesuffix(".x86_64")
        values = {"K": kernel}
        yield _plain("kernel", version, "baseos", (f"kernel-core = {version}",))
        yield Stub(
            name="kernel-core", version=version, architecture="x86_64", repository="baseos", effect="kernel_core", values=values,
            relations={"provides": (f"kernel-uname-r = {kernel}",)},
        )  # fmt: skip
        yield Stub(
            name="kernel-devel", version=version, architecture="x86_64", repository="appstream", effect="kernel_headers", values=values,
            relations={"provides": (f"kernel-devel-uname-r = {kernel}",)},
        )  # fmt: skip
        yield _plain(
            "kernel-devel-matched",
            version,
            "appstream",
            (f"kernel-devel = {version}", f"kernel-core = {version}"),
        )
        yield _plain("kernel-headers", version, "appstream")


def module_streams(facts: SystemFacts, stubs: list[Stub]) -> dict[str, list[Stub]]:
    """Stream of `nvidia-driver` to its artefacts; empty on Enterprise Linux 10, which has no modules."""
    if facts.major == "10":
        return {}
    rules = graph()["rpm_modules"]
    member = rules["artifacts_in_module"]
    of_module = [
        s for s in stubs if s.repository == "cuda" and any(fnmatch.fnmatch(s.name, p) for p in member)
    ]
    branches = sorted({int(s.branch) for s in of_module if s.branch})
    streams: dict[str, list[Stub]] = {}
    for branch in branches:
        ours = [s for s in of_module if s.branch == str(branch)]
        flavours = {f"{branch}-open": "kmod-nvidia-open-dkms", f"{branch}-dkms": "kmod-nvidia-latest-dkms"}
        for stream, kmod in flavours.items():
            chosen = [s for s in ours if not s.name.startswith("kmod-nvidia-") or s.name == kmod]
            if any(s.name == kmod for s in chosen):
                streams[stream] = [
                    s for s in chosen if s.name != ("cuda-drivers" if "open" in stream else "nvidia-open")
                ]
    newest = max((b for b in branches if f"{b}-dkms" in streams), default=0)
    streams["open-dkms"] = streams[f"{branches[-1]}-open"]
    streams["latest-dkms"] = streams[f"{newest}-dkms"]
    return streams

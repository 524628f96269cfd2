"""The shipped rows on software, systems and speeds: picked by hand against the pages they come from."""

from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from doctor.core.versions import Dotted, Pep440
from doctor.edition.load import load_matrix
from doctor.edition.package_relations import meets
from doctor.edition.review import gaps

ROOT = Path(__file__).parents[2]

#: Capabilities of the vLLM wheels since CUDA 13.
NEW = "7.5 8.0 8.6 8.9 9.0 10.0 11.0 12.0"


@pytest.fixture(scope="module")
def matrix():
    return load_matrix(ROOT / "matrices")


def by(rows, **wanted):
    """The one row with these fields."""
    found = [row for row in rows if all(str(getattr(row, k)) == v for k, v in wanted.items())]
    assert len(found) == 1, (wanted, found)
    return found[0]


# --- releases -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "count", "first", "last"),
    [
        ("vllm", 76, "0.4.2", "0.33.0"),
        ("torch", 26, "2.1.0", "2.15.0"),
        ("tensorrt", 31, "10.0.1", "11.4.0.106"),
        ("tensorrt-llm", 25, "0.9.0", "1.4.0rc1"),
        ("torch-tensorrt", 15, "2.2.0", "2.14.0"),
        ("flashinfer", 65, "0.2.5", "0.7.4"),
        ("modelopt", 31, "0.13.0", "0.47.0"),
        ("sglang", 10, "0.5.15", "0.5.23"),
        ("xgrammar", 11, "0.1.11", "0.2.8"),
        ("numpy", 0, "", ""),
    ],
)
def test_series(matrix, component, count, first, last):
    rows = matrix.releases(component)
    assert len(rows) == count
    assert [row.version.raw for row in rows[:: len(rows) - 1]] == [first, last] if rows else not first
    assert list(rows) == sorted(rows, key=lambda row: row.version)


@pytest.mark.parametrize(
    "case",
    [
        ("0.4.2", "12.1", "==2.3.0", ">=3.8", ">=2.17", "7.0 7.5 8.0 8.6 8.9 9.0", "9.0"),
        ("0.8.5.post1", "12.4", "==2.6.0", ">=3.9,<3.13", ">=2.17", "7.0 7.5 8.0 8.6 8.9 9.0", "9.0"),
        ("0.9.2", "12.8", "==2.7.0", ">=3.9,<3.13", ">=2.28", "7.0 7.5 8.0 8.9 9.0 10.0 12.0", ""),
        ("0.19.1", "12.9", "==2.10.0", ">=3.10,<3.14", ">=2.31", "7.0 7.5 8.0 8.9 9.0 10.0 12.0", ""),
        ("0.20.2", "13.0", "==2.11.0", ">=3.10,<3.15", ">=2.35", NEW, "12.0"),
        ("0.31.0", "13.0", "==2.13.0", ">=3.10,<3.15", ">=2.28", NEW, ""),
        ("0.32.0", "13.0", "==2.13.0", ">=3.11,<3.15", ">=2.28", NEW, ""),
        ("0.33.0", "13.0", "==2.14.0", ">=3.11,<3.15", ">=2.28", NEW, ""),
    ],
)  # fmt: skip
def test_vllm(matrix, case):
    version, cuda, torch, python, glibc, capabilities, ptx = case
    row = matrix.release("vllm", version)
    assert (row.cuda, row.compute_capability, row.ptx) == (Dotted(cuda), tuple(capabilities.split()), ptx)
    assert (row.requires["torch"], row.requires["python"], row.requires["glibc"]) == (torch, python, glibc)


def test_what_only_pip_believes(matrix):
    tagged = {row.version.raw: row.glibc_tag for row in matrix.releases("vllm") if row.glibc_tag}
    assert tagged["0.11.0"] == "2.5"
    assert tagged["0.21.0"] == "2.24"
    assert "0.33.0" not in tagged


@pytest.mark.parametrize(
    "case",
    [
        ("2.1.0", "12.1", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", "3.8", "3.11"),
        ("2.7.1", "12.6", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", "3.9", "3.13"),
        ("2.8.0", "12.8", "7.0 7.5 8.0 8.6 9.0 10.0 12.0", "3.9", "3.13"),
        ("2.14.0", "13.0", "7.5 8.0 8.6 9.0 10.0 12.0", "3.10", "3.14"),
        ("2.15.0", "13.2", "7.5 8.0 8.6 9.0 10.0 12.0", "3.11", "3.15"),
    ],
)
def test_torch(matrix, case):
    version, cuda, capabilities, first_python, last_python = case
    row = matrix.release("torch", version)
    assert (row.cuda, row.compute_capability) == (Dotted(cuda), tuple(capabilities.split()))
    assert (row.interpreters[0], row.interpreters[-1]) == (first_python, last_python)


def test_every_torch_that_vllm_pins_is_of_its_cuda_major(matrix):
    for row in matrix.releases("vllm"):
        torch = matrix.release("torch", row.requires["torch"].removeprefix("=="))
        assert torch.cuda.major == row.cuda.major


@pytest.mark.parametrize(
    "case",
    [
        ("0.9.0", "default", None, None, None),
        ("0.16.0", "default", "12", "==2.4.1+cu124", "~=10.7.0"),
        ("0.21.0", "default", "12", ">=2.7.1,<=2.8.0a0", "~=10.11.0"),
        ("1.0.0", "legacy", "12", ">=2.7.1,<=2.8.0a0", "~=10.11.0"),
        ("1.2.1", "legacy", "13.1", ">=2.9.1,<=2.10.0a0", "~=10.14.1"),
        ("1.3.0rc15", "legacy", "13.1.1", ">=2.10.0,<=2.11.0a0", "~=10.15.1"),
        ("1.3.0rc22", "removed", "13.2.1", "==2.11.0", None),
        ("1.4.0rc1", "removed", "13.4.1", ">=2.14.0a0,<=2.14.0", None),
    ],
)
def test_tensorrt_llm(matrix, case):
    version, backend, cuda, torch, tensorrt = case
    row = matrix.release("tensorrt-llm", version)
    assert (row.engine_backend, row.delivery) == (backend, "stub")
    assert row.cuda == (Dotted(cuda) if cuda else None)
    assert (row.requires.get("torch"), row.requires.get("tensorrt")) == (torch, tensorrt)


@pytest.mark.parametrize(
    ("version", "variants", "unsuffixed", "last_python"),
    [
        ("10.13.0.35", ("cu12",), "cu12", "3.13"),
        ("10.13.2.6", ("cu12", "cu13"), "cu13", "3.13"),
        ("10.14.1.48", ("cu12", "cu13"), "cu13", None),
        ("10.14.1.48.post1", ("cu12", "cu13"), "cu13", "3.13"),
        ("11.4.0.106", ("cu12", "cu13"), "cu13", "3.14"),
    ],
)
def test_tensorrt(matrix, version, variants, unsuffixed, last_python):
    row = matrix.release("tensorrt", version)
    assert (row.cuda_variants, row.unsuffixed_variant) == (variants, unsuffixed)
    assert (row.interpreters[-1] if row.interpreters else None) == last_python


@pytest.mark.parametrize(
    ("version", "torch", "tensorrt", "variant"),
    [
        ("2.4.0", ">=2.4.0,<2.5.0", "==10.1.0", "cu12"),
        ("2.10.0", ">=2.10.0,<2.11.0", ">=10.14.1,<10.15.0,!=10.14.1.48", "cu13"),
        ("2.14.0", ">=2.14.0,<2.15.0", ">=11.1.0,<11.2.0", "cu13"),
    ],
)
def test_torch_tensorrt(matrix, version, torch, tensorrt, variant):
    requires = matrix.release("torch-tensorrt", version).requires
    assert (requires["torch"], requires["tensorrt"], requires["tensorrt-variant"]) == (
        torch,
        tensorrt,
        variant,
    )
    assert any(SpecifierSet(tensorrt).contains(row.version.raw) for row in matrix.releases("tensorrt"))


def test_gaps_are_the_known_ones(matrix):
    assert gaps(matrix.edition) == (
        "xgrammar 0.1.16 has no row; pinned by vllm 0.8.0, vllm 0.8.1, vllm 0.8.2",
        "toolkit 13.4 has no driver",
        "kernel 5.15 of ubuntu-22.04 has no row",
        "kernel 4.18 of rocky-8 has no row",
        "kernel 5.14 of rocky-9 has no row",
    )


# --- hardware, quantization, models ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("component", "version", "floor"),
    [
        ("vllm", "0.19.1", "7.0"),
        ("vllm", "0.20.0", "7.5"),
        ("tensorrt", "8.6.1", "5.0"),
        ("tensorrt", "10.4.0", "7.0"),
        ("tensorrt", "10.14.1.48.post1", "7.5"),
        ("tensorrt", "11.4.0.106", "7.5"),
        ("cuda", "13.0", "7.5"),
        ("cuda", "12.9", None),
    ],
)
def test_capability_floor(matrix, component, version, floor):
    rows = [r for r in matrix.edition.hardware if r.component == component and meets(version, r.versions)]
    assert [row.min_compute_capability for row in rows] == ([floor] if floor else [])


def test_capabilities_that_tensorrt_llm_lists(matrix):
    old, new = (row for row in matrix.edition.hardware if row.component == "tensorrt-llm")
    assert "8.6" in old.compute_capability
    assert "8.6" not in new.compute_capability
    assert {"8.0", "8.9", "9.0", "10.0", "10.3"} < set(new.compute_capability)


def test_quantization(matrix):
    edition = matrix.edition
    assert by(edition.quantization, method="gguf").last == Pep440("0.23.0")
    assert by(edition.quantization, method="gptq_marlin_24").last == Pep440("0.15.1")
    gate = by(edition.quantization_gates, scheme="ct_w8a8_fp8")
    assert (gate.min_compute_capability, gate.native_compute_capability) == ("8.9", "8.9")
    assert by(edition.quantization_gates, scheme="fp8").min_compute_capability == "7.5"
    assert by(edition.quantization_gates, scheme="fp8").native_compute_capability == "8.9"
    assert by(edition.quantization_support, family="fp8_w8a8").supported == ("8.9", "9.0")
    assert by(edition.quantization_support, family="fp8_w8a8").unsupported == ("7.0", "7.5", "8.0", "8.6")
    assert by(edition.kv_cache, dtype="fp8").first == Pep440("0.5.5")


def test_models(matrix):
    models = matrix.edition.models
    assert by(models, component="vllm", architecture="Qwen3ForCausalLM").first == Pep440("0.8.5.post1")
    assert by(models, component="vllm", architecture="MPTForCausalLM").last == Pep440("0.28.0")
    assert by(models, component="tensorrt-llm", architecture="Qwen3ForCausalLM").first == Pep440("1.0.0")
    assert by(models, component="tensorrt-llm", architecture="GptOssForCausalLM").unverified == ("first",)


# --- containers and bulletins ---------------------------------------------------------------------


def test_container_toolkit(matrix):
    tools = [row for row in matrix.edition.tools if row.component == "container-toolkit"]
    assert len(tools) == 35
    assert (tools[0].version.raw, tools[-1].version.raw) == ("1.12.0", "1.20.0")
    assert by(tools, version="1.19.1").released == "2026-05-21"
    rows = [row for row in matrix.edition.advisories if row.component == "container-toolkit"]
    assert [row.id for row in rows if meets("1.17.3", row.affected)] == ["5616", "5659", "5850"]
    assert not [row.id for row in rows if meets("1.19.1", row.affected)]


@pytest.mark.parametrize(
    ("products", "branch", "floor"),
    [
        ("data-center", 535, "535.309.01"),
        ("data-center", 570, "570.211.01"),
        ("data-center", 580, "580.159.03"),
        ("data-center", 590, "590.48.01"),
        ("data-center", 595, "595.71.05"),
        ("geforce-rtx", 535, "535.309.01"),
        ("geforce-rtx", 580, "580.178.04"),
        ("geforce-rtx", 595, "595.91.07"),
        ("geforce-rtx", 610, "610.57.04"),
    ],
)
def test_driver_floors_are_kept_apart(matrix, products, branch, floor):
    fixed = [
        version
        for row in matrix.edition.advisories
        if row.component == "driver" and row.products == products
        for version in row.fixed_in
        if version.major == branch
    ]
    assert max(fixed).raw == floor


@pytest.mark.parametrize(
    ("runtime", "floor"),
    [("containerd", "1.7.16"), ("docker", "26.1.0"), ("podman", "5.1.0"), ("cri-o", "1.30.0")],
)
def test_cdi_floors(matrix, runtime, floor):
    row = by(matrix.edition.relations, id=f"cdi-spec-0.7.0-{runtime}")
    assert row.when == {"container-toolkit": ">=1.19.0", runtime: "*"}
    assert row.requires == {runtime: f">={floor}"}


def test_same_versions(matrix):
    tied = {row.id: row.same_version for row in matrix.edition.relations if row.same_version}
    assert tied["fabric-manager-same-version"] == ("driver", "fabric-manager")
    assert tied["imex-same-version"] == ("driver", "imex")


# --- systems and kernels --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        ("ubuntu-22.04", "5.15", "2.35", "11", "3.10", "ubuntu2204", "2027-04-01"),
        ("ubuntu-24.04", "6.8", "2.39", "13.2", "3.12", "ubuntu2404", "2029-05-31"),
        ("ubuntu-26.04", "7.0", "2.43", "15.2", "3.14.4", "ubuntu2604", "2031-04-30"),
        ("rocky-8", "4.18", "2.28", "8.5", "3.6", "rhel8", "2029-05-31"),
        ("rocky-9", "5.14", "2.34", "11", "3.9", "rhel9", "2032-05-31"),
        ("rhel-9", "5.14", "2.34", "11", "3.9", "rhel9", "2032-05-31"),
        ("rocky-10", "6.12", "2.39", "14", "3.12", "rhel10", "2035-05-31"),
        ("debian-12", "6.1", "2.36", "12.2", "3.11", "debian12", "2026-07-11"),
        ("debian-13", "6.12", "2.41", "14.2", "3.13", "debian13", "2028-08-09"),
    ],
)
def test_system(matrix, case):
    name, kernel, glibc, gcc, python, repo, ends = case
    row = matrix.system(name)
    assert [row.kernel, row.glibc, row.gcc, row.python] == [Dotted(v) for v in (kernel, glibc, gcc, python)]
    assert (row.cuda_repo, row.support_ends) == (repo, ends)


@pytest.mark.parametrize(
    ("kernel", "branch", "since", "patched_by"),
    [
        ("6.8.0-124-generic", 535, "535.154.05", "ubuntu"),
        ("6.8", 550, "550.40.65", ""),
        ("6.12", 535, "535.216.01", ""),
        ("6.17", 580, "580.82.07", ""),
        ("6.17", 570, "570.190", ""),
        ("6.19", 580, "580.126.09", ""),
        ("7.0", 580, "580.142", ""),
        ("7.0", 595, "595.44.03", ""),
        ("7.0", 550, "550.163.01", "debian"),
        ("7.2", 580, "580.178.04", ""),
    ],
)
def test_kernel(matrix, kernel, branch, since, patched_by):
    build = by(matrix.kernel(Dotted(kernel)).builds, branch=str(branch))
    assert (build.since.raw, build.patched_by) == (since, patched_by)


def test_bulletins_of_engines(matrix):
    def hits(component, version):
        rows = [row for row in matrix.edition.advisories if row.component == component and row.affected]
        return [row.id for row in rows if meets(version, row.affected)]

    assert hits("tensorrt-llm", "1.2.1") == ["5840"]
    assert hits("tensorrt-llm", "1.3.0rc15") == ["5840"]
    assert hits("tensorrt-llm", "1.3.0rc22") == []
    assert hits("tensorrt", "10.16.1.11") == ["5855"]
    assert hits("tensorrt", "11.0.0.114") == []
    assert hits("dcgm", "4.6.0") == []


@pytest.mark.parametrize(
    ("release", "since"),
    [
        ("6.12.96", []),
        ("6.12.97", ["6.12.97"]),
        ("6.12.105-production+truenas", ["6.12.97"]),
        ("6.18.39", []),
    ],
)
def test_a_patch_level_can_need_a_newer_driver(matrix, release, since):
    row = matrix.kernel(Dotted(release))
    changes = row.changes_in(Dotted(release))
    assert [change.since.raw for change in changes] == since
    for change in changes:
        assert [(build.branch, build.since.raw) for build in change.builds] == [(580, "580.126.09")]
        assert [version.raw for version in change.fails] == ["550.163.01", "570.172.08"]


def test_patch_levels_that_took_a_change(matrix):
    assert [v.raw for v in matrix.kernel(Dotted("6.8")).also_in] == ["5.10.210", "6.1.76", "6.6.15", "6.7.3"]
    assert matrix.kernel(Dotted("6.9")) is None


@pytest.mark.parametrize(
    ("line", "controller", "target", "dnf"),
    [
        ("2.16", ">=3.10,<3.13", ">=3.6,<3.13", True),
        ("2.19", ">=3.11", ">=3.8", False),
        ("2.21", ">=3.12,<3.15", ">=3.9,<3.15", True),
    ],
)
def test_ansible(matrix, line, controller, target, dnf):
    row = by(matrix.edition.ansible, line=line)
    assert (row.controller_python, row.target_python, row.manages_el8_dnf) == (controller, target, dnf)


# --- names and speeds -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "status", "last", "instead"),
    [
        ("--swap-space", "removed", "0.17.1", ()),
        ("--disable-log-requests", "removed", "0.16.0", ("--enable-log-requests",)),
        ("--task", "removed", "0.12.0", ("--runner", "--convert")),
        ("--awq-ckpt-path", "invented", "", ()),
        ("--gpu-memory-utilization", "changed", "", ()),
        ("--max_output_len", "removed", "", ("--max_seq_len",)),
        ("vllm:gpu_cache_usage_perc", "removed", "0.11.2", ("vllm:kv_cache_usage_perc",)),
        ("vllm:gpu_cache_usage_ratio", "invented", "", ("vllm:kv_cache_usage_perc",)),
        ("vllm:kv_cache_usage_perc", "current", "", ()),
        ("/stats", "invented", "", ("/metrics",)),
        ("trtllm-inspect", "invented", "", ()),
    ],
)
def test_name(matrix, name, status, last, instead):
    row = by(matrix.edition.names, name=name)
    assert (row.status, row.last, row.instead) == (status, last, instead)


def test_what_replaces_a_vllm_metric_is_one_of_its_metrics(matrix):
    metrics = {row.name: row for row in matrix.edition.names if row.kind == "metric"}
    named = [i for row in metrics.values() for i in row.instead if i.startswith("vllm:")]
    assert len(named) >= 9
    assert {metrics[name].status for name in named} == {"current"}


@pytest.mark.parametrize(
    "case",
    [
        ("H200 SXM", 4800, 2333, 48, 335, 431),
        ("H100 SXM", 3350, 1905, 48, 335, 460),
        ("A100 SXM4 80GB", 2039, 1173, 21, 235, 228),
        ("L40S", 864, 525, None, None, None),
        ("B200 SXM", 8000, 4073, None, None, None),
        ("GB200", 8000, None, None, None, None),
        ("T4", 320, 183, None, None, None),
    ],
)
def test_speed(matrix, case):
    gpu, sheet, floor, host, peer, allreduce = case
    row = by(matrix.edition.speeds, gpu=gpu)
    assert (row.bandwidth_gb_s, row.copy_floor_gb_s) == (sheet, floor)
    found = (row.host_copy_floor_gb_s, row.peer_copy_floor_gb_s, row.allreduce_floor_gb_s)
    assert found == (host, peer, allreduce)


def test_what_nobody_looked_up_is_unverified(matrix):
    edition = matrix.edition
    third_party = [row for row in edition.speeds if any("third party" in text for text in row.source)]
    assert {row.gpu for row in third_party} == {"T4", "V100 SXM2 32GB", "A40", "H100 NVL"}
    assert all("bandwidth_gb_s" in row.unverified for row in third_party)
    sources = [text for table in edition.rows().values() for row in table for text in row.source]
    assert [text for text in sources if "remembered" in text or "no reading" in text] == []
    assert matrix.system("debian-13").confidence == "unverified"
    assert by(edition.advisories, id="5861-geforce-rtx").unverified == ("published",)
    assert {r.version.raw for r in matrix.releases("vllm") if r.confidence == "derived"} == {
        "0.15.0",
        "0.15.1",
    }

# ruff: noqa: E501 - a problem is one line, however long
"""Ways to spoil the rows about software, systems and speeds, and what is said about each."""

import pytest

from doctor.core.edition import TABLES
from doctor.core.versions import Dotted, Pep440
from doctor.edition.build import encode
from doctor.edition.load import decode
from doctor.edition.package_relations import exact_pin, meets, series
from doctor.edition.review import gaps
from doctor.edition.source import compile_edition
from doctor.errors import MatrixError

# name, file, place, what stands there instead, the end of each problem
FAULTS = [
    ("unknown component", "vllm", "glibc: ", "glibcc: ", ["vllm.yaml:10: releases[0.32.0].requires: the component `glibcc` is not in `components` (did you mean `glibc`?)", "releases[0.32.0].glibc_tag: a tag is written where `requires` names a newer glibc"]),
    ("unknown component of a row", "engines", "dtype: fp8\n", "dtype: fp8\n  note: x\n  unverified: [dtyp]\n", ["`dtyp` is no field of this row (did you mean `dtype`?)"]),
    ("component of nowhere", "names", "- component: vllm\n  kind", "- component: vlm\n  kind", ["names.yaml:3: names[--swap-space].component: the component `vlm` is not in `components` (did you mean `vllm`?)"]),
    ("set that is none", "vllm", "<3.15", "to 3.15", ["requires: python: `>=3.11,to 3.15` is not a set such as `>=3.11,<3.15`"]),
    ("empty set", "vllm", '{torch: "==2.13.0"}', '{torch: ","}', ["requires: torch: an empty set says nothing: write `*`"]),
    ("empty mapping", "vllm", '{torch: "==2.13.0"}', "{}", ["releases[0.33.0].requires: a mapping is wanted, not an empty one"]),
    ("mapping of lists", "vllm", '{torch: "==2.13.0"}', "{torch: [a]}", ["requires.torch: text is wanted, not a list"]),
    ("mapping with a number", "vllm", '{torch: "==2.13.0"}', "{torch: 2.13}", ["requires.torch: `2.13` reads as a number here: put it in quotes"]),
    ("word out of a closed set", "components", "when: {kernel-modules: open}", "when: {kernel-modules: opened}", ["relations[open-floor].when: kernel-modules: `opened` is no word of `kernel-modules` (did you mean `open`?)"]),
    ("relation that asks for nothing", "components", '  requires: {driver: ">=515"}\n', "", ["a relation requires something, or ties versions together"]),
    ("same version as itself", "components", "same_version: [driver, fabric-manager]", "same_version: [driver]", ["one component alone is always of one version"]),
    ("same version as nothing", "components", "same_version: [driver, fabric-manager]", "same_version: [driver, fabric]", ["same_version: the component `fabric` is not in `components` (did you mean `fabric-manager`?)"]),
    ("components missing", "components", "components:\n", "componentz:\n", ["components.yaml:1: `components` is missing", "componentz: unknown section (did you mean `components`?)"]),
    ("version of no scheme", "torch", '"2.13.0"', '"two"', ["releases[two].version: `two` is not a PEP 440 version"]),
    ("no such CUDA", "torch", 'cuda: "13.0"', 'cuda: "13.7"', ["CUDA `13.7` has no row in `toolkits`"]),
    ("no such CUDA major", "torch", 'cuda: "13.0"', 'cuda: "12"', ["CUDA `12` has no row in `toolkits`", "built with CUDA 13.0, but its torch 2.13.0 with 12", "built with CUDA 13.0, but its torch 2.13.0 with 12"]),
    ("capability of no architecture", "vllm", 'compute_capability: ["9.0"]', 'compute_capability: ["9.1"]', ["`9.1` is no capability of any architecture", "`9.1` is no target of CUDA `13.0`"]),
    ("capability that the toolkit lacks", "vllm", 'compute_capability: ["9.0"]', 'compute_capability: ["7.0", "9.0"]', ["`7.0` is no target of CUDA `13.0`"]),
    ("capabilities out of order", "vllm", 'compute_capability: ["9.0"]', 'compute_capability: ["9.0", "9.0"]', ["capabilities stand in ascending order, each once"]),
    ("capability without a dot", "vllm", 'compute_capability: ["9.0"]', 'compute_capability: ["90"]', ["`90` is not a compute capability such as `9.0`"]),
    ("pin that never was", "vllm", '{torch: "==2.13.0"}', '{torch: "==2.13.1"}', ["releases[0.33.0].requires: there was never a torch `2.13.1` (did you mean `2.13.0`?)"]),
    ("release twice", "flashinfer", '"0.7.1"', '"0.7.0"', ["`0.7.0` follows `0.7.0.post1`: releases stand in ascending order, each once", "`flashinfer 0.7.0` has a row already, at flashinfer.yaml:3"]),
    ("release before its predecessor", "vllm", '"2026-10-18"', '"2026-11-18"', []),
    ("patch before its predecessor", "flashinfer", 'version: "0.7.0.post1"\n  released: "2026-10-22"', 'version: "0.7.0.1"\n  released: "2026-09-01"', ["`0.7.0.1` is older than `0.7.0` (2026-09-22), which it follows"]),
    ("day of tomorrow", "torch", "2026-07-08", "2026-12-08", ["`2026-12-08` is later than the edition's `2026-11-30`"]),
    ("day of no calendar", "torch", "2026-07-08", "2026-02-30", ["`2026-02-30` is not a day of the calendar"]),
    ("interpreter out of range", "vllm", 'interpreters: ["3.11"]', 'interpreters: ["3.10"]', ["`3.10` is outside its `python` >=3.11,<3.15"]),
    ("tag that says nothing new", "vllm", 'glibc_tag: "2.5"', 'glibc_tag: "2.28"', ["`2.28` is not older than `>=2.28`: leave it out"]),
    ("variant of no CUDA", "torch", 'cuda: "13.0"', "cuda_variants: [cu11]\n  unsuffixed_variant: cu13", ["`cu11` names no CUDA major of `toolkits`", "`cu13` is not in `cuda_variants`"]),
    ("model before the engine", "engines", 'architecture: LlamaForCausalLM\n  first: "0.32.0"', 'architecture: LlamaForCausalLM\n  first: "0.31.0"', ["models[LlamaForCausalLM].first: vllm has no release `0.31.0`"]),
    ("model that ends before it begins", "engines", 'LlamaForCausalLM\n  first: "0.32.0"\n  last: "0.33.0"', 'LlamaForCausalLM\n  first: "0.33.0"\n  last: "0.32.0"', ["`0.32.0` is older than `0.33.0`"]),
    ("line of no set", "engines", '">=0.32"', '"0.32 and newer"', ["versions: vllm: `0.32 and newer` is not a set such as `>=3.11,<3.15`"]),
    ("fix that is affected", "advisories", '"<=1.19.0"', '"<=1.19.1"', ["`1.19.1` is itself in `<=1.19.1`"]),
    ("bulletin without a day", "advisories", "after 2026-08-18", "in August", ["`in August` holds no date such as `2026-11-30`"]),
    ("floor of no branch", "advisories", '["580.178.04"]', '["575.1", "580.178.04"]', ["`575.1` is of no branch in `branches`"]),
    ("two floors of a branch", "advisories", '["580.178.04"]', '["580.126.09", "580.178.04"]', ["one release a branch, in ascending order"]),
    ("CVE that is none", "advisories", "CVE-2026-24260", "CVE-24260", ["`CVE-24260` is not a number such as `CVE-2026-24260`"]),
    ("system of no version", "systems", "system: ubuntu-24.04", "system: ubuntu", ["`ubuntu` is not a name such as `ubuntu-24.04`", "`ubuntu-24.04` is not in `systems`"]),
    ("end after the end", "systems", "2036-05-31", "2028-05-31", ["`2028-05-31` lies before `support_ends`"]),
    ("kernels out of order", "systems", '["6.11"]', '["6.5"]', ["kernels stand in ascending order, after that of the release"]),
    ("driver for another kernel", "systems", 'precompiled_kernels: ["6.8"]', 'precompiled_kernels: ["7.0"]', ["`7.0` is no kernel of the system"]),
    ("driver for no kernel", "systems", '  precompiled_kernels: ["6.8"]\n', "", ["kernels and branches stand together"]),
    ("kernel patch level", "kernels", 'kernel: "6.8"', 'kernel: "6.8.1"', ["`6.8.1` is not a minor release such as `6.8`", "`6.8.9` is no patch level of 6.8.1", "`ubuntu-24.04` has no kernel 6.8.1 in `systems`"]),
    ("build of no branch", "kernels", 'branch: 580, since: "580.65', 'branch: 581, since: "581.65', ["R581 is not in `branches`"]),
    ("build of another branch", "kernels", 'since: "580.65.06"', 'since: "590.1"', ["`590.1` is not a release of R580"]),
    ("upstream before the patch", "kernels", 'upstream_since: "580.126.09"', 'upstream_since: "580.65.06"', ["`580.65.06` is not newer than the patched `580.65.06`"]),
    ("upstream without a patch", "kernels", "patched_by: ubuntu, ", "", ["R580: `upstream_since` goes with a patch"]),
    ("patch level of another series", "kernels", 'since: "6.8.9"', 'since: "6.9.9"', ["`6.9.9` is no patch level of 6.8"]),
    ("patch level that both builds and fails", "kernels", 'fails: ["580.65.06"]', 'fails: ["580.178.04"]', ["`580.178.04` both builds and fails"]),
    ("patch level of no branch", "kernels", 'branch: 580, since: "580.126.20"', 'branch: 581, since: "581.1"', ["stable_changes: R581 is not in `branches`"]),
    ("bulletin that nothing fixes", "advisories", 'fixed_in: ["1.19.1"]', "note: x", ["one release, and the set of those `affected`"]),
    ("bulletin fixed twice", "advisories", 'fixed_in: ["1.19.1"]', 'fixed_in: ["1.19.1"]\n  fixed_release: "1.19.1"', ["fixed_release: one release, and the set of those `affected`"]),
    ("package fixed in what is affected", "advisories", 'fixed_in: ["1.19.1"]', 'fixed_release: "1.18.0rc1"', ["`1.18.0rc1` is itself in `<=1.19.0`"]),
    ("driver bulletin without a floor", "advisories", '  fixed_in: ["580.178.04"]\n', "", ["a release of one branch at least"]),
    ("current and gone", "names", "status: removed", "status: current", ["what is current was not removed"]),
    ("flag without a dash", "names", "name: --swap-space", "name: swap-space", ["the flag `swap-space` begins with no dash"]),
    ("floor below a third", "speeds", "copy_floor_gb_s: 2333", "copy_floor_gb_s: 1600", ["speeds[H200 SXM].copy_floor_gb_s: 1600 is 33% of the datasheet's 4800: 35% to 95% are credible"]),
    ("floor above the sheet", "speeds", "copy_floor_gb_s: 2333", "copy_floor_gb_s: 4700", ["4700 is 98% of the datasheet's 4800: 35% to 95% are credible"]),
    ("measured against nothing", "speeds", "  bf16_tflops: 989\n", "", ["there is no `bf16_tflops` to hold it against"]),
    ("floor of no number of GPUs", "speeds", "copy_floor_gb_s: 2333", "copy_floor_gb_s: 2333\n  allreduce_floor_gb_s: 431", ["the floor and the number of GPUs stand together"]),
    ("speed of no id", "speeds", "10de:2335", "10de:2336", ["`10de:2336` has no row in pci_ids.yaml"]),
    ("speed of another capability", "speeds", 'compute_capability: "9.0"', 'compute_capability: "7.0"', ["`10de:2335` has 9.0 in pci_ids.yaml"]),
    ("memory of another sheet", "speeds", "memory_gb: 141", "memory_gb: 80", ["`10de:2335` has 141 in `products`"]),
    ("heads that do not divide", "published_models", "kv_heads: 2", "kv_heads: 3", ["published[Some/Model].kv_heads: 4 heads are no multiple of 3"]),
    ("layers of nothing", "published_models", "layers: 2", "layers: 0", ["published[Some/Model].layers: 0 is no size"]),
    ("a base of nothing", "published_models", "rope_thetas: [10000]", "rope_thetas: [0]", ["bases and contexts are positive"]),
    ("range upside down", "speeds", "low: 0.88", "low: 0.98", ["0.98 to 0.93 is no range"]),
    ("more than the whole", "speeds", "high: 0.93", "high: 1.2", ["1.2 is more than the whole"]),
    ("component of a file", "cuda", "confidence: vendor}", "confidence: vendor, component: 5}", ["defaults.component: `5` reads as a number here: put it in quotes"]),
]  # fmt: skip


@pytest.mark.parametrize(("file", "old", "new", "wanted"), [pytest.param(*f[1:], id=f[0]) for f in FAULTS])
def test_fault(spoiled_more, file, old, new, wanted):
    sources = spoiled_more(file, old, new)
    if not wanted:
        assert compile_edition(sources).name == "2026.11"
        return
    with pytest.raises(MatrixError) as caught:
        compile_edition(sources)
    problems = caught.value.problems
    assert len(problems) == len(wanted), problems
    for end in wanted:
        assert any(end in problem for problem in problems), problems


def test_every_table_has_a_row_in_the_small_matrix(more_sources):
    edition = compile_edition(more_sources)
    others = {"tools", "ansible", "stacks", "owners", "makers", "product_classes", "changes"}
    others |= {"xids", "sxids", "driver_bugs"}
    # Of packages.yaml, which test_install_faults.py spoils.
    others |= {"repositories", "package_sets", "package_families", "package_versions", "foreign_packages"}
    assert {table for table, rows in edition.rows().items() if not rows} == others
    assert decode(encode(edition), "edition.json") == edition


def test_component_of_a_file_fills_its_rows_only(more_sources):
    edition = compile_edition(more_sources)
    assert {row.component for row in edition.releases} == {"vllm", "torch", "flashinfer"}
    assert edition.releases[-1].requires == {"torch": "==2.13.0"}


@pytest.mark.parametrize(
    "case",
    [
        ("vllm", 'flashinfer: "==0.7.0"', 'flashinfer: "==0.6.9"', "flashinfer 0.6.9 has no row; pinned by vllm 0.32.0"),
        ("cuda", '  driver: "580.65.06"\n', "", "toolkit 13.0 has no driver"),
        ("systems", '["6.11"]', '["6.17"]', "kernel 6.17 of ubuntu-24.04 has no row"),
    ],
)  # fmt: skip
def test_gaps_are_warnings(spoiled_more, more_sources, case):
    *change, wanted = case
    before = gaps(compile_edition(more_sources))
    assert before == ("kernel 6.11 of ubuntu-24.04 has no row",)
    assert wanted in gaps(compile_edition(spoiled_more(*change)))


def test_a_kernel_of_an_ended_system_is_no_gap(spoiled_more):
    assert gaps(compile_edition(spoiled_more("systems", "2029-05-31", "2025-05-31"))) == ()


@pytest.mark.parametrize(
    ("version", "wanted", "is_in"),
    [
        ("2.14.0", "==2.14.0", True),
        ("2.14.0", "*", True),
        ("1.3.0rc15", ">=1.0,<2", True),
        ("10.14.1.48.post1", "~=10.14.1", True),
        ("10.15.1", "~=10.14.1", False),
        ("580.126.09", ">=580.65.06", True),
        ("5.0", "!=5.0.*,>=4.56.0", False),
    ],
)
def test_meets(version, wanted, is_in):
    assert meets(version, wanted) is is_in


@pytest.mark.parametrize(
    ("wanted", "pin"),
    [("==2.14.0", "2.14.0"), ("==2.4.1+cu124", "2.4.1"), ("==2.*", ""), (">=2,<3", ""), ("==1,!=2", "")],
)
def test_exact_pin(wanted, pin):
    assert exact_pin(wanted) == pin


def test_series():
    assert series(Pep440("0.3.1")) == series(Pep440("0.3.0")) == (0, 3)
    assert series(Pep440("0.3.0.post1")) != series(Pep440("0.3.1"))
    assert series(Pep440("0.3.0.post1")) == series(Pep440("0.3.0.post2"))
    assert series(Dotted("1.17.8")) == series(Dotted("1.17.9")) != series(Dotted("1.18.0"))


def test_tables_are_those_of_the_files():
    from doctor.edition.source import _FILES, TABLE_OF

    assert {TABLE_OF.get(section, section) for sections in _FILES.values() for section in sections} == set(
        TABLES
    )

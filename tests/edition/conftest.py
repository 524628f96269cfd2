"""A whole matrix of a few rows, and ways to change one place in it."""

import pytest

SMALL = {
    "edition.yaml": """\
name: "2026.11"
as_of: "2026-11-30"
""",
    "gpus.yaml": """\
sources:
  page: "https://example.org/architectures"
  board: "a board table"
defaults:
  as_of: "2026-11-30"
  review_by: "2027-11-30"
architectures:
- architecture: hopper
  compute_capability: ["9.0"]
  sm: ["90"]
  open_module: supported
  first_cuda: "11.8"
  fp8: true
  confidence: vendor
  source: [page]
- architecture: volta
  compute_capability: ["7.0"]
  sm: ["70"]
  open_module: unsupported
  last_branch: 580
  confidence: vendor
  source: [page]
products:
- product: H200 SXM
  pci_device_ids: ["10de:2335"]
  architecture: hopper
  compute_capability: "9.0"
  memory_gb: 141
  ecc: true
  mig_min_driver: "550.90.07"
  confidence: vendor
  unverified: [ecc]
  source: [page, board]
rules:
- id: trust-nvml
  fact: What NVML says outranks this table.
  confidence: vendor
  source: [page]
""",
    "pci_ids.yaml": """\
sources:
  ids: "pci.ids of a day"
defaults:
  as_of: "2026-11-30"
  confidence: derived
  review_by: "2027-11-30"
chips:
- chip: GH100
  architecture: hopper
  compute_capability: "9.0"
  source: [ids]
- chip: GV100
  architecture: volta
  compute_capability: "7.0"
  source: [ids]
gpus:
- pci_device_id: "10de:2335"
  name: NVIDIA H200
  chip: GH100
  min_driver: "550.40.65"
  source: [ids]
- pci_device_id: "10de:2342"
  name: NVIDIA GH200 120GB
  chip: GH100
  subsystem_ids: ["10de:16eb"]
  open_module: required
  memory_gb: 96
  source: [ids]
- pci_device_id: "10de:2342"
  name: NVIDIA GH200 480GB
  chip: GH100
  subsystem_ids: ["10de:1809"]
  open_module: required
  source: [ids]
- pci_device_id: "10de:1db6"
  name: Tesla V100 PCIe 32GB
  chip: GV100
  source: ["a text of its own, no key"]
""",
    "drivers.yaml": """\
defaults: {as_of: "2026-11-30", review_by: "2027-02-28"}
branches:
- branch: R580
  major: 580
  kind: LTSB
  status: supported
  ends: "2028-06"
  cuda_version: "13.0"
  last_for: [volta]
  security_floor: "580.178.04"
  latest_known: "580.178.04"
  open_module: true
  proprietary_module: true
  releases: ["580.65.06", "580.126.09", "580.178.04"]
  confidence: vendor
  source: ["the driver guide, R620"]
rules:
- id: backward-compat
  fact: A newer driver runs older toolkits.
  confidence: vendor
  source: ["the driver guide, R620"]
""",
    "cuda.yaml": """\
defaults: {as_of: "2026-11-30", review_by: "2027-11-30", confidence: vendor}
toolkits:
- cuda: "13.0"
  driver: "580.65.06"
  driver_floor: "580.65.06"
  updates:
    - {version: "13.0.1", driver: "580.82.07"}
    - {version: "13.0.2"}
  sm_targets: ["75", "90"]
  max_host_gcc_major: 15
  source: ["CUDA release notes, table 3"]
rules:
- id: floor-not-exact
  fact: Below the floor is a fault, below the toolkit's driver a warning.
  source: ["CUDA release notes, table 2"]
""",
    "causes.yaml": """\
defaults: {as_of: "2026-11-30", review_by: "2027-11-30", confidence: vendor}
causes:
- id: driver.not_loaded
  layer: driver
  title: The kernel module is not loaded.
  when: [has_gpu, not module_loaded]
  deciding_facts: ["what `lsmod` lists"]
  remedy:
    summary: Load the module.
    commands: [[modprobe, nvidia]]
    cost: none
  source: ["the driver guide, R620"]
- id: driver.not_loaded.blocked
  layer: driver
  title: The module is on a deny list.
  refines: driver.not_loaded
  source: ["the driver guide, R620"]
""",
}


@pytest.fixture
def sources():
    """A function: the small matrix as bytes; a changed file goes without its `.yaml`, None drops it."""

    def make(**changed):
        texts = {**SMALL, **{f"{name}.yaml": text for name, text in changed.items()}}
        return {name: text.encode() for name, text in texts.items() if text is not None}

    return make


@pytest.fixture
def spoiled(sources):
    """A function: the small matrix with one place changed, which must be there exactly once."""

    def make(file, old, new):
        text = SMALL[f"{file}.yaml"]
        assert text.count(old) == 1, f"`{old}` stands {text.count(old)} times in {file}.yaml"
        return sources(**{file: text.replace(old, new)})

    return make


@pytest.fixture
def tree(tmp_path, sources):
    """A source tree with the small matrix; gives its matrix folder."""
    (tmp_path / "pyproject.toml").write_text("")
    folder = tmp_path / "matrices"
    folder.mkdir()
    for name, data in sources().items():
        (folder / name).write_bytes(data)
    return folder


# --- rows about software, systems and speeds --------------------------------------------------------

HEAD = 'defaults: {as_of: "2026-11-30", review_by: "2027-11-30", confidence: vendor}\n'
A_PAGE = "  source: [a page]\n"

MORE = {
    **SMALL,
    "components.yaml": f"""\
{HEAD}components:
- component: vllm
  scheme: pep440
  binds: environment
  meaning: An engine.
  complete_since: "0.32.0"
{A_PAGE}- component: torch
  scheme: pep440
  binds: environment
  meaning: PyTorch.
  complete_since: "2.13.0"
{A_PAGE}- component: flashinfer
  scheme: pep440
  binds: environment
  meaning: Kernels.
{A_PAGE}- component: python
  scheme: pep440
  binds: environment
  meaning: The interpreter.
{A_PAGE}- component: glibc
  scheme: dotted
  binds: environment
  meaning: The C library.
{A_PAGE}- component: driver
  scheme: dotted
  binds: host
  meaning: The driver.
{A_PAGE}- component: kernel-modules
  scheme: name
  binds: host
  meaning: Their flavour.
  words: [open, proprietary]
{A_PAGE}- component: fabric-manager
  scheme: dotted
  binds: host
  meaning: For NVSwitch.
{A_PAGE}- component: container-toolkit
  scheme: dotted
  binds: host
  meaning: For containers.
{A_PAGE}relations:
- id: same-version
  when: {{fabric-manager: "*"}}
  same_version: [driver, fabric-manager]
{A_PAGE}- id: open-floor
  when: {{kernel-modules: open}}
  requires: {{driver: ">=515"}}
{A_PAGE}""",
    "vllm.yaml": f"""\
{HEAD.replace("}", ", component: vllm}")}releases:
- version: "0.32.0"
  released: "2026-10-18"
  cuda: "13.0"
  compute_capability: ["9.0"]
  cpu: [x86_64]
  interpreters: ["3.11"]
  glibc_tag: "2.5"
  requires: {{python: ">=3.11,<3.15", glibc: ">=2.28", torch: "==2.13.0", flashinfer: "==0.7.0"}}
{A_PAGE}- version: "0.33.0"
  released: "2026-11-02"
  cuda: "13.0"
  requires: {{torch: "==2.13.0"}}
{A_PAGE}""",
    "torch.yaml": f"""\
{HEAD.replace("}", ", component: torch}")}releases:
- version: "2.13.0"
  released: "2026-07-08"
  cuda: "13.0"
{A_PAGE}""",
    "flashinfer.yaml": f"""\
{HEAD.replace("}", ", component: flashinfer}")}releases:
- version: "0.7.0"
  released: "2026-09-22"
{A_PAGE}- version: "0.7.0.post1"
  released: "2026-10-22"
{A_PAGE}- version: "0.7.1"
  released: "2026-10-09"
{A_PAGE}""",
    "engines.yaml": f"""\
{HEAD}hardware:
- component: vllm
  versions: ">=0.32"
  min_compute_capability: "7.0"
{A_PAGE}models:
- component: vllm
  architecture: LlamaForCausalLM
  first: "0.32.0"
  last: "0.33.0"
{A_PAGE}quantization:
- component: vllm
  method: fp8
  first: "0.32.0"
  last: "0.33.0"
{A_PAGE}quantization_gates:
- component: vllm
  versions: "==0.33.0"
  scheme: fp8
  min_compute_capability: "7.0"
{A_PAGE}quantization_support:
- component: vllm
  versions: "==0.33.0"
  family: fp8
  supported: ["9.0"]
  on_x86_cpu: false
{A_PAGE}kv_cache:
- component: vllm
  dtype: fp8
  first: "0.32.0"
{A_PAGE}rules:
- id: a-rule
  fact: A sentence.
{A_PAGE}""",
    "engine_flags.yaml": f"""\
{HEAD}engine_grammars:
- component: vllm
  command: vllm serve
  style: apart
  positional: MODEL
  read: ["0.32.0", "0.33.0"]
{A_PAGE}engine_flags:
- component: vllm
  command: vllm serve
  flag: "--gpu-memory-utilization"
  kind: float
  first: "0.32.0"
  last: "0.32.0"
  default: "0.9"
  minimum: 0
  maximum: 1
{A_PAGE}- component: vllm
  command: vllm serve
  flag: "--gpu-memory-utilization"
  kind: float
  first: "0.33.0"
  last: "0.33.0"
{A_PAGE}- component: vllm
  command: vllm serve
  flag: "--runner"
  kind: choice
  choices: [auto, pooling]
  default: auto
  first: "0.32.0"
  last: "0.33.0"
{A_PAGE}engine_batches:
- component: vllm
  first: "0.32.0"
  last: "0.33.0"
  min_memory_gib: 70
  max_num_batched_tokens: 8192
  max_num_seqs: 1024
{A_PAGE}engine_dtypes:
- component: vllm
  dtype: bfloat16
  first: "0.32.0"
  last: "0.33.0"
  min_compute_capability: "8.0"
{A_PAGE}""",
    "advisories.yaml": f"""\
{HEAD}advisories:
- id: 1-data-center
  bulletin: "1"
  component: driver
  products: data-center
  published: after 2026-08-18
  fixed_in: ["580.178.04"]
{A_PAGE}- id: "2"
  bulletin: "2"
  component: container-toolkit
  products: all
  published: "2026-06-30"
  cves: ["CVE-2026-24260"]
  affected: "<=1.19.0"
  fixed_in: ["1.19.1"]
{A_PAGE}""",
    "systems.yaml": f"""\
{HEAD}systems:
- system: ubuntu-24.04
  kernel: "6.8"
  later_kernels: ["6.11"]
  glibc: "2.39"
  gcc: "13.2"
  python: "3.12"
  is_in_driver_guide: true
  precompiled_kernels: ["6.8"]
  precompiled_branches: [R580]
  support_ends: "2029-05-31"
  extended_ends: "2036-05-31"
{A_PAGE}rules:
- id: another-rule
  fact: A sentence.
{A_PAGE}""",
    "kernels.yaml": f"""\
{HEAD}kernels:
- kernel: "6.8"
  builds:
    - {{branch: 580, since: "580.65.06", patched_by: ubuntu, upstream_since: "580.126.09"}}
  stable_changes:
    - since: "6.8.9"
      change: An argument more.
      builds:
        - {{branch: 580, since: "580.126.20"}}
      fails: ["580.65.06"]
  default_of: [ubuntu-24.04]
{A_PAGE}rules:
- id: a-third-rule
  fact: A sentence.
{A_PAGE}""",
    "names.yaml": f"""\
{HEAD}names:
- component: vllm
  kind: flag
  name: --swap-space
  command: vllm serve
  status: removed
  last: "0.32.0"
{A_PAGE}commands:
- component: vllm
  versions: ">=0.32"
  command: vllm serve
  flags: [--host]
  is_whole: false
{A_PAGE}""",
    "folklore.yaml": f"""\
{HEAD}folklore:
- id: smi-is-no-toolkit
  claim: nvidia-smi shows CUDA, so the toolkit is installed
  words: [nvidia-smi, cuda, toolkit, installed]
  holds: false
  rule: a-fourth-rule
{A_PAGE}""",
    "signatures_driver.yaml": f"""\
{HEAD}signatures:
- id: driver.cannot_communicate
  pattern: "cannot communicate with the driver"
  causes: [{{cause: driver.not_loaded, weight: 60}}]
  positive: ["smi cannot communicate with the driver"]
  negative: ["smi communicates with the driver"]
{A_PAGE}""",
    "published_models.yaml": f"""\
{HEAD}published:
- model: Some/Model
  model_type: llama
  hidden_size: 64
  layers: 2
  heads: 4
  kv_heads: 2
  contexts: [512]
  rope_thetas: [10000]
{A_PAGE}""",
    "speeds.yaml": f"""\
{HEAD}speeds:
- gpu: H200 SXM
  pci_device_ids: ["10de:2335"]
  compute_capability: "9.0"
  memory_gb: 141
  bandwidth_gb_s: 4800
  bf16_tflops: 989
  power_w: 700
  measured_bf16_tflops: 794.5
  copy_floor_gb_s: 2333
{A_PAGE}speed_ranges:
- id: hbm-copy
  quantity: memory-copy
  applies_to: hbm
  low: 0.88
  high: 0.93
  unit: share
{A_PAGE}rules:
- id: a-fourth-rule
  fact: A sentence.
{A_PAGE}""",
}


@pytest.fixture
def more_sources():
    """The small matrix with a few rows of every table, as bytes."""
    return {name: text.encode() for name, text in MORE.items()}


@pytest.fixture
def spoiled_more():
    """A function: the same with one place changed, which must be there exactly once."""

    def make(file, old, new):
        text = MORE[f"{file}.yaml"]
        assert text.count(old) == 1, f"`{old}` stands {text.count(old)} times in {file}.yaml"
        return {name: t.encode() for name, t in {**MORE, f"{file}.yaml": text.replace(old, new)}.items()}

    return make

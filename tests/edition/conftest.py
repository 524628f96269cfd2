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
  patterns: ["couldn't communicate with the NVIDIA driver"]
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

"""CDI specifications: both forms, host paths and what is missing of them, and those that nobody can use."""

from __future__ import annotations

import json

import pytest

from doctor.core.host import Known
from doctor.core.host_container import CdiSpec
from doctor.facts.cdi import parse_spec, read_cdi_specs
from tests.facts.evidence import evidence

LIBCUDA = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.126.09"
HOOK = "/usr/bin/nvidia-cdi-hook"

#: As nvidia-ctk 1.18 writes it, shortened.
YAML = f"""---
cdiVersion: 0.5.0
containerEdits:
    deviceNodes:
        - path: /dev/nvidia-modeset
        - hostPath: /run/nvidia/driver/dev/nvidiactl
          path: /dev/nvidiactl
    env:
        - NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu
    hooks:
        - args:
            - nvidia-cdi-hook
            - create-symlinks
            - --link
            - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
          hookName: createContainer
          path: {HOOK} # the hook
    mounts:
        - containerPath: {LIBCUDA}
          hostPath: "{LIBCUDA}"
          options:
            - ro
devices:
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
              hostPath: /dev/nvidia0
            - path: /dev/dri/card1
      name: "0"
    - containerEdits:
        deviceNodes:
            - path: /dev/nvidia0
      name: GPU-9f3a1c42-77de-4b10-a2c9-5e0d13b7f8aa
    - containerEdits:
        deviceNodes: []
      name: all
kind: nvidia.com/gpu
"""

#: The older indentation, names first.
FLAT = """cdiVersion: "0.5.0"
kind: "nvidia.com/gpu"
devices:
- name: mig0:1
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia-caps/nvidia-cap12
containerEdits:
  mounts:
  - hostPath: /usr/lib64/libnvidia-ml.so.570.86.15
    containerPath: /usr/lib64/libnvidia-ml.so.570.86.15
"""

JSON = json.dumps(
    {
        "cdiVersion": "0.6.0",
        "kind": "management.nvidia.com/gpu",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
        "containerEdits": {
            "mounts": [{"hostPath": LIBCUDA, "containerPath": LIBCUDA}],
            "hooks": [{"hookName": "createContainer", "path": HOOK}],
        },
    }
)


def test_yaml():
    spec = parse_spec("/etc/cdi/nvidia.yaml", YAML.encode())
    assert (spec.kind, spec.cdi_version, spec.fault) == ("nvidia.com/gpu", "0.5.0", "")
    assert spec.devices == ("0", "GPU-9f3a1c42-77de-4b10-a2c9-5e0d13b7f8aa", "all")
    assert spec.driver_versions == ("580.126.09",)
    assert set(spec.host_paths) == {
        "/dev/nvidia-modeset",
        "/run/nvidia/driver/dev/nvidiactl",
        HOOK,
        LIBCUDA,
        "/dev/nvidia0",
        "/dev/dri/card1",
    }


def test_yaml_with_names_first():
    spec = parse_spec("x", FLAT.encode())
    assert (spec.kind, spec.cdi_version, spec.devices) == ("nvidia.com/gpu", "0.5.0", ("mig0:1",))
    assert spec.host_paths == ("/dev/nvidia-caps/nvidia-cap12", "/usr/lib64/libnvidia-ml.so.570.86.15")
    assert spec.driver_versions == ("570.86.15",)


def test_json():
    spec = parse_spec("/run/cdi/management.json", JSON.encode())
    assert (spec.kind, spec.devices, spec.driver_versions) == (
        "management.nvidia.com/gpu",
        ("all",),
        ("580.126.09",),
    )
    assert set(spec.host_paths) == {LIBCUDA, HOOK, "/dev/nvidia0"}


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b"", "it is empty"),
        (b"\n\0\n", "it is empty"),
        (b'{"kind": ', "it begins as JSON and is none"),
        (b"hello\n", "it has no `cdiVersion` and no `kind`"),
        (b"cdiVersion: 0.5.0\ndevices:\n- name: all\n", "it has no `kind`"),
        (b"cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n", "it lists no device"),
    ],
)
def test_what_no_engine_can_use(data, fault):
    assert parse_spec("x", data).fault == fault


def specs(files=None, stats=None, **kwargs) -> tuple[CdiSpec, ...]:
    fact = read_cdi_specs(evidence(files, stats=stats, **kwargs))
    assert isinstance(fact, Known), fact
    return fact.value


def test_what_a_specification_names_and_is_not_there():
    (spec,) = specs(
        {"/etc/cdi/nvidia.yaml": YAML}, {LIBCUDA: None, HOOK: {}, "/dev/nvidia0": {"kind": "char"}}
    )
    assert spec.missing_paths == (LIBCUDA,)
    (unlooked,) = specs({"/etc/cdi/nvidia.yaml": YAML})
    assert unlooked.missing_paths is None


def test_the_mode_of_its_directory():
    (spec,) = specs({"/etc/cdi/nvidia.yaml": YAML}, stats={"/etc/cdi": {"kind": "dir", "mode": "0700"}})
    assert spec.folder_mode == "0700"
    (spec,) = specs({"/etc/cdi/nvidia.yaml": YAML})
    assert spec.folder_mode == ""


def test_the_run_directory_has_two_names():
    both = specs(
        {"/run/cdi/a.json": JSON, "/var/run/cdi/a.json": JSON, "/etc/cdi/README": "no specification"}
    )
    assert [spec.path for spec in both] == ["/run/cdi/a.json"]


def test_nothing_there_and_nothing_asked():
    assert specs(stats={"/etc/cdi": None, "/run/cdi": None}) == ()
    assert specs(stats={"/etc/cdi": {"kind": "dir"}}) == ()
    assert read_cdi_specs(evidence()).reason == "not_collected"
    denied = read_cdi_specs(evidence(absent={"stat:/etc/cdi": "denied"}))
    assert denied.reason == "denied"


def test_one_that_cannot_be_read_says_so():
    (spec,) = specs(absent={"file:/etc/cdi/nvidia.yaml": "denied"})
    assert (spec.fault, spec.is_read) == ("it cannot be read: denied", False)
    assert spec.missing_paths is None

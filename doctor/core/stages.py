"""What is to be done on a host, as staged variables (`mopt.vars/1`): lists that roles loop over.

`doctor.core.lower` makes them from a stack, a host and `matrices/packages.yaml`; the roles of `playbooks/`
carry them out. Nothing here is a command: the acts are a closed set, one list an act.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

__all__ = [
    "STAGES",
    "VARIABLES_SCHEMA",
    "CapsuleSpec",
    "ContainerRuntime",
    "EngineEnvironment",
    "FileEntry",
    "KernelSpec",
    "Key",
    "PackageVersion",
    "Pin",
    "PlanHead",
    "Reboot",
    "Refusal",
    "Repository",
    "Services",
    "Sign",
    "Stage",
    "StageId",
    "Stream",
    "TargetHost",
    "Transaction",
    "Variables",
    "Verify",
]

VARIABLES_SCHEMA = "mopt.vars/1"

StageId = Literal[
    "bootstrap",
    "preflight",
    "drain",
    "repositories",
    "kernel",
    "driver",
    "fabric",
    "cuda",
    "tensorrt",
    "container",
    "dcgm",
    "engine",
    "verify",
    "lock",
]
#: In the order in which they run. A reboot may stand at the end of a stage.
STAGES: tuple[StageId, ...] = get_args(StageId)


class _Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every value here."""


class Key(_Value, frozen=True, kw_only=True):
    """A signing key of a repository. It comes from `url` or lies in the role's files under `file`."""

    url: str = ""
    file: str = ""
    keyring: str
    """Where it is put on the target."""
    fingerprint: str
    """The long id or the fingerprint that it must have."""


class Repository(_Value, frozen=True, kw_only=True):
    """A package repository, in the form that its manager wants."""

    id: str
    """File name without ending: `mopt-cuda`."""
    kind: Literal["deb", "rpm"]
    uris: tuple[str, ...]
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    description: str = ""
    key: Key | None = None
    conflicting_files: tuple[str, ...] = ()
    """Globs of other files that name the same host: two entries with different keys break every apt call."""
    module_hotfixes: bool = False
    enabled: bool = True


class Pin(_Value, frozen=True, kw_only=True):
    """An apt preference: by label and name pattern, as one file."""

    file: str
    packages: str
    """`src:*nvidia*:any src:cuda-drivers:any`"""
    pin: str
    """`version 580.178.04*` or `release l=NVIDIA CUDA`."""
    priority: int


class Stream(_Value, frozen=True, kw_only=True):
    """A dnf module stream to be enabled; another one of the module is reset first."""

    module: str
    stream: str


class PackageVersion(_Value, frozen=True, kw_only=True):
    """A package at an exact version, with its epoch (`3:580.126.20-1.el9`).

    An empty version: the newest that pins and streams allow. What is installed beside itself in several
    versions (`kernel-devel`) has a transaction for each.
    """

    name: str
    version: str = ""


class Transaction(_Value, frozen=True, kw_only=True):
    """One transaction, simulated first: what it would do must equal what stands here."""

    install: tuple[PackageVersion, ...] = ()
    remove: tuple[str, ...] = ()
    allow_downgrade: bool = False
    extra_allowed: tuple[str, ...] = ()
    """Globs of names that dependency solving may add or upgrade besides; anything else stops it, and so does
    every removal that does not stand above."""
    why: str = ""


class FileEntry(_Value, frozen=True, kw_only=True):
    """A file with its whole content, or its absence."""

    path: str
    content: str = ""
    mode: str = "0644"
    state: Literal["present", "absent"] = "present"
    validate: Literal["", "json", "toml"] = ""
    merge: Literal["", "json"] = ""
    """`json`: keys are merged into what is there, which must be readable."""
    rebuild_initramfs: bool = False


class Services(_Value, frozen=True, kw_only=True):
    """Units, in order. One that does not exist is passed over in `stop` and an error in `start`.

    `stop` comes before the packages, and only when a transaction of the stage has something to do: a second
    run stops nothing. `restart` comes after, and only when something of the stage changed. `start` and
    `enable` hold in every run; they come after the reboot where the stage has one.
    """

    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()


class KernelSpec(_Value, frozen=True, kw_only=True):
    """What a module build needs."""

    kernels: tuple[str, ...]
    """Releases for which a module must exist afterwards: the running one and each that can boot next."""
    header_packages: tuple[str, ...] = ()
    """For messages: the transactions of the stage install them. A mirror that has dropped the running
    kernel's is a cause of its own."""
    compiler_packages: tuple[str, ...] = ()
    """For messages, likewise."""
    module: str = "nvidia"
    module_version: str = ""
    """What each of these kernels must have on disk; empty outside the driver stage."""
    load: tuple[str, ...] = ()
    unload: tuple[str, ...] = ()
    """In the order of unloading. Refused while one is in use; never forced."""


class ContainerRuntime(_Value, frozen=True, kw_only=True):
    """An engine to be wired to the NVIDIA runtime or to CDI."""

    engine: Literal["docker", "containerd", "podman", "crio"]
    mode: Literal["runtime", "cdi"]
    config: str
    drop_in: str = ""
    """A file of its own for what is added, where the engine reads such; `config` is what is there already."""
    unit: str = ""
    set_default: bool = False


class EngineEnvironment(_Value, frozen=True, kw_only=True):
    """An isolated Python environment for an inference engine."""

    name: str
    engine: str
    version: str
    python: str
    path: str
    requirements: str
    """Each with its hashes where a lock was given; else the one pin, and the host records the rest."""
    index_url: str = ""
    extra_index_url: str = ""
    wheelhouse: str = ""
    import_name: str
    import_timeout_s: int = 300
    descriptor: str
    """Path of the descriptor file that `prove` reads."""


class Reboot(_Value, frozen=True, kw_only=True):
    """When the host restarts at the end of a stage: decided on the host by comparison, not by `changed`."""

    when: Literal["never", "if_module_differs", "if_kernel_differs", "always"] = "never"
    timeout_s: int = 1800
    reload_instead: bool = False
    """Modules are unloaded and loaded again where nothing uses them; only then the reboot is saved."""


class Verify(_Value, frozen=True, kw_only=True):
    """Something that must hold at the end of a stage."""

    kind: Literal[
        "file_equals",
        "file_exists",
        "package_version",
        "module_on_disk",
        "module_loaded",
        "service_active",
        "json_key",
        "python_import",
        "not_loaded",
    ]
    subject: str
    """By kind: a path; a package; a unit; for `module_on_disk` the kernel release; for `module_loaded` and
    `not_loaded` the module; `FILE:KEY.KEY` for `json_key`; the environment's path for `python_import`."""
    want: str = ""
    """What it must be: content, version, name of the Python module; empty where being there is enough."""
    why: str = ""


class CapsuleSpec(_Value, frozen=True, kw_only=True):
    """What is captured before the first change, so that undo can be exact."""

    files: tuple[str, ...] = ()
    """Every path that some stage may touch; globs where others' files of a kind are meant."""
    package_patterns: tuple[str, ...] = ()
    """Installed packages whose own files are kept: globs."""


class Refusal(_Value, frozen=True, kw_only=True):
    """Why nothing is done on this host: somebody else's, or a state that a person must settle first."""

    cause: str
    text: str
    way_out: str = ""


class Sign(_Value, frozen=True, kw_only=True):
    """What on a host stops every change there. Preflight looks for it: the plan may rest on a name alone."""

    kind: Literal["path", "kernel", "package", "unowned", "vgpu_guest"]
    subjects: tuple[str, ...] = ()
    """By kind: globs of paths that are there; words in the kernel's release; globs of package names, with `!`
    in front what is none of them; globs of files that no package owns; nothing for `vgpu_guest`."""
    versions: tuple[str, ...] = ()
    """Globs of versions, for packages of which the name alone does not tell."""
    vendors: tuple[str, ...] = ()
    """Words in the vendor or maintainer, likewise."""
    refusal: Refusal


class Stage(_Value, frozen=True, kw_only=True):
    """What one stage does, act by act; an empty list does nothing."""

    id: StageId
    why: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()
    pins: tuple[Pin, ...] = ()
    streams: tuple[Stream, ...] = ()
    unlock: tuple[str, ...] = ()
    """Holds or version locks that are lifted for this stage."""
    packages: tuple[Transaction, ...] = ()
    files: tuple[FileEntry, ...] = ()
    services: Services = Services()
    kernel: KernelSpec | None = None
    containers: tuple[ContainerRuntime, ...] = ()
    environments: tuple[EngineEnvironment, ...] = ()
    hold: tuple[str, ...] = ()
    """Packages held or version-locked at the end."""
    reboot: Reboot = Reboot()
    verify: tuple[Verify, ...] = ()


class PlanHead(_Value, frozen=True, kw_only=True):
    """Which plan this is."""

    id: str
    goal: str
    matrix: str
    digest: str
    """SHA-256 over the stages: `apply` derives it again and refuses when it differs."""


class TargetHost(_Value, frozen=True, kw_only=True):
    """What the plan was made for; preflight compares it with the host."""

    os: str
    """`ubuntu-24.04`, `rocky-9`."""
    architecture: str
    manager: Literal["apt", "dnf"]
    kernel: str = ""
    secure_boot: bool | None = None
    gpu_ids: tuple[str, ...] = ()


class Variables(_Value, frozen=True, kw_only=True):
    """The document that a playbook run takes, one a host."""

    schema: str = VARIABLES_SCHEMA
    mopt_plan: PlanHead
    mopt_target: TargetHost
    mopt_refusals: tuple[Refusal, ...] = ()
    mopt_signs: tuple[Sign, ...] = ()
    mopt_capsule: CapsuleSpec = CapsuleSpec()
    mopt_stages: tuple[Stage, ...] = ()

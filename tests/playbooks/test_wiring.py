"""What engines are told of NVIDIA's runtime and what the lab's stand-in writes, against `nvidia-ctk`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.playbooks.ansible_stand_in import call, module

TREE = Path(__file__).resolve().parents[2]
RECORDED: list[dict[str, Any]] = json.loads((TREE / "tests/data/nvidia-ctk.json").read_text())["runs"]
EMPTY_LOSES = ("containerd-v2", "containerd-v3", "containerd-none")
DROP_INS = {
    "containerd": "/etc/containerd/conf.d/99-nvidia.toml",
    "crio": "/etc/crio/crio.conf.d/99-nvidia.toml",
}


def name_of(run: dict[str, Any]) -> str:
    return " ".join([run["version"], run["case"], *(word.partition("=")[0][2:] for word in run["argv"][4:])])


def engine_of(run: dict[str, Any]) -> str:
    return next(word.partition("=")[2] for word in run["argv"] if word.startswith("--runtime="))


def config_of(run: dict[str, Any]) -> str:
    return next(word.partition("=")[2] for word in run["argv"] if word.startswith("--config="))


class Tree:
    """Files of a host below a folder, and paths into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, files: dict[str, str]) -> None:
        for path, text in files.items():
            target = self.folder / path[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(self.here(text))

    def here(self, text: str) -> str:
        return text.replace("/etc/", f"{self.folder}/etc/")

    def files(self) -> dict[str, str]:
        found = {p: p.read_text() for p in self.folder.rglob("*") if p.is_file()}
        return {
            f"/{p.relative_to(self.folder)}": t.replace(f"{self.folder}/etc/", "/etc/")
            for p, t in found.items()
        }


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


# --- the lab's stand-in -----------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the guests' Python is 3.11; tomllib came with it")
@pytest.mark.parametrize("run", RECORDED, ids=name_of)
def test_the_stand_in_writes_what_the_true_one_was_seen_to_write(tree, run):
    """With an empty option 1.20.0 loses what it was to add, or what was there: nobody asks it to."""
    import tomllib

    if run["rc"] == 0 and "--drop-in-config=" in run["argv"] and run["case"] != "containerd-v1":
        before, after = (json.dumps(run[key]) for key in ("before", "after"))
        loses = "default_runtime" if "default_runtime" in before else "nvidia-container-runtime"
        if run["case"] != "crio-none":
            assert loses not in after
        return
    tool = tree.folder / "nvidia-ctk"
    source = (TREE / "tests/lab/guest/nvidia-ctk").read_text()
    tool.write_text(tree.here(source.replace("@VERSION@", run["version"])))
    tree.write(run["before"])
    done = subprocess.run(
        [sys.executable, "-I", str(tool), *(tree.here(word) for word in run["argv"])],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    tool.unlink()
    assert done.returncode == run["rc"], done.stderr
    found = {path: tomllib.loads(text) for path, text in tree.files().items()}
    assert found == {path: tomllib.loads(text) for path, text in run["after"].items()}


# --- what we make of it -----------------------------------------------------------------------------


def asked(run: dict[str, Any], tree: Tree) -> dict[str, Any]:
    engine = engine_of(run)
    return {
        "engine": engine, "mode": "cdi" if "--cdi.enabled" in run["argv"] else "runtime",
        "config": tree.here(config_of(run)), "drop_in": tree.here(DROP_INS[engine]),
        "set_default": "--nvidia-set-as-default" in run["argv"],
    }  # fmt: skip


@pytest.mark.parametrize("run", [r for r in RECORDED if r["rc"] == 0], ids=name_of)
def test_wired_is_what_the_engine_reads(tree, run):
    """A file that nothing imports wires nothing: 1.18.0 has another folder, version 1 none at all."""
    wiring = module("mopt_runtime").is_wired
    tree.write(run["before"])
    assert not wiring(asked(run, tree))
    tree.write(run["after"])
    path = config_of(run)
    is_lost = (
        (run["case"] == "containerd-v1" and run["after"].get(path) == run["before"].get(path))
        or ("--drop-in-config=" in run["argv"] and run["case"] in EMPTY_LOSES)
        # CRI-O reads crio.conf.d alone.
        or any("/etc/crio/conf.d/" in path for path in run["after"])
        # Not the file that the plan names: an engine may import it, but an undo would miss it.
        or any("/etc/containerd/config.d/" in path for path in run["after"])
    )
    assert wiring(asked(run, tree)) is not is_lost


@pytest.mark.parametrize(
    ("text", "is_first"),
    [
        ("", False),
        ("# nothing\nversion = 2\n", False),
        ("version = 3\n", False),
        ("disabled_plugins = []\n", True),
        ("version = 1\n", True),
        ("[plugins.x]\nversion = 2\n", True),
        ('[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "x"\n', True),
    ],
)  # fmt: skip
def test_the_first_version_imports_nothing(text, is_first):
    assert module("mopt_runtime").is_first_version(text) is is_first


class Ctk:
    """`mopt_runtime` with commands that are answered here, and the argument lists that it gave."""

    def __init__(self, monkeypatch, *, help_text: str, code: int = 0, said: str = "") -> None:
        self.calls: list[list[str]] = []
        runtime = module("mopt_runtime")

        def command(argv, timeout_s=120, surroundings=None):
            if argv[-1] == "--help":
                return 0, help_text
            self.calls.append(argv)
            return code, said

        monkeypatch.setattr(runtime.mopt_host, "command", command)
        monkeypatch.setattr(runtime.shutil, "which", lambda name, **_where: f"/usr/bin/{name}")


NEW, OLD = "--config value\n--drop-in-config value\n", "--config value\n"
CONTAINERD = {"engine": "containerd", "mode": "runtime"}


@pytest.mark.parametrize(
    ("engine", "help_text", "before", "told"),
    [
        ("containerd", NEW, "version = 2\n", ("config", "drop_in")),
        ("containerd", NEW, "", ("config", "drop_in")),
        ("containerd", NEW, "disabled_plugins = []\n", ("config", "config")),
        ("containerd", OLD, "version = 2\n", ("config", "")),
        ("crio", NEW, "[crio]\n", ("config", "drop_in")),
        ("crio", OLD, "[crio]\n", ("drop_in", "")),
    ],
)
def test_where_the_tool_is_told_to_write(tmp_path, monkeypatch, engine, help_text, before, told):  # noqa: PLR0917
    config, drop_in = told
    paths = {
        "config": str(tmp_path / "config.toml"),
        "drop_in": str(tmp_path / "conf.d/99-nvidia.toml"),
        "": "",
    }
    Path(paths["config"]).write_text(before)
    ctk = Ctk(monkeypatch, help_text=help_text)
    call("mopt_runtime", engine=engine, mode="runtime", config=paths["config"], drop_in=paths["drop_in"])
    [argv] = ctk.calls
    assert f"--config={paths[config]}" in argv
    assert [w for w in argv if "drop-in" in w] == ([f"--drop-in-config={paths[drop_in]}"] if drop_in else [])


def test_a_configuration_that_the_tool_cannot_load_has_a_cause(tmp_path, monkeypatch):
    Ctk(
        monkeypatch,
        help_text=NEW,
        code=1,
        said='level=error msg="unable to load config for runtime containerd: (1, 2): was expecting"',
    )
    told = call("mopt_runtime", **CONTAINERD, config=str(tmp_path / "c"), drop_in=str(tmp_path / "d"))
    assert told["failed"]
    assert told["msg"].startswith("container.engine_config_unreadable: ")


def test_what_dockerd_would_refuse_is_not_written(tmp_path, monkeypatch):
    """Valid JSON with an option that the daemon does not know: it would not start again."""
    path = tmp_path / "daemon.json"
    path.write_text('{"no-such-option": 1}')
    said = "unable to configure the Docker daemon: these directives don't match any option: no-such-option"
    Ctk(monkeypatch, help_text="", code=1, said=said)
    told = call("mopt_runtime", engine="docker", mode="runtime", config=str(path))
    assert told["failed"]
    assert "no-such-option" in told["msg"]
    assert "nothing restarted" in told["msg"]
    assert path.read_text() == '{"no-such-option": 1}'


@pytest.mark.parametrize(("code", "said"), [(125, "unknown flag: --validate"), (127, "")])
def test_a_dockerd_that_cannot_validate_is_no_reason_to_refuse(tmp_path, monkeypatch, code, said):
    Ctk(monkeypatch, help_text="", code=code, said=said)
    assert call("mopt_runtime", engine="docker", mode="runtime", config=str(tmp_path / "daemon.json"))[
        "changed"
    ]
    assert "nvidia" in (tmp_path / "daemon.json").read_text()


# --- CDI --------------------------------------------------------------------------------------------

SPEC = (
    "kind: nvidia.com/gpu\ndevices:\n- path: /dev/nvidia0\n- path: /dev/nvidia1\n"
    "mounts:\n- hostPath: /usr/lib64/libcuda.so.580.126.20\n"
)


@pytest.mark.parametrize(
    ("text", "loaded", "devices", "is_fresh"),
    [
        (SPEC, "580.126.20", ("nvidia0", "nvidia1"), True),
        (SPEC, "580.159.04", ("nvidia0", "nvidia1"), False),
        (SPEC, "580.126.2", ("nvidia0",), False),
        (SPEC, "580.126.20", ("nvidia0", "nvidia2"), False),
        (SPEC, "580.126.20", ("nvidia0", "nvidia10"), False),
        (SPEC, "", ("nvidia0",), True),
        ("kind: example.com/nic\n", "580.126.20", (), False),
        ("", "", (), False),
    ],
)
def test_a_cdi_file_names_this_driver_and_every_gpu(  # noqa: PLR0917
    tmp_path, monkeypatch, text, loaded, devices, is_fresh
):
    wiring = sys.modules[module("mopt_runtime").is_fresh.__module__]
    path = tmp_path / "nvidia.yaml"
    path.write_text(text)
    monkeypatch.setattr(wiring.mopt_host, "loaded_version", lambda _module: loaded)
    monkeypatch.setattr(wiring.glob, "glob", lambda _pattern: [f"/dev/{name}" for name in devices])
    assert wiring.is_fresh(str(path)) is is_fresh

"""The wheel, the sdist and the editable install: what is in them, and that each answers from anywhere."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HOST = ROOT / "tests" / "hosts" / "snap-open-1"
WAYS = ("wheel", "sdist", "editable")

pytestmark = [
    pytest.mark.wheel,
    pytest.mark.skipif(not (ROOT / "hatch_build.py").exists(), reason="needs the tree to build from"),
]


def command(*argv: str | Path, cwd: Path | None = None, **more) -> subprocess.CompletedProcess[str]:
    """A command whose environment leads nowhere near the tree."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MOPT_", "VIRTUAL_ENV"))
    }
    return subprocess.run(
        [str(a) for a in argv],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **more,
    )


def must(*argv: str | Path, cwd: Path | None = None) -> str:
    said = command(*argv, cwd=cwd)
    assert said.returncode == 0, f"{argv}\n{said.stdout}\n{said.stderr}"
    return said.stdout


@pytest.fixture(scope="session")
def archives(tmp_path_factory) -> tuple[Path, Path]:
    """Wheel and sdist: those of `make wheel` when MOPT_DIST names them, else built here."""
    named = os.environ.get("MOPT_DIST")
    folder = Path(named) if named else tmp_path_factory.mktemp("dist")
    if not named:
        must(sys.executable, "-I", "-m", "build", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    """A copy of the tree, so that an editable install of it leaves this one alone."""
    copy = tmp_path_factory.mktemp("clone") / "mopt-doctor"
    unwanted = shutil.ignore_patterns(
        ".git", ".venv", "build", "dist", "__pycache__", ".*_cache", ".hypothesis"
    )
    shutil.copytree(ROOT, copy, ignore=unwanted)
    return copy


@pytest.fixture(scope="session", params=WAYS)
def installed(request, archives, tree, tmp_path_factory) -> Path:
    """`bin/` of an environment of its own, filled in one of the three ways."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    must(ROOT / ".ci" / "make-venv", folder)
    what = {"wheel": [archives[0]], "sdist": [archives[1]], "editable": ["-e", tree]}[request.param]
    must(folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)
    return folder / "bin"


@pytest.fixture(scope="session")
def hostile(tmp_path_factory) -> Path:
    """A working directory that would like to be the package, its data and its dependencies."""
    folder = tmp_path_factory.mktemp("hostile")
    trap = f"open({str(folder / 'SPRUNG')!r}, 'a').write(__name__)\nraise SystemExit('hostile code ran')\n"
    for name in ("doctor", "matrices", "optimize", "playbooks", "msgspec"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(trap)
    for name in ("argparse.py", "collector.py", "sitecustomize.py", "pynvml.py", "distro.py", "psutil.py"):
        (folder / name).write_text(trap)
    (folder / "matrices" / "edition.json").write_text('{"schema": "mopt.matrix/1", "name": "hostile"}')
    (folder / "matrices" / "drivers.yaml").write_text("branches: [hostile]\n")
    (folder / "pyproject.toml").write_text("[project]\nname = 'hostile'\n")
    return folder


# --- what is in the archives ----------------------------------------------------------------------


def test_the_wheel_holds_the_four_folders_and_their_data(archives) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = wheel.namelist()
        damaged = wheel.testzip()
    assert damaged is None
    tops = {n.split("/")[0] for n in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == {
        "doctor",
        "optimize",
        "matrices",
        "playbooks",
    }
    for wanted in (
        "matrices/edition.json",
        "matrices/drivers.yaml",
        "doctor/py.typed",
        "doctor/evidence/collector.py",
        "doctor/evidence/witness_gpu.py",
        "doctor/evidence/witness_use.py",
        "doctor/evidence/witness_env.py",
        "doctor/evidence/witness_elf.py",
        "doctor/evidence/witness_host.py",
        "doctor/schemas/mopt.check-1.json",
        "doctor/schemas/mopt.host-1.json",
    ):
        assert wanted in names
    assert [n for n in names if n.endswith(".pyc")] == []
    tracked = {str(p.relative_to(ROOT)) for p in (ROOT / "doctor").rglob("*.py")}
    assert {n for n in names if n.startswith("doctor/") and n.endswith(".py")} == tracked


def test_the_metadata_says_what_the_readme_says(archives) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        (name,) = [n for n in wheel.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
        (entry,) = [n for n in wheel.namelist() if n.endswith(".dist-info/entry_points.txt")]
        assert "mopt-doctor = doctor.cli:program" in wheel.read(entry).decode()
        assert any(n.endswith(".dist-info/licenses/LICENSE") for n in wheel.namelist())
    assert (metadata["Name"], metadata["Requires-Python"]) == ("mopt-doctor", ">=3.10")
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra")) == {
        "tui",
        "provision",
        "bench",
        "all",
        "vllm",
        "tensorrt-llm",
        "dev",
    }
    required = metadata.get_all("Requires-Dist")
    plain = {re.split(r"[<>=!~ ;\[]", r, maxsplit=1)[0] for r in required if "extra ==" not in r}
    assert plain == {"msgspec", "packaging", "pyyaml", "PyYAML", "nvidia-ml-py", "distro", "psutil"} & plain
    assert len(plain) == 6
    provision = {r.split(">")[0] for r in required if "'provision'" in r}
    assert provision == {"ansible-runner", "ansible-core"}


def test_the_engine_extras_are_declared_in_conflict() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["uv"]["conflicts"] == [[{"extra": "vllm"}, {"extra": "tensorrt-llm"}]]
    assert "vllm" not in " ".join(project["project"]["optional-dependencies"]["all"])


def test_the_sdist_is_a_tree_that_can_be_worked_in(archives) -> None:
    with tarfile.open(archives[1]) as sdist:
        names = {m.name.partition("/")[2] for m in sdist.getmembers()}
        assert all(m.isfile() or m.isdir() for m in sdist.getmembers())
    for wanted in (
        "Makefile",
        ".ci/run",
        ".ci/make-venv",
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "LICENSE",
        "hatch_build.py",
        "matrices/drivers.yaml",
        "matrices/edition.json",
        "benchmarks/startup.py",
        "docs/refresh.py",
        "tests/test_packaging.py",
        "tests/hosts/snap-open-1/expected.json",
    ):
        assert wanted in names
    assert [
        n for n in names if "__pycache__" in n or n.startswith((".git/", ".venv", "build/", "dist/"))
    ] == []


# --- each way of installing, from everywhere ------------------------------------------------------


@pytest.mark.parametrize("place", ["/", "hostile"])
def test_it_answers_from(installed: Path, hostile: Path, place: str) -> None:
    cwd = hostile if place == "hostile" else Path("/")
    program = installed / "mopt-doctor"
    assert must(program, "--version", cwd=cwd).startswith("mopt-doctor ")
    h200 = json.loads(must(program, "matrix", "show", "gpu", "10de:2335", "--json", cwd=cwd))
    assert h200["rows"][0]["name"] == "NVIDIA H200"
    head = (ROOT / "matrices" / "edition.yaml").read_text(encoding="utf-8")
    assert f'name: "{h200["matrix_edition"]}"' in head

    replayed = command(program, "check", "--json", "--from", HOST, cwd=cwd)
    assert (replayed.returncode, replayed.stderr) == (1, "")
    assert json.loads(replayed.stdout)["causes"][0]["id"] == "driver.userspace_kernel_mismatch"

    live = command(program, "check", "--json", cwd=cwd)
    assert (live.returncode, live.stderr) in [(0, ""), (1, ""), (3, "")]
    witnesses = command(program, "collect", "--facts", cwd=cwd)
    assert json.loads(witnesses.stdout)["system"]["resources"].get("value"), "psutil was not found"

    module = command(installed / "python", "-I", "-m", "doctor", "--version", cwd=cwd)
    assert module.stdout.startswith("mopt-doctor ")
    assert not (hostile / "SPRUNG").exists()


def test_every_way_gives_the_same_verdict_as_the_tree(installed: Path) -> None:
    def answer(*argv: str | Path) -> dict:
        document = json.loads(command(*argv, "check", "--json", "--from", HOST, cwd=Path("/")).stdout)
        return {k: v for k, v in document.items() if k != "timings"}

    assert answer(installed / "mopt-doctor") == answer(sys.executable, "-I", "-m", "doctor")


def test_it_finds_its_data_beside_the_package(installed: Path) -> None:
    lines = must(installed / "mopt-doctor", "config", "show", cwd=Path("/")).splitlines()
    (data,) = [line.split() for line in lines if line.startswith("data ")]
    where = must(
        installed / "python", "-I", "-c", "import doctor; print(doctor.__file__)", cwd=Path("/")
    ).strip()
    assert Path(data[1]) == Path(where).parent.parent
    assert (Path(data[1]) / "matrices" / "edition.json").is_file()


def test_an_installation_is_not_written_to(installed: Path) -> None:
    """Root's matrix is what was installed: no command rebuilds it."""
    where = Path(
        must(installed / "python", "-I", "-c", "import doctor; print(doctor.__file__)", cwd=Path("/")).strip()
    )
    if "site-packages" not in where.parts:
        pytest.skip("an editable install is a tree, and a tree compiles its matrix")
    matrices = where.parent.parent / "matrices"
    before = {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in matrices.iterdir()}
    (matrices / "drivers.yaml").touch()
    before["drivers.yaml"] = ((matrices / "drivers.yaml").stat().st_mtime_ns, before["drivers.yaml"][1])
    command(installed / "mopt-doctor", "check", "--from", HOST, cwd=Path("/"))
    command(installed / "mopt-doctor", "matrix", "show", cwd=Path("/"))
    assert {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in matrices.iterdir()} == before

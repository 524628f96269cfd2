"""What is shipped: wheel and sdist hold the compiled matrix, and a wheel from the sdist is the same wheel."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.wheel]
pytest.importorskip("build")
pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]
PARTS = (
    *("doctor", "optimize", "matrices", "playbooks"),
    *("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"),
)


def copy_tree(target):
    """A source tree as a fresh checkout has it: without the compiled edition."""
    target.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "edition.json")
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target / part, ignore=unwanted)
        else:
            shutil.copy(ROOT / part, target / part)
    return target


def build(tree, out, *kinds):
    run = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", out, tree]
    return subprocess.run(
        run, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": ""}
    )


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    base = tmp_path_factory.mktemp("archives")
    tree = copy_tree(base / "tree")
    done = build(tree, base / "out", "--wheel", "--sdist")
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (base / "out").glob("*.whl")
    (sdist,) = (base / "out").glob("*.tar.gz")
    return wheel, sdist


def contents(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert len(names) == len(set(names)), "a name stands twice in the wheel"
        return {name: archive.read(name) for name in names}


def test_the_wheel_holds_the_four_folders_and_the_edition(archives):
    names = contents(archives[0])
    for folder in ("doctor", "optimize", "matrices", "playbooks"):
        assert any(name.startswith(f"{folder}/") for name in names), folder
    assert "matrices/edition.json" in names
    assert not [name for name in names if name.startswith("tests/")]


def test_the_sdist_holds_sources_edition_and_hook(archives):
    with tarfile.open(archives[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"matrices/edition.json", "matrices/gpus.yaml", "hatch_build.py", "pyproject.toml"} <= names
    for folder in ("doctor", "optimize", "playbooks"):
        assert any(name.startswith(f"{folder}/") for name in names), folder


def test_a_wheel_from_the_sdist_is_the_same_wheel(archives, tmp_path):
    with tarfile.open(archives[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    done = build(unpacked, tmp_path / "out", "--wheel")
    assert done.returncode == 0, done.stdout + done.stderr
    (again,) = (tmp_path / "out").glob("*.whl")
    assert contents(again) == contents(archives[0])


def test_the_installed_wheel_reads_its_own_edition(archives, tmp_path):
    with zipfile.ZipFile(archives[0]) as archive:
        archive.extractall(tmp_path)
    code = (
        "import sys, doctor; from doctor.edition.load import load_matrix; m = load_matrix();"
        "print(doctor.__file__, m.gpu('10de:2335').name, 'yaml' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=True, env=environment, cwd=tmp_path)
    assert done.stdout == f"{tmp_path}/doctor/__init__.py NVIDIA H200 False\n"


def test_a_fault_in_the_matrix_stops_the_build(tmp_path):
    tree = copy_tree(tmp_path / "tree")
    path = tree / "matrices" / "drivers.yaml"
    path.write_text(path.read_text().replace("kind: LTSB", "kind: 580", 1))
    done = build(tree, tmp_path / "out", "--wheel")
    assert done.returncode != 0
    assert "drivers.yaml:" in done.stdout + done.stderr
    assert "put it in quotes" in done.stdout + done.stderr

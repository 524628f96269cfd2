"""The shape of the repository: sizes, public names, generated pages, and what must never be committed."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from doctor.core.checks import CHECKS
from doctor.core.finding import AREAS
from doctor.errors import EXIT_CODES

ROOT = Path(__file__).parent.parent
OURS = ("doctor", "optimize")

pytestmark = pytest.mark.skipif(
    not (ROOT / "doctor").is_dir(),
    reason="the repository's shape is that of the tree, not of an installation",
)

#: Longer than a module should be, each with its reason.
LONG = {
    "doctor/evidence/collector.py": "one file, because it is copied to hosts and runs there by itself",
    "doctor/core/host.py": "the vocabulary of facts: types without logic, read as one list",
}


def modules() -> list[Path]:
    return sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield f"{path.relative_to(ROOT)}:{node.name}", (node.end_lineno or node.lineno) - first + 1


def test_the_folders_of_the_design_are_there() -> None:
    for folder in ("doctor", "optimize", "matrices", "playbooks", "tests", "docs"):
        assert (ROOT / folder).is_dir(), folder


def test_modules_are_short() -> None:
    lines = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in modules()}
    assert {name: n for name, n in lines.items() if n > 400 and name not in LONG} == {}
    assert {name for name in LONG if lines[name] <= 400} == set(), "no longer an exception"


def test_functions_are_short() -> None:
    lengths = dict(f for path in modules() for f in functions(path))
    assert {name: n for name, n in lengths.items() if n > 80} == {}
    deciles = statistics.quantiles(lengths.values(), n=10)
    assert statistics.median(lengths.values()) < 12
    assert deciles[8] < 40


def test_every_module_says_in_its_first_line_what_it_is_for() -> None:
    for path in modules():
        text = path.read_text(encoding="utf-8")
        words = ast.get_docstring(ast.parse(text)) or ""
        assert words.splitlines()[:1] or not text.strip(), path


#: Started, not imported, or imported on hosts whose Python is 3.6: they have no public surface.
_PROGRAMS = {"doctor/__main__.py", "doctor/evidence/collector.py", "doctor/evidence/witness_gpu.py"}
_PROGRAMS |= {f"doctor/evidence/witness_{name}.py" for name in ("host", "env", "elf", "use")}


def test_the_public_surface_is_listed_and_exists() -> None:
    unlisted = []
    for path in modules():
        name = str(path.relative_to(ROOT))
        public = [n for n in _top_level(path) if not n.startswith("_")]
        if name in _PROGRAMS or not public or name.startswith("doctor/core/claims/"):
            continue  # claims are listed, one and all, in CLAIMS
        module = import_module(name.removesuffix("/__init__.py").removesuffix(".py").replace("/", "."))
        listed = getattr(module, "__all__", None)
        if listed is None:
            unlisted.append(name)
            continue
        assert len(set(listed)) == len(listed), name
        assert [n for n in listed if not hasattr(module, n)] == [], name
    assert unlisted == []


def _top_level(path: Path) -> Iterator[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name


# --- checks ---------------------------------------------------------------------------------------


#: Areas whose checks fill more than the module of their name.
MORE_MODULES = {
    "container": ("injection",),
    "kernel": (
        "history",
        "build",
    ),
    "driver": (
        "listing",
        "settings",
    ),
    "gpu": (
        "xids",
        "use",
    ),
    "system": (
        "goal",
        "machine",
        "sources",
    ),
    "engine": ("goal",),
}


def test_areas_have_no_other_modules() -> None:
    lying = {c.run.__module__.rpartition(".")[2] for c in CHECKS} - set(AREAS)
    assert lying == {module for modules in MORE_MODULES.values() for module in modules}


def test_check_ids_are_unique_and_lie_where_their_area_says() -> None:
    ids = [c.id for c in CHECKS]
    assert len(set(ids)) == len(ids) >= 25
    for one in CHECKS:
        assert re.fullmatch(r"[a-z]+\.[a-z][a-z0-9_]*", one.id)
        assert one.area in AREAS
        modules = (one.area, *MORE_MODULES.get(one.area, ()))
        assert one.run.__module__ in {f"doctor.core.checks.{module}" for module in modules}, one.id


# --- pages ----------------------------------------------------------------------------------------


def test_generated_parts_of_the_pages_are_fresh() -> None:
    """The exit-code table, the list of checks and the answers that README shows."""
    said = subprocess.run(
        [sys.executable, "-I", str(ROOT / "docs" / "refresh.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (0, ""), "run `make docs`"


def test_the_readme_has_every_exit_code_and_check() -> None:
    """Independent of what makes the parts: the words themselves."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for code, meaning in EXIT_CODES.items():
        assert f"| {code} | {meaning} |" in readme
    page = (ROOT / "docs" / "checks.md").read_text(encoding="utf-8")
    assert [c.id for c in CHECKS] == re.findall(r"^\| `([a-z_.0-9]+)` \|", page, re.MULTILINE)


PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/checks.md", "docs/evidence.md")


@pytest.mark.parametrize("page", PAGES)
def test_links_and_named_files_exist(page: str) -> None:
    path = ROOT / page
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#:]+)\)", text)
    assert [link for link in links if not (path.parent / link).exists()] == []
    named = re.findall(r"`((?:doctor|matrices|tests|docs|benchmarks|\.ci)/[\w./-]+\.\w+)`", text)
    assert [name for name in named if not (ROOT / name).exists()] == []


# --- what must never be committed -----------------------------------------------------------------

#: Written in halves, so that this file does not hold them.
BANNED = tuple(
    "".join(halves)
    for halves in (
        ("/work", "/main"),
        ("/work", "/shared"),
        ("/root/", ".pyenv"),
        ("pypi", ".org"),
        ("pythonhosted", ".org"),
        ("deb.debian", ".org"),
        ("security.debian", ".org"),
        ("registry.npmjs", ".org"),
    )
)
_BUILT = {".git", ".venv", "build", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_BUILT |= {".hypothesis", ".import_linter_cache"}


def committed() -> Iterator[Path]:
    for path in ROOT.rglob("*"):
        if path.is_file() and not path.is_symlink() and not _BUILT & set(path.relative_to(ROOT).parts):
            yield path


def test_no_registry_and_no_path_of_this_machine_is_named() -> None:
    found = []
    for path in committed():
        data = path.read_bytes()
        found += [f"{path.relative_to(ROOT)}: {word}" for word in BANNED if word.encode() in data]
    assert found == []

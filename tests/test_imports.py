"""What a start may import: the list is short on purpose, and every name on it has a reason."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from doctor.edition.load import load_matrix

HOST = Path(__file__).parent / "hosts" / "snap-open-1"


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: argparse brings gettext, locale, shutil and with it the archive formats; its help brings textwrap.
GRAMMAR = names(
    "__future__ _bz2 _collections _compression _functools _locale _lzma _operator _sre argparse bz2"
    " collections compression copyreg doctor enum errno fnmatch functools gc gettext itertools keyword locale"
    " lzma operator re reprlib shutil signal sre_compile sre_constants sre_parse textwrap types warnings zlib"
)

#: msgspec brings datetime, decimal, typing and uuid; uuid brings platform, and that, until Python 3.10,
#: subprocess with its threading and selectors. pathlib brings ntpath, urllib.parse, glob, grp and pwd.
#: shlex is the text report's, select is the live host's, hashlib the source tree's digest.
CHECK = GRAMMAR | names(
    "_blake2 _datetime _decimal _hashlib _typing _uuid contextlib datetime decimal glob grp hashlib importlib"
    " ipaddress math msgspec ntpath numbers pathlib platform pwd select shlex typing urllib uuid"
)
UNTIL_3_10 = names("_posixsubprocess _weakrefset fcntl selectors subprocess threading")

#: Heavy or out of place; named so that a failure speaks, though the lists above would catch them, too.
FORBIDDEN = names(
    "ansible_runner asyncio concurrent dataclasses distro email http importlib.metadata inspect"
    " jsonschema logging multiprocessing packaging psutil pydantic pynvml random rich socket ssl tarfile"
    " tempfile textual torch unittest urllib.request vllm xml yaml"
)

# typing_extensions is in a developer's environment only; msgspec would take it and inspect with it.
PROGRAM = """
import json, sys
sys.modules["typing_extensions"] = None
before = set(sys.modules)
from doctor.cli import main
try:
    code = main(sys.argv[2:])
except SystemExit as end:
    code = end.code or 0
with open(sys.argv[1], "w") as out:
    json.dump({"code": code, "modules": sorted(set(sys.modules) - before)}, out)
"""


@pytest.fixture(scope="module", autouse=True)
def _compiled_edition() -> None:
    """A tree whose YAML was edited compiles it at the next start, with PyYAML: not what is meant here."""
    load_matrix()


def modules_of(tmp_path: Path, *argv: str) -> tuple[int, set[str]]:
    """The exit code of a command and what its process imported."""
    listing = tmp_path / "modules.json"
    subprocess.run(
        [sys.executable, "-I", "-c", PROGRAM, str(listing), *argv],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    answer = json.loads(listing.read_text())
    return answer["code"], set(answer["modules"])


def outside(modules: set[str], allowed: frozenset[str]) -> set[str]:
    known = allowed | (UNTIL_3_10 if sys.version_info < (3, 11) else frozenset())
    return {m for m in modules if m.partition(".")[0] not in known} | (modules & FORBIDDEN)


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_version_and_help_import_the_grammar_alone(tmp_path: Path, option: str) -> None:
    code, modules = modules_of(tmp_path, option)
    assert code == 0
    assert outside(modules, GRAMMAR) == set()
    ours = {m for m in modules if m.startswith("doctor")}
    grammar = {m for m in ours if m.startswith("doctor.grammar")}
    assert ours <= {"doctor", "doctor.cli", "doctor.errors"} | grammar


@pytest.mark.parametrize("form", [(), ("--json",), ("--verbose",), ("--quiet",)])
def test_check_of_a_bundle_imports_what_it_needs(tmp_path: Path, form: tuple[str, ...]) -> None:
    code, modules = modules_of(tmp_path, "check", "--from", str(HOST), *form)
    assert code == 1
    assert outside(modules, CHECK) == set()


def test_check_of_this_host_imports_what_it_needs(tmp_path: Path) -> None:
    code, modules = modules_of(tmp_path, "check")
    assert code in (0, 1, 3)
    assert outside(modules, CHECK) == set()
    assert "doctor.evidence.live" in modules
    # Bundles and redaction belong to other commands; the collector and its witnesses to other processes.
    unwanted = {
        "bundle",
        "archive",
        "redact",
        "collector",
        "witness_gpu",
        "witness_use",
        "witness_host",
        "witness_env",
        "witness_elf",
    }
    assert {m for m in modules if m.rpartition(".")[2] in unwanted} == set()


def test_the_net_catches_what_is_heavy_and_lets_its_light_parent_pass() -> None:
    assert outside({"doctor.cli", "asyncio.events", "yaml"}, CHECK) == {"asyncio.events", "yaml"}
    assert outside({"urllib.parse"}, CHECK) == set()
    assert outside({"urllib.request", "importlib.metadata"}, CHECK) == {
        "urllib.request",
        "importlib.metadata",
    }

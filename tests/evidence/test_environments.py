"""The witness of environments: found and described without running anything of them, whatever lies there."""

from __future__ import annotations

import ast
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from doctor.core.host import Environment, known
from doctor.errors import UsageError
from doctor.evidence.live import collect_live, start_collecting, whole_paths
from doctor.facts.read import read_scopes
from tests.evidence.conftest import COLLECTOR

WITNESSES = [COLLECTOR.parent / "witness_env.py", COLLECTOR.parent / "witness_elf.py"]


def plant(prefix: Path, *, torch: str = "2.9.0+cu128", cuda: str = "'12.8'", python: str = "3.12") -> Path:
    """A venv with torch and vLLM as pip leaves them: names and the files that are read."""
    site = prefix / "lib" / f"python{python}" / "site-packages"
    for name in (f"torch-{torch}", "vllm-0.11.2", "triton-3.5.0", "nvidia_nccl_cu12-2.27.5"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text(
        f"from typing import Optional\n__version__ = '{torch}'\n"
        f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n"
    )
    (site / "vllm-0.11.2.dist-info" / "METADATA").write_text(
        "Name: vllm\nRequires-Dist: torch==2.9.0\nRequires-Dist: aiohttp\n\n"
        "A text.\nRequires-Dist: torch==1.0\n"
    )
    (site / f"torch-{torch}.dist-info" / "WHEEL").write_text("Tag: cp312-cp312-manylinux_2_28_x86_64\n")
    (prefix / "bin").mkdir()
    (prefix / "bin" / "python").symlink_to("/usr/bin/python3")
    (prefix / "pyvenv.cfg").write_text(
        "home = /usr/bin\nversion = 3.12.3\ninclude-system-site-packages = false\n"
    )
    return site


def looked_into(root: Path, *paths: str) -> dict[str, Environment]:
    evidence = collect_live(budget_s=20, sysroot=str(root), environments=paths)
    found = {h.scope: known(h.environment) for h in read_scopes(evidence) if h.scope.startswith("venv:")}
    return {scope: inside for scope, inside in found.items() if inside is not None}


def elf(needs: list[str], symbols: list[str]) -> bytes:
    """A little ELF file with a dynamic section, as a linker would lay it out."""
    table, places = b"\0", []
    for name in [*needs, *symbols]:
        places.append(len(table))
        table += name.encode() + b"\0"
    at, base = 64 + 2 * 56, 0x1000
    dynamic = b"".join(struct.pack("<qQ", 1, place) for place in places[: len(needs)])
    size = len(dynamic) + 48
    dynamic += struct.pack("<qQqQqQ", 5, base + at + size, 10, len(table), 0, 0)
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    )
    total = at + size + len(table)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, total, total, 4096)
    return (
        head
        + load
        + struct.pack("<IIQQQQQQ", 2, 6, at, base + at, base + at, size, size, 8)
        + dynamic
        + table
    )


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "opt/vllm",
        "opt/vllm/venv",
        "opt/a/b",
        "srv/llm",
        "srv/llm/.venv",
        "root/.venv",
        "root/work",
        "root/work/.venv",
        "home/ann/venv",
        "home/ann/work",
        "home/ann/work/.venv",
        "home/ann/.venv",
    ],
)
def test_environments_in_the_usual_places(tmp_path: Path, place: str) -> None:
    plant(tmp_path / place)
    found = looked_into(tmp_path)
    assert list(found) == [f"venv:/{place}"]
    inside = found[f"venv:/{place}"]
    assert (inside.torch, inside.vllm, inside.is_meant) == ("2.9.0+cu128", "0.11.2", False)
    assert [(r.by, r.name, r.spec) for r in inside.requires] == [("vllm", "torch", "==2.9.0")]


def test_the_system_and_conda(tmp_path: Path) -> None:
    (tmp_path / "usr/local/lib/python3.12/dist-packages/torch-2.9.0.dist-info").mkdir(parents=True)
    (tmp_path / "usr/lib/python3/dist-packages/numpy-1.26.dist-info").mkdir(parents=True)
    for prefix in ("opt/conda", "opt/conda/envs/llm"):
        (tmp_path / prefix / "conda-meta").mkdir(parents=True)
    (tmp_path / "opt/conda/envs/llm/lib/python3.11/site-packages/torch-2.9.0.dist-info").mkdir(parents=True)
    (tmp_path / "opt/conda/envs/llm/lib/libstdc++.so.6").write_bytes(
        b"\0GLIBCXX_3.4.9\0GLIBCXX_3.4.29\0GLIBCXX_3.4\0"
    )
    found = looked_into(tmp_path)
    assert {scope: inside.kind for scope, inside in found.items()} == {
        "venv:/usr": "system",
        "venv:/opt/conda/envs/llm": "conda",
    }
    assert str(found["venv:/opt/conda/envs/llm"].libstdcxx) == "3.4.29"
    assert str(found["venv:/opt/conda/envs/llm"].python) == "3.11"


def test_homes_that_a_look_would_mount_are_left_alone(tmp_path: Path) -> None:
    """Of an automounter's /home nothing is opened; what was named, or is the caller's own, is looked into."""
    for place in ("home/ann/venv", "opt/near", "opt/far/venv"):
        plant(tmp_path / place)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text(
        "/dev/sda1 / ext4 rw 0 0\nauto.home /home autofs rw 0 0\n"
        "server:/far /opt/far nfs4 rw 0 0\nx /opt/near ext4 rw 0 0\n"
    )
    assert list(looked_into(tmp_path)) == ["venv:/opt/near"]
    assert list(looked_into(tmp_path, "/home/ann/venv")) == ["venv:/home/ann/venv", "venv:/opt/near"]
    said = collect_live(budget_s=20, sysroot=str(tmp_path)).read("environments").data
    assert msgspec.json.decode(said)["not_searched"] == ["/home", "/opt/far"]


def test_what_has_nothing_to_do_with_gpus_is_no_scope(tmp_path: Path) -> None:
    site = plant(tmp_path / "opt/tools")
    for path in site.iterdir():
        if path.name.startswith(("torch", "vllm")):
            path.rename(path.with_name(f"x{path.name}"))
    assert looked_into(tmp_path) == {}
    # Named, it is looked into all the same.
    assert list(looked_into(tmp_path, "/opt/tools")) == ["venv:/opt/tools"]


@pytest.mark.parametrize(
    "asked",
    [
        "/data/v",
        "/data/v/",
        "/data/v/bin/python",
        "/data/v/bin/python3.12",
        "/data/v/lib/python3.12/site-packages",
    ],
)
def test_a_named_one_wherever_it_lies(tmp_path: Path, asked: str) -> None:
    plant(tmp_path / "data/v")
    found = looked_into(tmp_path, asked)
    assert (list(found), found["venv:/data/v"].is_meant) == (["venv:/data/v"], True)


def test_more_than_the_limit_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    for number in range(20):
        plant(tmp_path / f"opt/v{number:02}")
    evidence = collect_live(budget_s=20, sysroot=str(tmp_path))
    assert len([s for s in (h.scope for h in read_scopes(evidence)) if s.startswith("venv:")]) == 16
    assert b"more than 16" in evidence.read("environments").data


def test_the_bases_packages_where_the_venv_sees_them(tmp_path: Path) -> None:
    (tmp_path / "usr/lib/python3.12/dist-packages/tensorrt-10.11.0.dist-info").mkdir(parents=True)
    plant(tmp_path / "opt/v")
    (tmp_path / "opt/v/pyvenv.cfg").write_text(
        "home = /usr/bin\nversion = 3.12.3\ninclude-system-site-packages = true\n"
    )
    assert looked_into(tmp_path)["venv:/opt/v"].tensorrt == "10.11.0"


# --- what is read ---------------------------------------------------------------------------------


def test_what_extensions_ask_for_and_the_assembler(tmp_path: Path) -> None:
    site = plant(tmp_path / "opt/v")
    (site / "vllm").mkdir()
    needs, symbols = (
        ["libcudart.so.13", "libc.so.6"],
        ["GLIBC_2.2.5", "GLIBC_2.34", "GLIBCXX_3.4.9", "GLIBCXX_3.4.30"],
    )
    (site / "vllm" / "_C.abi3.so").write_bytes(elf(needs, symbols))
    binary = site / "triton/backends/nvidia/bin/ptxas"
    binary.parent.mkdir(parents=True)
    # The words lie across the end of a block that is read.
    binary.write_bytes(b"x" * ((1 << 20) - 20) + b"Cuda compilation tools, release 12.8, V12.8.93\0")
    headers = tmp_path / "usr/include/python3.12/Python.h"
    headers.parent.mkdir(parents=True)
    headers.touch()
    inside = looked_into(tmp_path)["venv:/opt/v"]
    (extension,) = inside.bundled
    assert (extension.path, list(extension.needs)) == ("vllm/_C.abi3.so", needs)
    assert (str(extension.glibc), str(extension.glibcxx)) == ("2.34", "3.4.30")
    assert (str(inside.ptxas), inside.has_headers) == ("12.8", True)


@pytest.mark.parametrize(
    ("place", "is_found"),
    [
        ("opt/v/lib/libcudart.so.13", True),
        ("usr/lib/x86_64-linux-gnu/libcudart.so.13", True),
        ("usr/lib/x86_64-linux-gnu/libcudart.so.12", False),
        ("srv/libcudart.so.13", False),
    ],
)
def test_a_cuda_library_may_lie_where_the_loader_looks(tmp_path: Path, place: str, is_found: bool) -> None:
    site = plant(tmp_path / "opt/v")
    (site / "vllm").mkdir()
    (site / "vllm" / "_C.abi3.so").write_bytes(elf(["libcudart.so.13"], []))
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).touch()
    inside = looked_into(tmp_path)["venv:/opt/v"]
    assert any(path.endswith("libcudart.so.13") for path in inside.libraries) is is_found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_headers_that_may_not_be_looked_for_are_not_said_to_be_missing(tmp_path: Path) -> None:
    program = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import collector, witness_env; os.setuid(65534);"
        "print(witness_env._headers(collector.Root('/'), '/nowhere', {'home': sys.argv[2] + '/bin'},"
        " ['/nowhere/lib/python3.12/site-packages']))"
    )
    closed = tmp_path / "closed"
    (closed / "include/python3.12").mkdir(parents=True)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        folder.chmod(0o755)
    closed.chmod(0o700)
    argv: list[Any] = [sys.executable, "-I", "-c", program, COLLECTOR.parent, closed]
    assert subprocess.run(argv, capture_output=True, check=True, timeout=30).stdout.strip() == b"{}"
    closed.chmod(0o755)
    said = subprocess.run(argv, capture_output=True, check=True, timeout=30).stdout.strip()
    assert said == b"{'3.12': False}"


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", elf(["a"], ["b"])[:150], b"\x7fELF\x02\x01" + b"\xff" * 400, os.urandom(500)]
)
def test_a_file_that_is_no_whole_elf_says_nothing(tmp_path: Path, data: bytes) -> None:
    site = plant(tmp_path / "opt/v")
    (site / "vllm").mkdir()
    (site / "vllm" / "_C.abi3.so").write_bytes(data)
    assert looked_into(tmp_path)["venv:/opt/v"].bundled == ()


def test_only_known_lines_of_a_text_leave_it(tmp_path: Path) -> None:
    """A link from an environment to another file carries nothing of that file into a bundle."""
    site = plant(tmp_path / "home/ann/venv")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/shadow").write_text("root:$6$secret:19000::::::\ncuda:$6$also:1\nhome:x\n")
    for path in (
        site / "torch/version.py",
        site / "vllm-0.11.2.dist-info/METADATA",
        tmp_path / "home/ann/venv/pyvenv.cfg",
    ):
        path.unlink()
        path.symlink_to("/etc/shadow")
    (tmp_path / "home/ann/venv/conda-meta").mkdir()
    evidence = collect_live(budget_s=20, sysroot=str(tmp_path), environments=["/home/ann/venv"])
    assert not [name for name, data in evidence.blobs.items() if b"secret" in data or b"$6$also" in data]


def test_a_pipe_where_a_file_should_be_holds_nothing_up(tmp_path: Path) -> None:
    site = plant(tmp_path / "opt/v")
    (site / "torch/version.py").unlink()
    os.mkfifo(site / "torch/version.py")
    evidence = collect_live(budget_s=20, sysroot=str(tmp_path))
    assert evidence.read("environments").status == "ok"


def test_nothing_of_it_is_run(tmp_path: Path) -> None:
    site = plant(tmp_path / "opt/v")
    mark = tmp_path / "ran"
    for name in ("sitecustomize.py", "torch/__init__.py", "vllm.pth"):
        (site / name).write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()\n")
    (tmp_path / "opt/v/bin/python").unlink()
    (tmp_path / "opt/v/bin/python").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (tmp_path / "opt/v/bin/python").chmod(0o755)
    assert looked_into(tmp_path)["venv:/opt/v"].torch == "2.9.0+cu128"
    assert not mark.exists()


# --- how it is asked ------------------------------------------------------------------------------


def test_a_narrow_question_asks_nothing_else(tmp_path: Path) -> None:
    plant(tmp_path / "v")
    with start_collecting(
        budget_s=10, sysroot=None, environments=[str(tmp_path / "v")], is_narrow=True
    ) as live:
        evidence = live.evidence()
    assert [item.key for item in evidence.meta.items] == ["environments"]
    scopes = [h.scope for h in read_scopes(evidence)]
    assert scopes == ["host", f"venv:{tmp_path}/v"]


def test_paths_are_taken_from_here_and_links_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v").mkdir()
    assert whole_paths(["v", "/etc/../usr"], None) == (f"{tmp_path}/v", "/usr")
    assert whole_paths(["/v"], "/mnt") == ("/v",)
    for path, sysroot in (("", None), ("v", "/mnt"), ("w", None)):
        with pytest.raises(UsageError):
            whole_paths([path], sysroot)


@pytest.mark.parametrize("words", [["--ask", "everything"], ["--env"]])
def test_a_bad_question_is_refused(words: list[str]) -> None:
    argv: list[Any] = [sys.executable, "-I", COLLECTOR, "--output=-", *words]
    done = subprocess.run(argv, capture_output=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize("path", WITNESSES)
def test_it_is_written_in_the_syntax_of_python_3_6(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_a_saved_bundle_gives_the_same_facts(tmp_path: Path) -> None:
    from doctor.evidence.bundle import read_bundle, write_bundle

    plant(tmp_path / "root/opt/v")
    evidence = collect_live(budget_s=20, sysroot=str(tmp_path / "root"))
    write_bundle(evidence, str(tmp_path / "b.tar.gz"))
    before, after = read_scopes(evidence), read_scopes(read_bundle(str(tmp_path / "b.tar.gz")))
    assert msgspec.json.encode(known(before[1].environment).packages) == msgspec.json.encode(
        known(after[1].environment).packages
    )
    assert [h.scope for h in before] == [h.scope for h in after]

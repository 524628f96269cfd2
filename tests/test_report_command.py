"""`report`, `completion` and `man` through the command line."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from doctor.cli import main
from doctor.grammar import build_parser
from doctor.grammar.host import FORMS

HOSTS = Path(__file__).parent / "hosts"


def run(capfdbinary, *argv):
    code = main(list(argv))
    out = capfdbinary.readouterr()
    return code, out.out.decode(), out.err.decode()


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "check.json"
    main(["check", "--from", str(HOSTS / "snap-open-1"), "--json", "-o", str(path)])
    return path


@pytest.mark.parametrize("form", [f for f in FORMS if f != "text"])
def test_a_saved_check_is_written_as_the_check_itself_writes_it(form, saved, capfdbinary):
    _, direct, _ = run(capfdbinary, "check", "--from", str(HOSTS / "snap-open-1"), "--format", form)
    code, text, _ = run(capfdbinary, "report", str(saved), "--format", form)
    assert code == 0
    timing = re.compile(r"\d+(\.\d+)? ?ms|\"?(collect|read|judge)_ms\"?: ?[\d.]+|time=\"[\d.]+\"|stage=.*")
    assert timing.sub("", text) == timing.sub("", direct)


def test_text_is_the_same_first_page(saved, capfdbinary):
    _, direct, _ = run(capfdbinary, "check", "--from", str(HOSTS / "snap-open-1"))
    code, text, _ = run(capfdbinary, "report", str(saved))
    assert code == 0
    assert text.split("\n\n")[:2] == direct.split("\n\n")[:2]


def test_a_stack_and_an_answer_have_text(tmp_path, capfdbinary):
    path = tmp_path / "stack.json"
    question = ["--gpu", "H200", "--os", "ubuntu-24.04", "--goal", "vllm==0.33.0"]
    _, picked, _ = run(capfdbinary, "matrix", "pick", *question, "-o", str(path))
    assert run(capfdbinary, "report", str(path)) == (0, picked, "")
    code, _, told = run(capfdbinary, "report", str(path), "--format", "junit")
    assert code == 2
    assert "`text` and `json`" in told


def test_host_facts_have_text(tmp_path, capfdbinary):
    path = tmp_path / "host.json"
    from doctor.evidence.bundle import read_bundle
    from doctor.facts.read import read_host
    from doctor.report.machine import to_json

    path.write_bytes(to_json(read_host(read_bundle(HOSTS / "snap-open-1"))))
    code, text, _ = run(capfdbinary, "report", str(path))
    assert code == 0
    assert "580.159.03" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read"),
        (b"{}", "names no schema"),
        (b'{"schema": "mopt.check/9"}', "mopt.check/9"),
        (b"[" * 100_000, "cannot be read"),
        (b"\x1f\x8b\x08", "check --from"),
        (b'{"schema": "mopt.check/1"}', "cannot be read"),
    ],
)
def test_what_is_no_saved_answer_is_told(content, words, tmp_path, capfdbinary):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    code, out, told = run(capfdbinary, "report", str(path))
    assert (code, out) == (2, "")
    assert words in told


def test_a_bundle_is_sent_to_check(capfdbinary):
    code, _, told = run(capfdbinary, "report", str(HOSTS / "snap-open-1"))
    assert code == 2
    assert "check --from" in told


def test_a_whole_file_takes_the_place_of_the_old_one(saved, tmp_path, capfdbinary):
    target = tmp_path / "mopt.prom"
    target.write_text("old\n")
    target.chmod(0o640)
    before = target.stat().st_ino
    assert run(capfdbinary, "report", str(saved), "--format", "prometheus", "-o", str(target))[0] == 0
    assert target.stat().st_ino != before
    assert target.stat().st_mode & 0o777 == 0o640
    assert target.read_text().startswith("# HELP mopt_check_ready")
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_nothing_else_is_replaced(kind, saved, tmp_path, capfdbinary):
    target = tmp_path / "mopt.prom"
    other = tmp_path / "other"
    other.write_text("mine\n")
    if kind == "link":
        target.symlink_to(other)
    else:
        target.mkdir()
    assert run(capfdbinary, "report", str(saved), "--format", "prometheus", "-o", str(target))[0] == 2
    assert other.read_text() == "mine\n"
    assert target.is_symlink() or target.is_dir()


def completed(script, *words):
    """What bash offers after these words."""
    line = " ".join(f"'{word}'" for word in words)
    program = (
        f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _mopt_doctor; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True, cwd="/")
    return done.stdout.split()


def test_bash_completes_what_the_grammar_has(capfdbinary):
    _, script, _ = run(capfdbinary, "completion", "bash")
    assert {"check", "collect", "matrix", "report", "completion", "man"} <= set(
        completed(script, "mopt-doctor", "")
    )
    assert completed(script, "mopt-doctor", "matrix", "pi") == ["pick"]
    assert completed(script, "mopt-doctor", "check", "--format", "ju") == ["junit"]
    assert "--alternatives" in completed(script, "mopt-doctor", "matrix", "pick", "--a")
    assert completed(script, "mopt-doctor", "completion", "f") == ["fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_names_each_command(shell, capfdbinary):
    code, script, _ = run(capfdbinary, "completion", shell)
    assert code == 0
    for word in ("check", "pick", "why", "--format", "prometheus"):
        assert word.removeprefix("--") in script


def test_the_man_page_has_every_command_and_option(capfdbinary):
    code, page, _ = run(capfdbinary, "man")
    assert code == 0
    assert page.startswith('.TH MOPT-DOCTOR 1 ""')
    plain = page.replace("\\-", "-")
    assert "MOPT-DOCTOR MATRIX PICK" in plain
    assert "--from FILE" in plain
    for code_line in ("130", "could not tell"):
        assert code_line in plain


def test_every_command_has_help_and_codes():
    """A command of the grammar without an entry in the table of exit codes fails as soon as it is built."""
    assert "report" in build_parser().format_help()


def test_saved_json_stays_json(saved, capfdbinary):
    code, text, _ = run(capfdbinary, "report", str(saved), "--json")
    assert code == 0
    assert json.loads(text)["schema"] == "mopt.check/1"
    assert text == saved.read_text()

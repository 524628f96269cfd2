"""The command line as a person and a script meet it: exit codes, streams, messages, signals, ownership."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import msgspec
import pytest

import doctor
from doctor import __version__, cli, config
from doctor.core.checks import CHECKS
from doctor.core.finding import AREAS
from doctor.core.judge import judge_scopes
from doctor.errors import COMMAND_CODES, EXIT_CODES, ConfigError, MatrixError
from tests.report import values

HOSTS = Path(__file__).parent / "hosts"
SICK = str(HOSTS / "snap-open-1")
WELL = str(HOSTS / "healthy-rocky9-proprietary")
UNTOLD = str(HOSTS / "bus-unreadable")
PACKAGE = Path(doctor.__file__).parent
COMMAND = [sys.executable, "-I", "-m", "doctor"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the ownership rule is for root")


def mopt(*argv: str, **options) -> subprocess.CompletedProcess[bytes]:
    """The program itself."""
    return subprocess.run([*COMMAND, *argv], capture_output=True, timeout=60, check=False, **options)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator:
    """`main` in this process: code, stdout, stderr. Cheaper than a process for each case."""
    before = signal.getsignal(signal.SIGTERM)

    def one(*argv: str) -> tuple[int, str, str]:
        try:
            code = cli.main(argv)
        except SystemExit as end:
            code = end.code or 0
        said = capfdbinary.readouterr()
        return code, said.out.decode(), said.err.decode()

    yield one
    signal.signal(signal.SIGTERM, before)


# --- exit codes and streams -----------------------------------------------------------------------


@pytest.mark.parametrize(("bundle", "code"), [(WELL, 0), (SICK, 1), (UNTOLD, 3)])
def test_the_verdict_is_the_exit_code(bundle: str, code: int) -> None:
    said = mopt("check", "--from", bundle)
    assert said.returncode == code
    assert said.stderr == b""
    assert f"exit code {code}: ".encode() in said.stdout


WRONG = {
    "unknown command": (["frobnicate"], r"invalid choice: 'frobnicate'.*check.*collect"),
    "unknown option": (["check", "--frobnicate"], r"unrecognized arguments: --frobnicate"),
    "abbreviated option": (["check", "--verb"], r"unrecognized arguments: --verb"),
    "unknown area": (
        ["check", "--only", "drivr"],
        r"`drivr` is neither an area nor a check\n  hint: nearest: `driver`",
    ),
    "unknown check": (["check", "--skip", "gpu.bar"], r"`gpu\.bar` .*\n  hint: nearest: `gpu\.bars`"),
    "one bad word of two": (
        ["check", "--only", "gpu,zzz"],
        r"`zzz` .*\n  hint: `mopt-doctor check --list-checks`",
    ),
    "a goal of nothing": (
        ["check", "--goal", "vlm==0.33.0"],
        r"no component `vlm`\n  hint: nearest: `vllm`",
    ),
    "no such bundle": (
        ["check", "--from", "/nonexistent/x.tar.gz"],
        r"`/nonexistent/x\.tar\.gz` cannot be read",
    ),
    "two hosts": (["check", "--from", SICK, "--sysroot", "/"], r"`--from` and `--sysroot` .*\n  hint: "),
    "timeout no number": (
        ["check", "--timeout", "soon"],
        r"`soon` \(option --timeout\) .*0\.5 and 600\n  hint: ",
    ),
    "timeout nan": (["check", "--timeout", "nan"], r"`nan` \(option --timeout\)"),
    "timeout too long": (["check", "--timeout", "601"], r"`601`"),
    "format": (["check", "--format", "yaml"], r"invalid choice: 'yaml'"),
    "answer into nowhere": (
        ["check", "--from", SICK, "-o", "/nonexistent/x"],
        r"`/nonexistent/x` cannot be written",
    ),
    "collect to where": (["collect"], r"where the bundle goes\n  hint: `-o host\.tar\.gz`"),
    "matrix of what": (
        ["matrix", "show", "cpu", "1"],
        r"the matrix has no `cpu`\n  hint: did you mean `gpu`\?\n  hint: it has: gpu, driver, cuda, ",
    ),
}


@pytest.mark.parametrize(("argv", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_command_line_is_two_and_said_on_stderr(run, argv: list[str], message: str) -> None:
    code, out, err = run(*argv)
    assert code == 2
    assert out == ""
    assert re.search(message, err, re.DOTALL), err
    assert "Traceback" not in err


def test_a_bad_timeout_of_the_environment_names_the_variable(run, monkeypatch) -> None:
    monkeypatch.setenv("MOPT_TIMEOUT", "-1")
    code, _, err = run("check")
    assert (code, "environment MOPT_TIMEOUT" in err) == (2, True)


def test_matrix_faults_are_all_listed(run, monkeypatch) -> None:
    def faulty(**_: object) -> None:
        raise MatrixError("2 faults", problems=("gpus.yaml:3: a", "gpus.yaml:9: b"), hints=("mend them",))

    monkeypatch.setattr("doctor.commands.verdict.load_matrix", faulty)
    code, _, err = run("check", "--from", SICK)
    assert code == 2
    assert err == "mopt-doctor: 2 faults\n  gpus.yaml:3: a\n  gpus.yaml:9: b\n  hint: mend them\n"


def test_a_bug_is_seventy_and_one_line(run, monkeypatch) -> None:
    def broken(_host: object, *_: object, **__: object) -> None:
        raise ZeroDivisionError("by \x1b[31mnothing")

    monkeypatch.setattr("doctor.commands.verdict.judge_scopes", broken)
    code, out, err = run("check", "--from", SICK)
    assert (code, out) == (70, "")
    assert err.startswith(f"mopt-doctor: a bug in mopt-doctor {__version__}: ZeroDivisionError: by ")
    assert "\x1b" not in err
    assert len(err.splitlines()) == 2
    code, _, err = run("--debug", "check", "--from", SICK)
    assert code == 70
    assert "Traceback" in err
    assert "\x1b" not in err


def test_debug_shows_the_traceback_and_keeps_the_exit_code(run) -> None:
    """1 would be a verdict: *not ready*."""
    for argv in (
        ["--debug", "check", "--from", "/nonexistent"],
        ["check", "--debug", "--from", "/nonexistent"],
    ):
        code, out, err = run(*argv)
        assert (code, out) == (2, "")
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("mopt-doctor: `/nonexistent` cannot be read")


def test_escapes_in_arguments_do_not_reach_the_terminal(run) -> None:
    for argv in (["check", "--only", "\x1b[2Jgpu"], ["check", "--from", "/\x1b]0;owned\x07"]):
        code, _, err = run(*argv)
        assert code == 2
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", err)


_CODE = re.compile(r"^ +(\d+)  (\S.*)$", re.MULTILINE)


def codes_of(run, *argv: str) -> dict[int, str]:
    code, out, _ = run(*argv, "--help")
    assert code == 0
    return {int(number): meaning for number, meaning in _CODE.findall(out.partition("exit codes:")[2])}


def test_the_help_lists_the_exit_codes_of_its_command(run) -> None:
    for command in COMMAND_CODES:
        said = codes_of(run, *command.split())
        assert COMMAND_CODES[command].items() <= said.items(), command
        assert set(said) == {*COMMAND_CODES[command], 2, 70, 130, 143}, command
    assert set(codes_of(run, "check")) == {0, 1, 2, 3, 70, 130, 143}
    assert codes_of(run) == {code: EXIT_CODES[code] for code in (0, 1, 2, 3, 4, 5, 70, 130, 143)}
    assert {code for own in COMMAND_CODES.values() for code in own} <= set(EXIT_CODES)


def test_the_help_says_what_from_takes(run) -> None:
    words = " ".join(run("check", "--help")[1].split())
    for accepted in ("a bundle of `collect`", "nvidia-bug-report.log[.gz]", "nvidia-smi", "collect_env"):
        assert accepted in words
    assert "--timeout S" in run("config", "show", "--help")[1]


@pytest.mark.parametrize(
    "argv", [["-q", "--from", SICK], ["--from", SICK, "-q"], ["check", "-q", "--from", SICK]], ids=" ".join
)
def test_without_a_command_it_checks(run, argv: list[str]) -> None:
    code, out, _ = run(*argv)
    assert code == 1
    assert re.fullmatch(r"NOT READY: the loaded module and the driver libraries .*\n", out)


def test_version(run) -> None:
    assert run("--version") == (0, f"mopt-doctor {__version__}\n", "")


# --- what is asked and how it is answered ---------------------------------------------------------


def test_list_checks_lists_them_all_and_what_decides(run) -> None:
    code, out, _ = run("check", "--list-checks")
    lines = [line.split() for line in out.splitlines()]
    assert code == 0
    assert [line[0] for line in lines] == [c.id for c in CHECKS]
    assert {line[0] for line in lines if line[-1] == "decides"} == {c.id for c in CHECKS if c.is_critical}
    _, some, _ = run("check", "--list-checks", "--only", "gpu,kernel.dkms", "--skip", "gpu.bars")
    ids = {line.split()[0] for line in some.splitlines()}
    assert ids == {c.id for c in CHECKS if c.area == "gpu" or c.id == "kernel.dkms"} - {"gpu.bars"}


def document(run, *argv: str) -> dict:
    code, out, err = run("check", "--json", *argv)
    assert err == ""
    answer = json.loads(out)
    assert answer["exit_code"] == code
    return answer


def test_only_and_skip_choose_what_is_judged(run) -> None:
    only = document(run, "--from", SICK, "--only", "driver", "--only", "cuda.init")
    assert {f["area"] for f in only["findings"]} == {"driver", "cuda"}
    skipped = document(run, "--from", SICK, "--skip", ",".join(AREAS[:-1]))
    assert {f["area"] for f in skipped["findings"]} <= {AREAS[-1], "internal"}
    without = document(run, "--from", SICK, "--skip", "driver.nvml")
    assert "driver.nvml" not in {f["id"] for f in without["findings"]}


@pytest.mark.parametrize("bundle", [WELL, SICK, UNTOLD])
def test_json_is_valid_against_the_published_schema(run, bundle: str) -> None:
    schema = json.loads((PACKAGE / "schemas" / "mopt.check-1.json").read_text())
    answer = document(run, "--from", bundle)
    jsonschema.Draft202012Validator(schema).validate(answer)
    assert answer["schema"] == "mopt.check/1"


def test_format_json_is_json(run) -> None:
    long, short = run("check", "--format", "json", "--from", SICK), run("check", "--json", "--from", SICK)
    drop = [re.sub(r'"timings": \{.*?\}', "", text, flags=re.DOTALL) for _, text, _ in (long, short)]
    assert drop[0] == drop[1]


def test_quiet_is_one_whole_line(run) -> None:
    for bundle in sorted(HOSTS.iterdir()):
        if (bundle / "expected.json").exists():
            _, out, _ = run("check", "-q", "--from", str(bundle))
            _, text, _ = run("check", "--from", str(bundle))
            assert out.count("\n") == 1
            assert " ".join(text.split()).startswith(" ".join(out.split())), bundle.name


def test_output_goes_into_the_file_and_nowhere_else(run, tmp_path: Path) -> None:
    target = tmp_path / "answer.txt"
    _, wanted, _ = run("check", "--from", SICK)
    code, out, err = run("check", "--from", SICK, "-o", str(target))
    assert (code, out, err) == (1, "", "")
    assert target.read_text() == wanted
    assert run("check", "--from", SICK, "-o", "-")[1] == wanted


def test_output_does_not_follow_a_link(run, tmp_path: Path) -> None:
    """In a folder that others write, a link could lead root's answer over any file."""
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text("precious")
    link.symlink_to(victim)
    code, _, err = run("check", "--from", SICK, "-o", str(link))
    assert code == 2
    assert "cannot be written" in err
    assert victim.read_text() == "precious"


def test_strict_makes_a_warning_count(run, monkeypatch) -> None:
    def with_a_warning(*arguments, **options):
        report = judge_scopes(*arguments, **options)
        first, *rest = report.findings
        return msgspec.structs.replace(
            report, findings=(msgspec.structs.replace(first, status="warn"), *rest)
        )

    assert document(run, "--from", WELL, "--strict")["verdict"] == "ready"
    monkeypatch.setattr("doctor.commands.verdict.judge_scopes", with_a_warning)
    relaxed, strict = document(run, "--from", WELL), document(run, "--from", WELL, "--strict")
    assert (relaxed["verdict"], strict["verdict"]) == ("ready", "not_ready")
    assert strict["scopes"] == [{"scope": "host", "verdict": "not_ready"}]
    assert document(run, "--from", UNTOLD, "--strict")["verdict"] == "unknown"


def test_a_host_and_its_container_are_judged_side_by_side(run) -> None:
    bundle = str(HOSTS / "snap-open-5")
    answer = document(run, "--from", bundle)
    assert [(s["scope"].split(":")[0], s["verdict"]) for s in answer["scopes"]] == [
        ("host", "ready"),
        ("container", "not_ready"),
    ]
    code, out, _ = run("check", "-q", "--from", bundle)
    assert (code, out.startswith("NOT READY: in container:")) == (1, True)
    # Under --strict a warning counts in its own scope, and nothing else turns.
    assert document(run, "--from", bundle, "--strict")["scopes"] == answer["scopes"]


def test_strict_turns_only_the_scope_that_warns() -> None:
    from doctor.commands.verdict import _finish
    from doctor.core.finding import ScopeVerdict

    both = tuple(ScopeVerdict(scope=scope, verdict="ready") for scope in ("host", "container:x"))
    warning = values.finding("gpu.ecc", "warn", "no remapped rows", scope="container:x")
    report = msgspec.structs.replace(values.HEALTHY, scopes=both, findings=(warning,))
    strict = _finish(report, strict=True, timings={})
    assert (strict.verdict, [s.verdict for s in strict.scopes]) == ("not_ready", ["ready", "not_ready"])
    assert _finish(report, strict=False, timings={}).scopes == both


def test_a_paste_is_ready_as_far_as_it_goes(run) -> None:
    paste = str(HOSTS.parent / "data" / "foreign" / "collect-env-vllm.txt")
    code, out, _ = run("check", "--from", paste, "-v")
    assert code == 0
    assert out.startswith("READY as far as the evidence goes: cuInit was not asked\n")
    assert "\nhost: ready, venv:unnamed: ready\n" in out
    answer = document(run, "--from", paste)
    scopes = [{"scope": scope, "verdict": "ready"} for scope in ("host", "venv:unnamed")]
    assert (answer["verdict"], answer["scopes"]) == ("ready", scopes)


# --- the terminal ---------------------------------------------------------------------------------


def on_a_terminal(*argv: str, **environment: str) -> bytes:
    """What the program writes when stdout is a terminal."""
    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb", buffering=0) as screen:
        process = subprocess.Popen(
            [*COMMAND, *argv],
            stdout=follower,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.environ["PATH"], "TERM": "xterm", "LC_ALL": "C.UTF-8", **environment},
        )
        os.close(follower)
        said = b""
        try:
            while block := screen.read(65536):
                said += block
        except OSError:
            pass  # Linux ends a terminal whose other side has closed with EIO
        process.wait(timeout=60)
    return said


def test_colour_only_on_a_terminal_and_only_when_wanted() -> None:
    check = ("check", "--from", SICK)
    coloured = on_a_terminal(*check)
    assert b"\x1b[" in coloured
    for plain in (
        on_a_terminal(*check, NO_COLOR="1"),
        on_a_terminal(*check, "--no-color"),
        on_a_terminal(*check, TERM="dumb"),
    ):
        assert b"\x1b" not in plain
        assert re.sub(rb"\x1b\[[0-9;]*m", b"", coloured) == plain
    assert b"\x1b" not in mopt(*check).stdout


def test_ascii_says_the_same_without_other_characters(run, monkeypatch) -> None:
    def without_times(text: str) -> str:
        return re.sub(r"\d+ ms", "", text)

    for bundle in (SICK, WELL, UNTOLD):
        _, out, _ = run("check", "-v", "--ascii", "--from", bundle)
        assert out.isascii()
        monkeypatch.setenv("MOPT_ASCII", "1")
        assert without_times(run("check", "-v", "--from", bundle)[1]) == without_times(out)
        monkeypatch.delenv("MOPT_ASCII")


@pytest.mark.parametrize("form", [["--json"], ["-v"], ["-q"]])
def test_a_reader_that_has_gone_changes_no_verdict(form: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    said = subprocess.run(
        [*COMMAND, "check", "--from", SICK, *form],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (said.returncode, said.stderr) == (1, b"")


# --- signals --------------------------------------------------------------------------------------


def living(marker: str) -> list[str]:
    """Processes whose command line has the marker and that are not dead."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if marker in line and state not in "ZX":
            found.append(f"{entry.name} {line}")
    return found


def wait_until(holds, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_with_all_that_it_started(tmp_path: Path, number: signal.Signals, code: int) -> None:
    """Interrupted while a tool hangs that ignores every polite signal."""
    seconds = f"{3600 + os.getpid()}.{time.monotonic_ns() % 1000003}"
    tool = tmp_path / "root" / "usr" / "bin" / "nvidia-smi"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!/bin/sh\ntrap '' TERM INT HUP\nwhile :; do sleep {seconds}; done\n")
    tool.chmod(0o755)
    (tmp_path / "root" / "proc").mkdir()
    (tmp_path / "root" / "proc" / "version").write_text("Linux version 6.8.0-45-generic\n")
    process = subprocess.Popen(
        [*COMMAND, "check", "--sysroot", str(tmp_path / "root"), "--timeout", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert wait_until(lambda: living(f"sleep {seconds}"), 10), "the tool was never started"
    process.send_signal(number)
    # The streams end only when nobody holds them open any more.
    out, err = process.communicate(timeout=10)
    assert process.returncode == code
    assert (out, err) == (b"", b"mopt-doctor: interrupted; nothing was changed\n")
    assert wait_until(lambda: not living(seconds) and not living(str(tmp_path / "root")), 3), living(seconds)


# --- whose code root runs -------------------------------------------------------------------------

START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from doctor.cli import main; sys.exit(main())"


@pytest.fixture
def installation(tmp_path: Path) -> Path:
    """A copy of the package and its data, as an installation would have it."""
    site = tmp_path / "site"
    shutil.copytree(PACKAGE, site / "doctor", ignore=shutil.ignore_patterns("__pycache__"))
    (site / "matrices").mkdir()
    shutil.copy(Path(config.data_dir("matrices")) / "edition.json", site / "matrices")
    return site


def as_root(site: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-c", START, str(site), *argv],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


#: Those that only list are no exception: what they print is code and data of the installation, too.
EVERY_COMMAND = (
    ("check", "-q", "--from", SICK),
    ("check", "--list-checks"),
    ("collect", "--facts"),
    ("collect", "--list-items"),
    ("matrix", "show", "gpu", "H200"),
    ("matrix", "pick", "--gpu", "H200"),
    ("matrix", "why", "driver==580.178.04"),
    ("matrix", "validate"),
    ("config", "show"),
)


def loosen(path: Path) -> None:
    path.chmod(0o777)


def give_away(path: Path) -> None:
    os.chown(path, 65534, 65534)


@needs_root
def test_root_runs_its_own_installation(installation: Path) -> None:
    assert as_root(installation, "check", "-q", "--from", SICK).returncode == 1


@needs_root
@pytest.mark.parametrize("spoil", [loosen, give_away])
@pytest.mark.parametrize("what", ["doctor", "matrices", "."])
@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_root_refuses_what_others_can_write(
    installation: Path, what: str, spoil, command: tuple[str, ...]
) -> None:
    place = installation / what
    spoil(place)
    said = as_root(installation, *command)
    assert (said.returncode, said.stdout) == (2, "")
    words = (
        "is writable by group or others (mode 0777)"
        if spoil is loosen
        else "is owned by uid 65534, not by root"
    )
    assert f"`{place.resolve()}` {words}" in said.stderr
    assert "hint: `python3 -m venv /opt/mopt-doctor`" in said.stderr


@needs_root
def test_the_version_alone_needs_no_trust(installation: Path) -> None:
    loosen(installation / "matrices")
    assert as_root(installation, "--version").returncode == 0


def test_others_than_root_are_not_asked(installation: Path, monkeypatch) -> None:
    loosen(installation / "matrices")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("MOPT_DATA", str(installation))
    config.check_root_ownership(config.load_settings())


@needs_root
def test_data_named_by_the_environment_is_held_to_the_rule(installation: Path, monkeypatch) -> None:
    monkeypatch.setenv("MOPT_DATA", str(installation))
    config.check_root_ownership(config.load_settings())
    loosen(installation / "matrices")
    with pytest.raises(ConfigError, match="matrices` is writable"):
        config.check_root_ownership(config.load_settings())


@needs_root
def test_as_root_the_module_start_needs_isolation(tmp_path: Path) -> None:
    """`python -m doctor` looks into the current directory first."""
    said = subprocess.run(
        [sys.executable, "-m", "doctor", "--version"],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        timeout=60,
        check=False,
    )
    assert said.returncode == 2
    assert "python -I -m doctor" in said.stderr


# --- engines --------------------------------------------------------------------------------------


def test_both_engines_beside_the_doctor_are_refused(tmp_path: Path) -> None:
    config.refuse_engine_mix(tmp_path)
    for engine in ("vllm", "tensorrt_llm"):
        alone = tmp_path / engine
        (alone / engine).mkdir(parents=True)
        config.refuse_engine_mix(alone)
        (tmp_path / "both" / engine).mkdir(parents=True)
    with pytest.raises(ConfigError, match="vLLM and TensorRT-LLM") as refusal:
        config.refuse_engine_mix(tmp_path / "both")
    assert refusal.value.exit_code == 2
    assert any("an environment of its own" in hint for hint in refusal.value.hints)


@pytest.mark.parametrize("command", [("check", "--from", SICK), ("collect", "--facts")], ids=lambda c: c[0])
def test_commands_refuse_an_environment_of_both_engines(run, tmp_path, monkeypatch, command) -> None:
    for package in ("msgspec", "vllm", "tensorrt_llm"):
        (tmp_path / package).mkdir()
    monkeypatch.setattr(config.msgspec, "__file__", str(tmp_path / "msgspec" / "__init__.py"))
    code, out, err = run(*command)
    assert (code, out) == (2, "")
    assert "vLLM and TensorRT-LLM" in err

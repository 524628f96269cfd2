"""The grammar of the command line: commands, options, help. A command's modules are imported when it runs."""

from __future__ import annotations

import argparse

from doctor import __version__
from doctor.errors import exit_code_table

__all__ = ["FORMS", "build_parser"]

TYPE_CHECKING = False  # the import of typing is not free
if TYPE_CHECKING:
    from collections.abc import Callable

_PROMISE = "It changes nothing on the host, and asks no network."
_PROMISE_OF_BENCH = (
    "It changes nothing on the host. It puts a load on the server that it is given, and asks nobody else."
)
_PROMISE_OF_CHANGE = "It changes the host, as the plan says, after it has asked; `--dry-run` changes nothing."
_PROMISE_OF_IMPORT = "It changes nothing on the host. It asks the package index, as pip is set up to."


def build_parser(only: str = "") -> argparse.ArgumentParser:
    """The whole command line, or the part for one command: the others cost 5 ms of CPU (CPython 3.11)."""
    parser = argparse.ArgumentParser(
        prog="mopt-doctor",
        description="Judges an NVIDIA inference host: does its stack fit together, and what is the one cause"
        " if it does not. Without a command: `check`.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"mopt-doctor {__version__}")
    parser.add_argument("--debug", action="store_true", help=argparse.SUPPRESS)
    commands = parser.add_subparsers(metavar="COMMAND")
    adders = {"check": _add_check, "collect": _add_collect, "matrix": _add_matrix, "config": _add_config}
    adders |= {"explain": _add_explain}
    adders |= {"plan": _add_plan, "apply": _add_apply, "resume": _add_resume, "rollback": _add_rollback}
    adders |= {"work": _add_work, "report": _add_report, "completion": _add_shell}
    adders |= {"bench": _add_bench}
    adders |= {"model": _add_model}
    for name, add in adders.items():
        if only in (name, "") or only not in adders:
            add(commands)
    return parser


def _epilog(command: str = "") -> str:
    promises = {"matrix import": _PROMISE_OF_IMPORT, "bench": _PROMISE_OF_BENCH}
    promises |= dict.fromkeys(("apply", "resume", "rollback"), _PROMISE_OF_CHANGE)
    promise = promises.get(command, _PROMISE)
    if command in ("", "matrix"):
        promise = f"{promise[:-1]}; `matrix import` alone asks the package index."
    return f"exit codes:\n{exit_code_table(command)}\n\n{promise}"


_Commands = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _command(commands: _Commands, name: str, summary: str, run: str) -> argparse.ArgumentParser:  # type: ignore[valid-type]
    """One command, `matrix show` for an inner one; `run` is `MODULE:FUNCTION` below doctor.commands."""
    one: argparse.ArgumentParser = commands.add_parser(  # type: ignore[attr-defined]
        name.rpartition(" ")[2],
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=_epilog(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    one.set_defaults(run=_later(run))
    one.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
    return one


class _InnerParser(argparse.ArgumentParser):
    """The parser of an inner command. One that asks takes words with dashes: `show flag --swap-space`."""

    asks = False

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - typing is 5 ms
        """Words that begin with dashes and are no option of this command are what it is asked for."""
        if self.asks:
            words = [word for word in args or () if word != "--"]
            places = [n for n, word in enumerate(words) if word in ("-h", "--help", "--debug", "--json")]
            for n, word in enumerate(words):
                places += [n, n + 1] if word == "--overlay" else [n] if word.startswith("--overlay=") else []
            options = [word for n, word in enumerate(words) if n in places]
            args = [*options, "--", *(word for n, word in enumerate(words) if n not in places)]
        return super().parse_known_args(args, namespace)


def _later(target: str) -> Callable[[argparse.Namespace], int]:
    module, _, function = target.partition(":")

    def run(options: argparse.Namespace) -> int:
        from importlib import import_module

        return int(getattr(import_module(f"doctor.commands.{module}"), function)(options))

    return run


def _add_look(one: argparse.ArgumentParser) -> None:
    one.add_argument("--no-color", action="store_true", help="no colour (also: NO_COLOR)")
    one.add_argument("--ascii", action="store_true", help="no character beyond ASCII (also: MOPT_ASCII)")


def _add_overlay(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--overlay",
        action="append",
        default=[],
        metavar="DIR",
        help="rows and rules of this site, on top of the matrix (repeatable; also: MOPT_OVERLAY)",
    )


def _add_source(one: argparse.ArgumentParser) -> None:
    one.add_argument("--sysroot", metavar="DIR", help="read a host below DIR: a chroot or a mounted disk")
    one.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="PATH",
        help="look into this Python environment, too: a prefix or its python (repeatable)",
    )
    one.add_argument(
        "--timeout", metavar="S", help="seconds for the whole collection (15; also: MOPT_TIMEOUT)"
    )


#: What a check can be written as; `doctor.report.forms` makes them.
FORMS = ("text", "json", "jsonl", "html", "junit", "prometheus", "ansible-facts", "nhc")


def _add_form(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--format",
        choices=FORMS,
        default="text",
        metavar="FORM",
        help=f"form of the answer: {', '.join(FORMS)}",
    )
    one.add_argument("--json", action="store_true", help="the same as --format json")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE")
    one.add_argument("--redact", action="store_true", help="replace names, users, addresses, serials, UUIDs")


def _add_report(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "report", "write a saved answer in another form", "report:run")
    one.add_argument(
        "file", metavar="FILE", help="what `--json` or `-o` of another command wrote; - is stdin"
    )
    _add_form(one)
    one.add_argument("-v", "--verbose", action="store_true", help="every check")
    _add_look(one)


def _add_shell(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "completion", "print the completion script of a shell", "shell:completion")
    one.add_argument("shell", choices=("bash", "zsh", "fish"), help="bash, zsh or fish")
    page = _command(commands, "man", "print the man page (roff)", "shell:man")
    one.set_defaults(grammar=build_parser)
    page.set_defaults(grammar=build_parser)
    page.add_argument("-o", dest="output", metavar="FILE", help="write it to FILE")


def _add_check(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "check", "judge this host, or what was taken on another one", "check:run")
    one.add_argument(
        "--from",
        dest="bundle",
        metavar="FILE",
        help="instead of this host: an nvidia-bug-report.log[.gz], a bundle of `collect`, or pasted output of"
        " nvidia-smi, collect_env, dmesg, dkms status, lspci -nn, and the like",
    )
    _add_source(one)
    one.add_argument(
        "--goal",
        action="append",
        default=[],
        metavar="GOAL",
        help="what the host is for: vllm==0.33.0,use=fp8, or a goal file (present)",
    )
    _add_overlay(one)
    one.add_argument("--only", action="append", default=[], metavar="AREA,ID", help="these checks only")
    one.add_argument("--skip", action="append", default=[], metavar="AREA,ID", help="not these checks")
    one.add_argument("--list-checks", action="store_true", help="list the checks and end")
    _add_form(one)
    one.add_argument("--strict", action="store_true", help="warnings count as failures")
    one.add_argument("-v", "--verbose", action="store_true", help="every check, and the facts")
    one.add_argument("-q", "--quiet", action="store_true", help="the first line only")
    _add_look(one)


def _add_collect(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "collect", "take the evidence of this host into a bundle", "collect:run")
    one.add_argument("-o", dest="output", metavar="FILE", help="FILE.tar.gz, or a directory")
    _add_source(one)
    one.add_argument("--redact", action="store_true", help="replace names, users, addresses, serials, UUIDs")
    one.add_argument("--list-items", action="store_true", help="list what is collected, and why, and end")
    one.add_argument("--facts", action="store_true", help="print the facts (mopt.host/1) instead of saving")


def _add_explain(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(
        commands, "explain", "name the causes of an error text or log, or show an id", "explain:run"
    )
    one.add_argument(
        "text",
        nargs="*",
        metavar="TEXT|FILE|ID",
        help="an error text, a log of any size, a bundle, the id of a finding or cause; - is stdin",
    )
    one.add_argument(
        "--from", dest="bundle", metavar="FILE", help="let the facts of that host decide: as of `check`"
    )
    one.add_argument("--host", dest="live", action="store_true", help="let the facts of this host decide")
    one.add_argument("--timeout", metavar="S", help="seconds for the collection of `--host` (15)")
    one.add_argument("--json", action="store_true", help="the answer as JSON (mopt.explain/1)")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE")
    one.add_argument("--redact", action="store_true", help="replace names, users, addresses, serials, UUIDs")
    one.add_argument("-v", "--verbose", action="store_true", help="every cause with its lines and remedy")
    _add_overlay(one)
    _add_look(one)


def _add_matrix(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "matrix", "look into the compatibility matrix", "matrix:show")
    one.set_defaults(kind=None, query="", json=False, overlay=[])
    inner = one.add_subparsers(metavar="COMMAND", parser_class=_InnerParser)
    show = _command(inner, "matrix show", "show the edition, or the rows of one thing in it", "matrix:show")
    assert isinstance(show, _InnerParser)
    show.asks = True
    show.add_argument("kind", nargs="?", help="gpu, driver, cuda, vllm, torch, os, kernel, flag, metric, …")
    show.add_argument("query", nargs="?", default="", help="H200, 580.126.20, 0.33.0, --swap-space, …")
    show.add_argument("--json", action="store_true", help="rows as JSON")
    _add_overlay(show)
    _add_pick(inner)
    _add_why(inner)
    validate = _command(
        inner, "matrix validate", "check the matrix source, all faults at once", "matrix:validate"
    )
    validate.add_argument("directory", nargs="?", metavar="DIR", help="a matrices folder (the installed one)")
    validate.add_argument("--stats", action="store_true", help="count rows")
    _add_overlay(validate)
    _add_diff(inner)
    _add_import(inner)


def _add_diff(inner: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(inner, "matrix diff", "compare two editions, and the answers they give", "matrix_diff:run")
    one.add_argument("before", metavar="A", help="a matrices folder, or an edition.json")
    one.add_argument("after", metavar="B", nargs="?", help="another one (the installed one)")
    one.add_argument("--json", action="store_true", help="the answer as JSON")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE")


def _add_import(inner: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(
        inner, "matrix import", "draft rows for new releases, for a person to finish", "matrix_import:run"
    )
    one.add_argument("spec", metavar="SPEC", help="vllm, torch, …: what is newer; vllm==0.33.0: just that")
    one.add_argument("--from", dest="source", metavar="FILE", help="draft from what --save kept: no network")
    one.add_argument("--save", metavar="FILE", help="keep what the index said")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the rows to FILE")
    one.add_argument("--pre", action="store_true", help="release candidates, too")
    one.add_argument("--offline", action="store_true", help="refuse to ask the network")
    one.add_argument("--python", metavar="PYTHON", help="the interpreter whose pip is asked (this one)")


def _add_target(one: argparse.ArgumentParser, *, has_json: bool = True) -> None:
    """A machine that need not be there; without any of these it is this host."""
    one.add_argument(
        "--from", dest="bundle", metavar="FILE", help="that host: a bundle, or a report as of `check`"
    )
    one.add_argument("--gpu", action="append", default=[], metavar="NAME", help="H200, 10de:2335, B200x8")
    one.add_argument("--os", metavar="NAME", help="ubuntu-24.04, rocky-9, …")
    one.add_argument("--kernel", metavar="RELEASE", help="6.8")
    one.add_argument("--python", metavar="VERSION", help="the interpreter that is there")
    one.add_argument("--arch", choices=("x86_64", "aarch64"), help="the processor (x86_64, or the GPU's)")
    one.add_argument(
        "--have", action="append", default=[], metavar="NAME==VERSION", help="what is installed (repeatable)"
    )
    one.add_argument(
        "--hold", action="append", default=[], metavar="NAME", help="what must stay as it is (repeatable)"
    )
    one.add_argument(
        "--goal", action="append", default=[], metavar="GOAL", help="vllm==0.33.0,use=fp8, …, or a goal file"
    )
    _add_overlay(one)
    if has_json:
        one.add_argument("--json", action="store_true", help="the answer as JSON")


def _add_pick(inner: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(inner, "matrix pick", "choose a stack for a goal, and say why", "matrix_pick:run")
    _add_target(one)
    one.add_argument("--alternatives", type=int, default=0, metavar="N", help="so many other stacks, too (0)")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the stack to FILE, as JSON")


def _add_plan(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "plan", "say what would be done on a host for a goal; do nothing", "plan:run")
    _add_target(one, has_json=False)
    one.add_argument(
        "--format",
        choices=("text", "json", "ansible-vars"),
        default="text",
        help="for people, the plan (mopt.plan/1), or the variables of a playbook run (mopt.vars/1) (text)",
    )
    one.add_argument("-o", dest="output", metavar="FILE", help="write the plan to FILE, for `apply`")
    one.add_argument("--host", metavar="NAME", help="plan for this host of the inventory")
    one.add_argument("-i", dest="inventory", metavar="INVENTORY", help="an Ansible inventory")
    one.add_argument(
        "--on-failure",
        choices=("stop", "rollback"),
        default="stop",
        help="when a stage fails after the first change: stop there, or go back at once (stop)",
    )
    one.add_argument(
        "--mirror-list", action="store_true", help="only the addresses and packages a closed site must bring"
    )
    one.add_argument(
        "--origin",
        choices=("nvidia", "canonical", "airgap"),
        help="whose packages (those that are there; signed ones where Secure Boot wants them; nvidia)",
    )
    one.add_argument(
        "--change-origin", action="store_true", help="replace the driver's packages of another origin"
    )
    one.add_argument(
        "--reload",
        action="store_true",
        help="load the modules again instead of a reboot, where nothing uses them",
    )
    one.add_argument(
        "--profile",
        choices=("compute", "full"),
        help="full: graphics libraries, too (as it is; else compute)",
    )
    one.add_argument(
        "--mirror", action="append", default=[], metavar="NAME=URL", help="another address of a repository"
    )
    one.add_argument(
        "--key",
        action="append",
        default=[],
        metavar="NAME=URL",
        help="another address of its key, or file:NAME among the role's files; #FINGERPRINT behind it",
    )
    one.add_argument("--index-url", metavar="URL", help="the package index for engine environments")
    one.add_argument("--extra-index-url", metavar="URL", help="another one beside it")
    one.add_argument("--wheelhouse", metavar="DIR", help="a folder of wheels on the host instead of an index")
    one.add_argument(
        "--engine-lock",
        action="append",
        default=[],
        metavar="FILE",
        help="every package of an engine's environment at one version, with hashes",
    )


def _add_bench(commands: _Commands) -> None:  # type: ignore[valid-type]
    from doctor.grammar_bench import add_bench_options

    one = _command(commands, "bench", "load an OpenAI-compatible endpoint and say what it gave", "bench:run")
    add_bench_options(one)
    _add_look(one)


def _add_run_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("--yes", action="store_true", help="do not ask")
    one.add_argument(
        "--format",
        choices=("text", "jsonl"),
        default="text",
        help="progress for people, or the journal's entries as they come (text)",
    )
    one.add_argument(
        "--no-watch", action="store_true", help="start the run and end; `mopt-doctor resume RUN` watches it"
    )
    one.add_argument(
        "-e",
        dest="variable_file",
        action="append",
        default=[],
        metavar="FILE",
        help="the site's own variables (YAML or JSON): drain hooks, proxies (repeatable)",
    )
    one.add_argument("--timeout", metavar="S", help="seconds for one collection (15)")
    _add_look(one)


def _add_apply(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "apply", "carry out a plan, step by step, in a run of its own", "apply:apply")
    one.add_argument("plan", metavar="PLAN", help="what `plan -o` wrote")
    one.add_argument("--dry-run", action="store_true", help="Ansible's check mode: nothing is changed")
    _add_overlay(one)
    _add_run_options(one)


def _add_resume(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "resume", "go on with a run that was interrupted, or watch it", "apply:resume")
    one.add_argument("name", nargs="?", metavar="RUN", help="its name; without it the runs are listed")
    _add_run_options(one)


def _add_rollback(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "rollback", "bring a host back to what it was before a run", "apply:rollback")
    one.add_argument("name", metavar="RUN", help="its name")
    _add_run_options(one)


def _add_work(commands: _Commands) -> None:  # type: ignore[valid-type]
    """The detached run itself; `apply` and the unit after a reboot start it, and no help lists it."""
    one = commands.add_parser("work", allow_abbrev=False)  # type: ignore[attr-defined]
    one.set_defaults(run=_later("apply:work"))
    one.add_argument("folder")
    one.add_argument("--resume", action="store_true")


def _add_model(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(
        commands,
        "model",
        "say what a model is, whether its files are whole, and whether it fits",
        "model:run",
    )
    one.add_argument(
        "path", metavar="PATH", help="the folder of a model; or its config.json or a file of weights alone"
    )
    one.add_argument(
        "--gpu", action="append", default=[], metavar="NAME", help="H200, 10de:2335, L4x2 (this host's)"
    )
    one.add_argument("--from", dest="bundle", metavar="FILE", help="the GPUs of that host: as of `check`")
    one.add_argument(
        "--context", type=int, metavar="N", help="tokens of a sequence (what the model was made for)"
    )
    one.add_argument("--concurrency", type=int, metavar="N", help="so many sequences at once (1)")
    one.add_argument(
        "--kv-dtype",
        choices=("bfloat16", "float16", "fp8", "nvfp4"),
        help="of the KV cache (the model's own)",
    )
    one.add_argument(
        "--digest", action="store_true", help="the SHA-256 of each file, those known from before not again"
    )
    _add_model_plan(one)
    one.add_argument("--format", choices=("text", "json"), default="text", help="text or json (text)")
    one.add_argument("--json", action="store_true", help="the same as --format json (mopt.model/1)")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE, as JSON")
    one.add_argument("-q", "--quiet", action="store_true", help="no progress")
    _add_overlay(one)
    _add_look(one)


def _add_model_plan(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--plan",
        action="store_true",
        help="plan how to serve it: engine, split, limits, the command, and why; goes with the options below",
    )
    one.add_argument(
        "--gpus", type=int, metavar="N", help="so many GPUs of the kind (all that are named or here)"
    )
    one.add_argument(
        "--prompt-tokens", metavar="N", help="length of prompts: 512, 128-2048, or several, 128,512,2048"
    )
    one.add_argument("--output-tokens", metavar="N", help="length of answers, likewise")
    one.add_argument("--rate", type=float, metavar="R", help="requests a second (or --concurrency)")
    one.add_argument("--think-s", type=float, metavar="S", help="what users wait between requests (0)")
    one.add_argument("--slo-ttft-ms", type=float, metavar="MS", help="promised time to the first token")
    one.add_argument("--slo-tpot-ms", type=float, metavar="MS", help="promised time of each token after it")
    one.add_argument(
        "--engine", metavar="NAME", help="vllm, tensorrt-llm, tensorrt; vllm==0.33.0 (newest that serves)"
    )
    one.add_argument(
        "--quantization", metavar="Q", help="convert the weights while they are loaded: fp8 (never)"
    )
    one.add_argument(
        "--memory-fraction", type=float, metavar="F", help="share of the device (the engine's own)"
    )
    one.add_argument(
        "--beside", action="append", default=[], metavar="PATH", help="a model on the same GPU (repeatable)"
    )
    one.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a value of config.json that you mean to change: is told what that does (repeatable)",
    )


def _add_why(inner: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(inner, "matrix why", "explain why a combination holds, or does not", "matrix_why:run")
    spec = "vllm==0.33.0, memory-gb>=80, use=fp8, flag:NAME, model:NAME, 'a sentence' (docs/questions.md)"
    one.add_argument("spec", nargs="*", metavar="SPEC", help=spec)
    one.add_argument(
        "--env", metavar="PATH", help="would this Python environment run (a prefix or its python)"
    )
    one.add_argument(
        "--image", metavar="FILE", help="would this image: output of `docker inspect`; - is stdin"
    )
    _add_target(one)


def _add_config(commands: _Commands) -> None:  # type: ignore[valid-type]
    one = _command(commands, "config", "look at the settings", "config:show")
    one.set_defaults(json=False, timeout=None, no_color=False, ascii=False)
    inner = one.add_subparsers(metavar="COMMAND")
    show = _command(inner, "config show", "show each setting and where it came from", "config:show")
    show.add_argument("--json", action="store_true", help="as JSON")
    show.add_argument("--timeout", metavar="S", help="seconds, as `check --timeout` would take them")
    _add_look(show)

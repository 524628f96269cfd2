"""The command `matrix` and its inner ones."""

from __future__ import annotations

import argparse

from doctor.grammar.base import Commands, add_overlay, add_target, command

__all__ = ["add_matrix"]


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


def add_matrix(commands: Commands) -> None:  # type: ignore[valid-type]
    """`matrix`."""
    one = command(commands, "matrix", "look into the compatibility matrix", "matrix:show")
    one.set_defaults(kind=None, query="", json=False, overlay=[])
    inner = one.add_subparsers(metavar="COMMAND", parser_class=_InnerParser)
    show = command(inner, "matrix show", "show the edition, or the rows of one thing in it", "matrix:show")
    assert isinstance(show, _InnerParser)
    show.asks = True
    show.add_argument("kind", nargs="?", help="gpu, driver, cuda, vllm, torch, os, kernel, flag, metric, …")
    show.add_argument("query", nargs="?", default="", help="H200, 580.126.20, 0.33.0, --swap-space, …")
    show.add_argument("--json", action="store_true", help="rows as JSON")
    add_overlay(show)
    _add_pick(inner)
    _add_why(inner)
    validate = command(
        inner, "matrix validate", "check the matrix source, all faults at once", "matrix:validate"
    )
    validate.add_argument("directory", nargs="?", metavar="DIR", help="a matrices folder (the installed one)")
    validate.add_argument("--stats", action="store_true", help="count rows")
    add_overlay(validate)
    _add_diff(inner)
    _add_import(inner)


def _add_diff(inner: Commands) -> None:  # type: ignore[valid-type]
    one = command(inner, "matrix diff", "compare two editions, and the answers they give", "matrix_diff:run")
    one.add_argument("before", metavar="A", help="a matrices folder, or an edition.json")
    one.add_argument("after", metavar="B", nargs="?", help="another one (the installed one)")
    one.add_argument("--json", action="store_true", help="the answer as JSON")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the answer to FILE")


def _add_import(inner: Commands) -> None:  # type: ignore[valid-type]
    one = command(
        inner, "matrix import", "draft rows for new releases, for a person to finish", "matrix_import:run"
    )
    one.add_argument("spec", metavar="SPEC", help="vllm, torch, …: what is newer; vllm==0.33.0: just that")
    one.add_argument("--from", dest="source", metavar="FILE", help="draft from what --save kept: no network")
    one.add_argument("--save", metavar="FILE", help="keep what the index said")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the rows to FILE")
    one.add_argument("--pre", action="store_true", help="release candidates, too")
    one.add_argument("--offline", action="store_true", help="refuse to ask the network")
    one.add_argument("--python", metavar="PYTHON", help="the interpreter whose pip is asked (this one)")


def _add_pick(inner: Commands) -> None:  # type: ignore[valid-type]
    one = command(inner, "matrix pick", "choose a stack for a goal, and say why", "matrix_pick:run")
    add_target(one)
    one.add_argument("--alternatives", type=int, default=0, metavar="N", help="so many other stacks, too (0)")
    one.add_argument("-o", dest="output", metavar="FILE", help="write the stack to FILE, as JSON")


def _add_why(inner: Commands) -> None:  # type: ignore[valid-type]
    one = command(inner, "matrix why", "explain why a combination holds, or does not", "matrix_why:run")
    spec = "vllm==0.33.0, memory-gb>=80, use=fp8, flag:NAME, model:NAME, 'a sentence' (docs/questions.md)"
    one.add_argument("spec", nargs="*", metavar="SPEC", help=spec)
    one.add_argument(
        "--env", metavar="PATH", help="would this Python environment run (a prefix or its python)"
    )
    one.add_argument(
        "--image", metavar="FILE", help="would this image: output of `docker inspect`; - is stdin"
    )
    add_target(one)

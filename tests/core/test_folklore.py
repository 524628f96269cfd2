"""Sentences against rows: wordings, contraries, what comes near; and every row of the matrix as it stands."""

import json

import pytest

from doctor.cli import main
from doctor.core.folklore import read_sentence, words_of
from doctor.core.rows.folklore import FolkloreRow
from doctor.edition.load import load_matrix

ROWS = load_matrix().edition.folklore


def row(name: str, claim: str, *words: str, holds: bool = False) -> FolkloreRow:
    return FolkloreRow(
        id=name,
        claim=claim,
        words=words,
        holds=holds,
        fact="A fact.",
        source=("a page",),
        as_of="2026-11-30",
        review_by="2027-11-30",
        confidence="vendor",
    )


NVCC = row("nvcc", "nvcc needs a driver", "nvcc", "driver*", "need*|require*")
EMBED = row("embed", "vLLM cannot run embeddings", "vllm", "embed*", "not run*|no use")


def test_words() -> None:
    words = words_of("It can't load `libfoo.so.1`, can it?")
    assert words == ("it", "ca", "not", "load", "libfoo.so.1", "can", "it")
    assert words_of("We cannot use --flag=1.") == ("we", "can", "not", "use", "flag=1")
    assert len(words_of("x " * 10_000)) == 200


READINGS = {
    "in other order": ("Which driver? The one that nvcc requires", "nvcc"),
    "in capitals": ("NVCC NEEDS THE DRIVERS", "nvcc"),
    "a word is missing": ("nvcc needs a toolkit", ""),
    "the end of a word alone": ("mynvcc needs a driver", ""),
    "denied": ("nvcc does not need a driver", ""),
    "denied at a distance": ("it is wrong that nvcc needs a driver", ""),
    "denied twice": ("it is not false that nvcc needs a driver", "nvcc"),
    "a wrong driver denies nothing": ("nvcc needs even a wrong driver", "nvcc"),
    "a claim that denies": ("vLLM can't run embedding models", "embed"),
    "its contrary": ("it is false that vLLM cannot run embeddings", ""),
    "nothing of it": ("the sky is blue", ""),
}


@pytest.mark.parametrize("name", READINGS)
def test_reading(name: str) -> None:
    text, wanted = READINGS[name]
    found = read_sentence((NVCC, EMBED), text).row
    assert (found.id if found else "") == wanted


def test_a_contrary_names_its_row_and_a_half_comes_near() -> None:
    assert read_sentence((NVCC,), "nvcc needs no driver").contrary == (NVCC,)
    assert read_sentence((NVCC,), "nvcc needs a toolkit").near == (NVCC,)
    assert read_sentence((NVCC,), "nvcc is a compiler").near == ()


def test_the_row_with_the_most_words_wins_and_a_tie_that_disagrees_is_open() -> None:
    closer = row("closer", "nvcc 13 needs a driver", "nvcc", "driver*", "need*", "13", holds=True)
    assert read_sentence((NVCC, closer), "nvcc 13 needs a driver").row == closer
    other = row("other", "nvcc needs a driver", "nvcc", "driver*", "needs", holds=True)
    reading = read_sentence((NVCC, other), "nvcc needs a driver")
    assert (reading.row, reading.contrary) == (None, (NVCC, other))


def answer(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["matrix", "why", "--json", text])
    return str(json.loads(capsys.readouterr().out)["compatible"])


@pytest.mark.parametrize("name", [r.id for r in ROWS])
def test_each_claim_is_answered_and_its_contrary_is_not(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one = next(r for r in ROWS if r.id == name)
    assert answer(one.claim, capsys) == ("yes" if one.holds else "no")
    if not one.also:
        assert answer(f"it is wrong that {one.claim}", capsys) == "unknown"


def test_a_sentence_has_a_bound(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "why", "nvcc needs " + "a driver " * 60]) == 2
    assert "at most 400 characters" in capsys.readouterr().err


def test_the_terminal_gets_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matrix", "why", "nvcc needs \x1b[31m a driver"]) == 1
    assert "\x1b" not in capsys.readouterr().out

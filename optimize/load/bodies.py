"""The bodies of requests: prompts of a length, each different from its first tokens on. Pure, and cheap."""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec

from optimize.load.schedule import Planned

__all__ = ["PATHS", "Bodies", "BodyError", "BodySpec", "Endpoint", "Prompt"]

Endpoint = Literal["completions", "chat", "embeddings"]
Prompt = Literal["words", "ids"]

#: Below the base path, which is `/v1` where the URL has none.
PATHS: dict[Endpoint, str] = {
    "completions": "/completions",
    "chat": "/chat/completions",
    "embeddings": "/embeddings",
}


class BodyError(ValueError):
    """The endpoint takes no such prompt."""


class BodySpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all bodies of a run have in common."""

    endpoint: Endpoint
    model: str
    prompt: Prompt
    stream: bool = True
    #: ask for the whole length: an answer that ends by itself measures the prompt, not the engine
    ignore_eos: bool = True
    include_usage: bool = True
    #: ids stay below it
    vocabulary: int = 10_000
    #: fields that the user adds
    extra: dict[str, Any] = {}


#: One token each in the usual BPE vocabularies, with the space before; all of one width, so
#: that a prompt is a slice of a longer one.
_WORDS = (
    "time year work life part case week hand side eyes home fact book word game line city name team idea body"
    " back face door road form wind fire rain ship tree bird fish rock sand gold iron wood food milk rice"
    " corn salt ring king army land farm lake hill park wall room desk card ball song page date list rule"
    " plan goal test data code file disk node link port host user core rate load mean unit step edge path"
)
#: Tokens at the front of a prompt that no other prompt of a run has: 8 words of 64 or more, or 8 ids.
_LEAD = 8
_POOL = 65_536
_MASK = (1 << 64) - 1


class Bodies:
    """Makes the body of each request in microseconds, for it is made when the request is due.

    The first tokens of a prompt are its own, so that no prefix cache has seen it; the rest is a slice of
    random tokens. Only the usage block tells how many tokens words are.
    """

    def __init__(self, spec: BodySpec, seed: int) -> None:
        if spec.endpoint == "chat" and spec.prompt == "ids":
            raise BodyError("chat takes text: token ids are for completions and embeddings")
        self._seed = seed
        source = random.Random(seed)  # noqa: S311 - a load is repeatable
        words = [word.encode() for word in dict.fromkeys(_WORDS.split())]
        self._units, self._between = (words, b" ") if spec.prompt == "words" else (_ids(spec), b",")
        self._width = len(self._units[0]) + 1
        pool = source.choices(self._units, k=_POOL)
        self._pool = self._between.join(pool) + self._between
        self._head, self._middle, self._tail = _frame(spec)

    def body(self, planned: Planned) -> bytes:
        """The JSON of one request."""
        limit = b"%d" % planned.n_out if self._middle else b""
        return b"".join(
            (self._head, self.prompt(planned.number, planned.n_in), self._middle, limit, self._tail)
        )

    def prompt(self, number: int, n_in: int) -> bytes:
        """Words with spaces, or ids with commas: `n_in` of them."""
        units, mixed = self._units, _mix(self._seed, number)
        lead = []
        for _ in range(min(_LEAD, n_in)):
            mixed, index = divmod(mixed, len(units))
            lead.append(units[index])
        front = self._between.join(lead)
        rest = n_in - len(lead)
        if not rest:
            return front
        whole, part = divmod(rest, _POOL)
        begin = (number * 7919) % (_POOL - part) if part < _POOL else 0
        slice_ = self._pool[begin * self._width : (begin + part) * self._width]
        return front + self._between + (self._pool * whole + slice_)[:-1]


def _mix(seed: int, number: int) -> int:
    """128 bits that differ for each number of a run, and between runs (two rounds of splitmix64)."""
    high = _splitmix((seed << 32) ^ number)
    return (high << 64) | _splitmix(high ^ number)


def _splitmix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _ids(spec: BodySpec) -> list[bytes]:
    """Ids of one width, past the special tokens that stand first: 1000 to 9999 where it allows."""
    for low in (1000, 100, 10):
        if spec.vocabulary >= 2 * low:
            return [b"%d" % n for n in range(low, min(10 * low, spec.vocabulary))]
    raise BodyError(f"a vocabulary of {spec.vocabulary} tokens is too small for random ids: it takes 20")


def _frame(spec: BodySpec) -> tuple[bytes, bytes, bytes]:
    """What stands before the prompt, between it and the number of tokens, and after that."""
    fields: dict[str, Any] = {"model": spec.model} if spec.model else {}
    if spec.endpoint != "embeddings":
        fields |= {"stream": spec.stream, "temperature": 0}
        if spec.stream and spec.include_usage:
            fields["stream_options"] = {"include_usage": True}
        if spec.ignore_eos:
            fields["ignore_eos"] = True
    fields |= spec.extra
    start = msgspec.json.encode(fields)[:-1] + (b"," if fields else b"")
    openers = {"ids": (b"[", b"]"), "words": (b'"', b'"')}
    before, after = openers[spec.prompt]
    if spec.endpoint == "embeddings":
        return start + b'"input":' + before, b"", after + b"}"
    if spec.endpoint == "chat":
        message = b'"messages":[{"role":"user","content":"'
        return start + message, b'"}],"max_tokens":', b"}"
    return start + b'"prompt":' + before, after + b',"max_tokens":', b"}"

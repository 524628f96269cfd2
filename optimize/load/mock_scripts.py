"""What the built-in server answers, as scripts of timed writes: the good, and each way to be bad. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

__all__ = [
    "FAULTS",
    "Act",
    "Asked",
    "chunk",
    "embedding_answer",
    "fault_script",
    "head",
    "marked_chunk",
    "whole_answer",
]


class Asked(msgspec.Struct, gc=False):
    """What the server reads of a request; the prompt is skipped."""

    model: str = "mock"
    max_tokens: int = 16
    stream: bool = False
    return_token_ids: bool = False


class Act(msgspec.Struct, frozen=True, gc=False):
    """A write, so long after the one before.

    After it `close` and `reset` end the connection, `end` ends the answer, `hang` leaves it open for
    ever, and `deaf` closes when the next request comes.
    """

    wait_s: float
    data: bytes = b""
    then: Literal["go", "end", "close", "reset", "hang", "deaf"] = "go"


_TEXT_HEAD = (
    b'{"id":"cmpl-mock","object":"text_completion","created":1764500000,"model":"mock","choices":[{"index":0,'
)
_CHAT_HEAD = (
    b'{"id":"chatcmpl-mock","object":"chat.completion.chunk","created":1764500000,'
    b'"model":"mock","choices":[{"index":0,'
)


def head(
    code: int = 200, *extra: bytes, kind: bytes = b"text/event-stream", version: bytes = b"1.1"
) -> bytes:
    """Status line and headers; chunked unless `extra` says how long the body is."""
    framing = (
        () if version == b"1.0" or any(b"ength" in one for one in extra) else (b"Transfer-Encoding: chunked",)
    )
    lines = (b"HTTP/%b %d Mock" % (version, code), b"Content-Type: " + kind, *framing, *extra, b"", b"")
    return b"\r\n".join(lines)


def chunk(data: bytes) -> bytes:
    """A chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def token(*, chat: bool, text: bytes = b" word", more: bytes = b"") -> bytes:
    """The JSON of one piece."""
    if chat:
        return _CHAT_HEAD + b'"delta":{"content":"' + text + b'"},"finish_reason":null}]' + more + b"}"
    return _TEXT_HEAD + b'"text":"' + text + b'","logprobs":null,"finish_reason":null}]' + more + b"}"


def marked_chunk(sent_s: float, *, chat: bool) -> bytes:
    """A piece that says when it was sent, as an HTTP chunk."""
    return chunk(event(token(chat=chat, more=b',"sent_s":%.6f' % sent_s)))


def finish(reason: bytes = b"length", *, chat: bool) -> bytes:
    body = b'"delta":{}' if chat else b'"text":""'
    return (_CHAT_HEAD if chat else _TEXT_HEAD) + body + b',"finish_reason":"' + reason + b'"}]}'


def usage(n_out: int, n_in: int = 7) -> bytes:
    return b'{"choices":[],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}' % (n_in, n_out)


_ROLE = _CHAT_HEAD + b'"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
_LAST = b"0\r\n\r\n"
_DONE = event(b"[DONE]")


def ending(n_out: int, *, chat: bool) -> bytes:
    """finish_reason, usage, [DONE], the last chunk."""
    return chunk(event(finish(chat=chat)) + event(usage(n_out)) + _DONE) + _LAST


def start(*, chat: bool) -> bytes:
    """The head, and the role of a chat."""
    return head() + (chunk(event(_ROLE)) if chat else b"")


def whole_answer(asked: Asked, *, chat: bool) -> bytes:
    """An answer that is not streamed."""
    text = b" word" * asked.max_tokens
    part = b'"message":{"role":"assistant","content":"%b"}' if chat else b'"text":"%b"'
    body = (
        b'{"choices":[{"index":0,'
        + part % text
        + b',"finish_reason":"length"}],'
        + usage(asked.max_tokens)[14:-1]
        + b"}"
    )
    return head(200, b"Content-Length: %d" % len(body), kind=b"application/json") + body


def embedding_answer() -> bytes:
    """One embedding of two numbers."""
    body = b'{"object":"list","data":[{"index":0,"embedding":[0.6,0.8]}],"usage":{"prompt_tokens":7}}'
    return head(200, b"Content-Length: %d" % len(body), kind=b"application/json") + body


# Each takes what was asked for, whether it uses that or not: they are rows of one table.
# ruff: noqa: ARG001

# --- faults ---------------------------------------------------------------------------------------

_Script = Callable[[Asked, bool], Iterator[Act]]
_W = 0.002


def _pieces(asked: Asked, chat: bool, *, count: int | None = None, text: bytes = b" word") -> Iterator[Act]:
    yield Act(_W, start(chat=chat))
    for _ in range(asked.max_tokens if count is None else count):
        yield Act(_W, chunk(event(token(chat=chat, text=text))))


def _stall(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat, count=2)
    yield Act(0, then="hang")


def _slow_head(_asked: Asked, _chat: bool) -> Iterator[Act]:
    yield Act(0, b"HTTP/1.1 200 OK\r\nContent-", then="hang")


def _silent(_asked: Asked, _chat: bool) -> Iterator[Act]:
    yield Act(0, then="hang")


def _endless(asked: Asked, chat: bool) -> Iterator[Act]:
    yield Act(_W, start(chat=chat))
    while True:
        yield Act(_W, chunk(event(token(chat=chat))))


def _closes(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat, count=2)
    yield Act(_W, then="close")


def _closes_at_once(_asked: Asked, _chat: bool) -> Iterator[Act]:
    yield Act(0, then="close")


def _closes_in_event(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat, count=2)
    piece = chunk(event(token(chat=chat)))
    yield Act(_W, piece[: len(piece) // 2], then="close")


def _resets(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat, count=2)
    yield Act(0.05, then="reset")


def _no_end_mark(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat)
    yield Act(_W, _LAST, then="end")


def _no_done(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat)
    yield Act(_W, chunk(event(finish(chat=chat)) + event(usage(asked.max_tokens))) + _LAST, then="end")


def _after_two(bad: bytes) -> _Script:
    """Two good pieces, then these bytes as an HTTP chunk, then a good end."""

    def script(asked: Asked, chat: bool) -> Iterator[Act]:
        yield from _pieces(asked, chat, count=2)
        yield Act(_W, chunk(bad))
        yield Act(_W, ending(asked.max_tokens, chat=chat), then="end")

    return script


def _not_http(_asked: Asked, _chat: bool) -> Iterator[Act]:
    yield Act(0, b"SSH-2.0-OpenSSH_9.6\r\n", then="close")


def _bad_chunk_size(asked: Asked, chat: bool) -> Iterator[Act]:
    yield Act(0, start(chat=chat) + b"zz\r\nnonsense\r\n", then="close")


def _giant_head(_asked: Asked, _chat: bool) -> Iterator[Act]:
    yield Act(0, b"HTTP/1.1 200 OK\r\nX-Padding: " + b"a" * (1 << 20), then="hang")


def _giant_event(asked: Asked, chat: bool) -> Iterator[Act]:
    yield Act(0, start(chat=chat))
    for _ in range(80):
        yield Act(0, chunk(b"data: " + b"a" * 65_536))
    yield Act(0, ending(asked.max_tokens, chat=chat), then="end")


def _large_event(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat, count=1, text=b"a" * 1_000_000)
    yield from list(_pieces(asked, chat, count=asked.max_tokens - 1))[1:]
    yield Act(_W, ending(asked.max_tokens, chat=chat), then="end")


def _split_utf8(asked: Asked, chat: bool) -> Iterator[Act]:
    """Each byte of a character of four, and each half of CR LF and of a chunk's size, in its own write."""
    yield Act(_W, start(chat=chat))
    piece = chunk(event(token(chat=chat, text="\U0001f600é".encode())).replace(b"\n\n", b"\r\n\r\n"))
    for n in range(len(piece)):
        yield Act(0.0002, piece[n : n + 1])
    yield from list(_pieces(asked, chat, count=asked.max_tokens - 1))[1:]
    yield Act(_W, ending(asked.max_tokens, chat=chat), then="end")


def _counted(factor: float, extra: int = 0) -> _Script:
    def script(asked: Asked, chat: bool) -> Iterator[Act]:
        yield from _pieces(asked, chat)
        yield Act(_W, ending(int(asked.max_tokens * factor) + extra, chat=chat), then="end")

    return script


def _short(asked: Asked, chat: bool) -> Iterator[Act]:
    count = max(asked.max_tokens // 2, 1)
    yield from _pieces(asked, chat, count=count)
    end = event(finish(b"stop", chat=chat)) + event(usage(count)) + _DONE
    yield Act(_W, chunk(end) + _LAST, then="end")


def _no_usage(asked: Asked, chat: bool) -> Iterator[Act]:
    yield from _pieces(asked, chat)
    yield Act(_W, chunk(event(finish(chat=chat)) + _DONE) + _LAST, then="end")


def _empty(_asked: Asked, chat: bool) -> Iterator[Act]:
    yield Act(_W, start(chat=chat))
    yield Act(_W, chunk(event(finish(b"stop", chat=chat)) + event(usage(0)) + _DONE) + _LAST, then="end")


def _textless(asked: Asked, chat: bool) -> Iterator[Act]:
    """Random weights: ids that decode to no text, told only to who asks for them."""
    head = _CHAT_HEAD + b'"delta":{"content":""}' if chat else _TEXT_HEAD + b'"text":""'
    ids = b',"token_ids":[777]' if asked.return_token_ids else b""
    yield Act(_W, start(chat=chat))
    for _ in range(asked.max_tokens):
        yield Act(_W, chunk(event(head + ids + b',"finish_reason":null}]}')))
    yield Act(_W, ending(asked.max_tokens, chat=chat), then="end")


def _coalesced(asked: Asked, chat: bool) -> Iterator[Act]:
    """Four tokens a piece, as speculative decoding sends them."""
    yield from _pieces(asked, chat, count=-(-asked.max_tokens // 4), text=b" a b c d")
    yield Act(_W, ending(asked.max_tokens, chat=chat), then="end")


def _delta(field: bytes) -> _Script:
    def script(asked: Asked, chat: bool) -> Iterator[Act]:
        piece = _CHAT_HEAD + b'"delta":{' + field + b'},"finish_reason":null}]}'
        yield Act(_W, start(chat=True))
        for _ in range(asked.max_tokens):
            yield Act(_W, chunk(event(piece)))
        yield Act(_W, ending(asked.max_tokens, chat=True), then="end")

    return script


def _http10(asked: Asked, chat: bool) -> Iterator[Act]:
    """No length and no chunks: the end of the connection is the end of the answer."""
    yield Act(_W, head(version=b"1.0"))
    for _ in range(asked.max_tokens):
        yield Act(_W, event(token(chat=chat)))
    yield Act(_W, event(finish(chat=chat)) + event(usage(asked.max_tokens)) + _DONE, then="close")


def _with_length(asked: Asked, chat: bool) -> Iterator[Act]:
    body = (
        event(token(chat=chat)) * asked.max_tokens
        + event(finish(chat=chat))
        + event(usage(asked.max_tokens))
        + _DONE
    )
    yield Act(_W, head(200, b"Content-Length: %d" % len(body)))
    yield Act(_W, body, then="end")


def _closes_idle(asked: Asked, chat: bool) -> Iterator[Act]:
    """A good answer on a connection that is closed as the next request leaves: the race of keep-alive."""
    yield from _pieces(asked, chat)
    yield Act(_W, ending(asked.max_tokens, chat=chat), then="deaf")


def _json_instead(asked: Asked, chat: bool) -> Iterator[Act]:
    yield Act(0, whole_answer(asked, chat=chat), then="end")


def _code(code: int, message: bytes, *extra: bytes) -> _Script:
    def script(_asked: Asked, _chat: bool) -> Iterator[Act]:
        body = b'{"error":{"message":"%b","type":"mock","code":%d}}' % (message, code)
        length = b"Content-Length: %d" % len(body)
        yield Act(0, head(code, length, *extra, kind=b"application/json") + body, then="end")

    return script


def _rest_behind(asked: Asked, chat: bool) -> Iterator[Act]:
    """A good answer, and bytes behind it in the same write."""
    yield from _pieces(asked, chat)
    yield Act(_W, ending(asked.max_tokens, chat=chat) + b"HTTP/1.1 500 Late\r\n\r\n", then="close")


#: Name → script; a request asks for one as model `fault-NAME`.
FAULTS: dict[str, _Script] = {
    "stall": _stall,
    "silent": _silent,
    "slow-head": _slow_head,
    "endless": _endless,
    "close": _closes,
    "close-at-once": _closes_at_once,
    "close-in-event": _closes_in_event,
    "close-idle": _closes_idle,
    "reset": _resets,
    "no-end-mark": _no_end_mark,
    "no-done": _no_done,
    "not-json": _after_two(event(b'{"choices":[{"text": oops')),
    "not-the-form": _after_two(event(b'{"choices":"none"}')),
    "bad-utf8": _after_two(event(b'{"choices":[{"text":"\xff\xfe"}]}')),
    "error-event": _after_two(
        event(b'{"error":{"message":"CUDA error: an illegal memory access","code":500}}')
    ),
    "comments": _after_two(b": keep-alive\n\nevent: ping\nid: 7\n\nretry: 10\n\n"),
    "not-http": _not_http,
    "bad-chunk-size": _bad_chunk_size,
    "giant-head": _giant_head,
    "giant-event": _giant_event,
    "large-event": _large_event,
    "split-utf8": _split_utf8,
    "counts-more": _counted(2),
    "counts-fewer": _counted(0.5),
    "no-usage": _no_usage,
    "short": _short,
    "empty": _empty,
    "textless": _textless,
    "coalesced": _coalesced,
    "reasoning": _delta(b'"reasoning_content":"hm"'),
    "tool-call": _delta(b'"tool_calls":[{"index":0,"function":{"arguments":"{"}}]'),
    "http10": _http10,
    "with-length": _with_length,
    "json-instead": _json_instead,
    "rest-behind": _rest_behind,
    "redirect": _code(302, b"elsewhere", b"Location: http://127.0.0.1:1/"),
    "400": _code(400, b"bad request"),
    "401": _code(401, b"Incorrect API key provided"),
    "404": _code(404, b"The model `fault-404` does not exist."),
    "429": _code(429, b"slow down", b"Retry-After: 7"),
    "500": _code(500, b"EngineDeadError"),
    "503": _code(503, b"overloaded", b"Retry-After: 2"),
}


def fault_script(name: str, asked: Asked, *, chat: bool) -> Iterator[Act]:
    """The script of a fault; `mix` takes them in turn. Raises KeyError."""
    return FAULTS[name](asked, chat)

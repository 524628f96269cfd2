"""The schedule that the built-in server keeps, and its account of what it did. Pure."""

from __future__ import annotations

from array import array

import msgspec

__all__ = ["MockPlan", "Truth"]


class MockPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds to the first token and between tokens. With both 0 an answer is one write."""

    ttft_s: float = 0.05
    itl_s: float = 0.02
    #: a key that requests must carry
    key: str = ""
    #: streams that are served at once, others wait their turn; 0: all
    slots: int = 0


class Truth:
    """What the server did, on the client's clock: a request was there, its first and last piece sent."""

    __slots__ = ("first_s", "last_s", "number", "received_s")

    def __init__(self) -> None:
        self.number = array("q")
        self.received_s = array("d")
        self.first_s = array("d")
        self.last_s = array("d")

    def packed(self) -> bytes:
        return msgspec.msgpack.encode({name: getattr(self, name).tobytes() for name in self.__slots__})

    @classmethod
    def unpacked(cls, data: bytes) -> Truth:
        """What `packed` wrote. Raises msgspec.DecodeError."""
        new = cls()
        for name, column in msgspec.msgpack.decode(data, type=dict[str, bytes]).items():
            getattr(new, name).frombytes(column)
        return new

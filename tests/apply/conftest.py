"""A site in a folder of its own, for runs in this process and in others."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from doctor.apply import places
from tests.apply.site import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Its data are this process's, its state is kept apart; signal handlers are put back."""
    made = Site(tmp_path)
    monkeypatch.setattr(places, "_STATE", made.state / "mopt-doctor")
    monkeypatch.setattr(places, "_LOCKS", made.state / "locks")
    monkeypatch.setenv("XDG_STATE_HOME", str(made.state))
    monkeypatch.setenv("MOPT_DATA", str(made.data))
    monkeypatch.delenv("MOPT_OVERLAY", raising=False)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield made
    for number, handler in handlers.items():
        signal.signal(number, handler)

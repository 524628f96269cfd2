"""A site directory with more names than are looked through: what matters is found all the same."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

from tests.evidence.test_environments import COLLECTOR


@pytest.fixture
def witness_env(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The collector's files lie beside one another where they run, and are no package there."""
    monkeypatch.syspath_prepend(str(COLLECTOR.parent))
    return importlib.import_module("witness_env")


class FullRoot:
    """A directory whose names are sorted, as the collector lists them."""

    def __init__(self, names: list[str]) -> None:
        self._listed = sorted(names)

    def names(self, _path: str) -> list[str]:
        return self._listed


def test_an_engine_past_the_limit_is_no_missing_engine(witness_env: Any) -> None:
    crowd = [f"a{number:05}-1.0.dist-info" for number in range(witness_env.SITE_NAMES_MAX)]
    root: Any = FullRoot([*crowd, "torch", "torch-2.14.0.dist-info", "zope"])
    names = witness_env._site_names(root, "/v/site-packages")
    assert "torch-2.14.0.dist-info" in names
    assert "torch" in names
    assert "zope" not in names


def test_a_crowd_of_relevant_names_hides_no_engine(witness_env: Any) -> None:
    crowd = [f"nvidia_thing{number:03}-1.0.dist-info" for number in range(witness_env.DISTRIBUTIONS_MAX)]
    names = {"/v/site-packages": sorted([*crowd, "torch-2.14.0.dist-info"])}
    assert "torch-2.14.0.dist-info" in witness_env._distributions(["/v/site-packages"], names)

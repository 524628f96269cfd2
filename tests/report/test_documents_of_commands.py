"""Documents that commands print besides reports: no text of a caller or of a matrix steers the terminal."""

import argparse
import json

import pytest

from doctor.commands import config, matrix
from doctor.report.escape import UNSAFE

STEERING = "x\u202e\u009b2J\u2066\ufeff"


def test_a_query_of_matrix_show(capsys, monkeypatch):
    monkeypatch.delenv("MOPT_DATA", raising=False)
    matrix.show(argparse.Namespace(kind="vllm", query=STEERING, json=True, overlay=[]))
    out = capsys.readouterr().out
    assert json.loads(out)["query"] == STEERING
    assert not UNSAFE.search(out)
    assert out.endswith("}\n")
    assert not out.endswith("\n\n")


@pytest.mark.parametrize("value", [STEERING, "/srv/m"])
def test_a_setting_of_config_show(value, capsysbinary, monkeypatch, tmp_path):
    place = tmp_path / value.strip("/").replace("/", "-")
    place.mkdir()
    monkeypatch.setenv("MOPT_DATA", str(place))
    options = argparse.Namespace(timeout=None, no_color=False, ascii=False, json=True)
    assert config.show(options) == 0
    out = capsysbinary.readouterr().out.decode()
    assert any(one["value"] == str(place) for one in json.loads(out))
    assert not UNSAFE.search(out)

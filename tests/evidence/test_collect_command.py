"""`collect`: where the bundle goes is judged before anything is collected, and said as it is."""

import argparse

import pytest

from doctor.commands import collect
from doctor.core.evidence import Evidence, Item, Meta
from doctor.errors import ConfigError
from doctor.evidence import live
from doctor.evidence.bundle import read_bundle

FOUND = Evidence(Meta(items=(Item(key="env:PATH", status="ok", value="/bin"),)), {})


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs `collect -o NAME` in an empty directory; `collected` counts what was collected."""
    monkeypatch.chdir(tmp_path)
    collected = []

    def collect_live(**_):
        collected.append(1)
        return FOUND

    monkeypatch.setattr(live, "collect_live", collect_live)

    def run(output):
        options = argparse.Namespace(
            timeout=None, list_items=False, output=output, facts=False, sysroot=None, redact=False, env=[]
        )
        return collect.run(options)

    run.collected = collected
    return run


@pytest.mark.parametrize("name", ["-", "a.zip", "b.tar.xz", "new.tar.gz/"])
def test_a_place_that_cannot_be_is_refused_before_collecting(name, run, tmp_path):
    with pytest.raises(ConfigError) as caught:
        run(name)
    assert caught.value.exit_code == 2
    assert caught.value.hints
    assert run.collected == []
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_named_as_one_before_collecting(run, tmp_path):
    (tmp_path / "l").symlink_to("l")
    with pytest.raises(ConfigError, match="`l` is a link: not followed"):
        run("l")
    assert run.collected == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("B.TAR.GZ", "wrote 1 items to `B.TAR.GZ`;"),
        ("b.tar", "wrote 1 items to `b.tar`;"),
        ("plain", "wrote 1 items to the directory `plain`;"),
    ],
)
def test_what_was_written_is_said(name, words, run, tmp_path, capsys):
    assert run(name) == 0
    assert capsys.readouterr().err.startswith(words)
    assert read_bundle(tmp_path / name).item("env:PATH").value == "/bin"
    assert (tmp_path / name).is_dir() == ("directory" in words)

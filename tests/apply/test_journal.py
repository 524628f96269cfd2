"""The journal on disk: whole lines, in time, or an end of the run."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from doctor.apply import journal as module
from doctor.apply.journal import JOURNAL, Journal, entries_of, follow
from doctor.core.run import Entry, StageBegun, StageEnded, encode_entry
from doctor.errors import ApplyError


def begun(stage: str) -> StageBegun:
    return StageBegun(at="2026-11-30T12:00:00.000Z", stage=stage)


def stages(entries: object) -> list[str]:
    return [entry.stage for entry in entries if isinstance(entry, StageBegun)]  # type: ignore[attr-defined]


def test_each_entry_is_on_disk_when_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    true_sync = os.fsync
    monkeypatch.setattr(
        module.os, "fsync", lambda file: (true_sync(file), synced.append(os.fstat(file).st_size))
    )
    one = Journal(tmp_path)
    synced.clear()
    sizes = []
    for name in ("a", "b", "c"):
        one.write(begun(name))
        sizes.append((tmp_path / JOURNAL).stat().st_size)
    assert synced == sizes, "one sync a line, after it"
    assert stages(entries_of(tmp_path)) == ["a", "b", "c"]
    assert (tmp_path / JOURNAL).stat().st_mode & 0o777 == 0o600


def test_a_last_line_that_was_cut_is_passed_over_and_not_glued_to_the_next(tmp_path: Path) -> None:
    whole = encode_entry(begun("a"))
    (tmp_path / JOURNAL).write_bytes(whole + encode_entry(begun("lost"))[:-9])
    assert stages(entries_of(tmp_path)) == ["a"]
    Journal(tmp_path).write(begun("b"))
    assert stages(entries_of(tmp_path)) == ["a", "b"]


def test_lines_of_a_later_edition_are_passed_over(tmp_path: Path) -> None:
    later = b'{"kind":"paused","at":"x"}\n'
    (tmp_path / JOURNAL).write_bytes(encode_entry(begun("a")) + later + encode_entry(begun("b")))
    assert stages(entries_of(tmp_path)) == ["a", "b"]


def test_there_is_no_journal_in_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    (tmp_path / JOURNAL).symlink_to(tmp_path / "other")
    with pytest.raises(ApplyError, match="cannot be written"):
        Journal(tmp_path)


def test_a_full_disk_ends_the_run_and_the_line_that_fits_later_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Journal(tmp_path)
    one.write(begun("a"))
    true_write = os.write
    monkeypatch.setattr(module.os, "write", lambda file, data: true_write(file, data[: len(data) // 2]))
    with pytest.raises(ApplyError, match="No space left on device") as caught:
        one.write(begun("b"))
    assert (caught.value.end, caught.value.exit_code) == ("half_way", 4)
    assert "resume" in caught.value.hints[0]
    monkeypatch.undo()
    one.write(begun("c"))
    assert stages(entries_of(tmp_path)) == ["a", "c"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_device_that_is_full_is_told_by_its_own_error(tmp_path: Path) -> None:
    one = Journal(tmp_path)
    file = os.open("/dev/full", os.O_WRONLY)
    os.dup2(file, one._file)
    os.close(file)
    with pytest.raises(ApplyError, match="No space left on device"):
        one.write(begun("a"))
    one.close()


def test_followers_see_each_entry_once_however_it_is_written(tmp_path: Path) -> None:
    written: list[Entry] = [begun(f"stage-{n}") for n in range(7)]
    data = b"".join(encode_entry(entry) for entry in written)
    path, seen, at = tmp_path / JOURNAL, [], 0
    watcher = follow(tmp_path, pause_s=0)
    assert next(watcher) is None, "it is not there yet"
    while at < len(data):
        with path.open("ab") as out:
            out.write(data[at : at + 17])
        at += 17
        seen += [entry for entry in islice(watcher, 3) if entry is not None]
    seen += [entry for entry in islice(watcher, 20) if entry is not None]
    assert seen == written


def test_followers_are_not_confused_by_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    path.write_bytes(encode_entry(begun("a")) + encode_entry(begun("lost"))[:-4])
    watcher = follow(tmp_path, pause_s=0)
    assert [entry for entry in islice(watcher, 4) if entry is not None] == [begun("a")]
    one = Journal(tmp_path)
    one.write(begun("b"))
    one.write(StageEnded(at="x", stage="b", state="done"))
    assert len([entry for entry in islice(watcher, 6) if entry is not None]) == 2

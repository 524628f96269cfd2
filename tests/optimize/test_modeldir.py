"""Folders of models: whole, cut off, half fetched, and not what they seem."""

import hashlib
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from doctor.errors import UsageError
from optimize.digests import digest_files, judge_digests, load_kept, save_kept
from optimize.modeldir import ModelFolder, read_folder
from tests.optimize.checkpoints import NANO, tensors_of, write_file, write_model


def kinds(folder: ModelFolder) -> list[str]:
    return [fault.kind for fault in folder.faults]


def test_a_whole_model(tmp_path: Path) -> None:
    folder = read_folder(str(write_model(tmp_path)))
    assert folder.faults == ()
    assert folder.facts is not None
    assert folder.facts.parameters == sum(folder.stored_dtypes.values())
    assert folder.stored_bytes == 2 * folder.facts.parameters
    assert folder.stored_dtypes == {"BF16": folder.facts.parameters}


def test_a_whole_model_in_shards(tmp_path: Path) -> None:
    folder = read_folder(str(write_model(tmp_path, shards=3)))
    assert folder.faults == ()
    assert folder.facts is not None
    assert folder.stored_bytes == 2 * (folder.facts.parameters or 0)


def test_a_download_that_was_cut_off(tmp_path: Path) -> None:
    write_model(tmp_path, shards=3)
    shard = tmp_path / "model-00002-of-00003.safetensors"
    os.truncate(shard, shard.stat().st_size - 1000)
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["truncated"]
    assert folder.faults[0].file == shard.name
    assert "1000 are missing" in folder.faults[0].message
    assert folder.stored_bytes is None


@pytest.mark.parametrize("has_index", [True, False])
def test_a_shard_that_is_not_there(tmp_path: Path, has_index: bool) -> None:
    write_model(tmp_path, shards=3)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    if not has_index:
        (tmp_path / "model.safetensors.index.json").unlink()
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["missing_shard"]
    assert "model-00002-of-00003.safetensors" in folder.faults[0].message


def test_the_last_shard_of_a_series_without_an_index(tmp_path: Path) -> None:
    write_model(tmp_path, shards=3)
    (tmp_path / "model-00003-of-00003.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").unlink()
    assert kinds(read_folder(str(tmp_path))) == ["missing_shard"]


def test_a_shard_of_another_revision_is_a_note(tmp_path: Path) -> None:
    write_model(tmp_path, shards=2)
    write_file(tmp_path / "model-00001-of-00004.safetensors", {"x": (4,)})
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["extra_shard"]
    assert not folder.faults[0].is_broken


def test_what_lies_beside_the_shards_on_purpose(tmp_path: Path) -> None:
    write_model(tmp_path, shards=2)
    write_file(tmp_path / "consolidated.safetensors", {"x": (4,)})
    assert read_folder(str(tmp_path)).faults == ()


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1192135096\n"
    )
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["lfs_pointer"]
    assert "git lfs pull" in folder.faults[0].message
    (tmp_path / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "config" in kinds(read_folder(str(tmp_path)))


def test_a_link_into_a_cache_that_was_cleaned(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "blobs" / ("a" * 64))
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["unreadable"]
    assert "not there" in folder.faults[0].message


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    write_model(tmp_path / "blobs")
    snapshot = tmp_path / "snapshots"
    snapshot.mkdir()
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(tmp_path / "blobs" / name)
    assert read_folder(str(snapshot)).faults == ()


def test_a_fifo_does_not_block(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    assert kinds(read_folder(str(tmp_path))) == ["unreadable"]


def test_no_weights_yet(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(NANO))
    assert kinds(read_folder(str(tmp_path))) == ["no_weights"]
    # the config by itself is asked about by naming it
    alone = read_folder(str(tmp_path / "config.json"))
    assert alone.faults == ()
    assert alone.facts is not None


def test_an_unfinished_download(tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "model.safetensors.incomplete").write_bytes(b"x")
    assert kinds(read_folder(str(tmp_path))) == ["missing_shard"]


def test_a_config_that_is_none(tmp_path: Path) -> None:
    write_model(tmp_path)
    for text, words in (
        (b"{", "no JSON"),
        (b"[1]", "no JSON object"),
        (b"[" * 100_000, "nested too deeply"),
        (b"\xff", "no JSON"),
    ):
        (tmp_path / "config.json").write_bytes(text)
        folder = read_folder(str(tmp_path))
        assert folder.facts is None
        assert words in folder.faults[0].message


def test_infinity_in_a_config_is_read(tmp_path: Path) -> None:
    write_model(tmp_path)
    text = json.dumps({**NANO, "time_step_limit": [0.0, float("inf")]})
    assert "Infinity" in text
    (tmp_path / "config.json").write_text(text)
    assert read_folder(str(tmp_path)).faults == ()


def test_weights_of_another_model(tmp_path: Path) -> None:
    """The config says a width of 896; the tensors, that it is 64."""
    write_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**NANO, "hidden_size": 896}))
    folder = read_folder(str(tmp_path))
    assert "shape" in kinds(folder)
    assert (
        "`model.embed_tokens.weight` is 256 x 64, the config asks for 256 x 896" in folder.faults[0].message
    )


def test_a_layer_without_a_tensor(tmp_path: Path) -> None:
    write_model(tmp_path)
    tensors = tensors_of(NANO)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    write_file(tmp_path / "model.safetensors", tensors)
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["missing_tensor"]
    assert "`model.layers.*.mlp.up_proj.weight`: 2 of 3" in folder.faults[0].message


def test_names_of_a_wrapper_and_of_a_vision_tower(tmp_path: Path) -> None:
    """A tower has layers of its own: they are not those of the language model."""
    config = {
        "model_type": "gemma3",
        "text_config": {**NANO, "model_type": "qwen3"},
        "vision_config": {"depth": 2},
    }
    tensors: dict[str, tuple[int, ...]] = {
        f"language_model.{name}": shape for name, shape in tensors_of(NANO).items()
    }
    tensors["vision_tower.model.layers.0.self_attn.q_proj.weight"] = (9, 9)
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_file(tmp_path / "model.safetensors", tensors)
    assert read_folder(str(tmp_path)).faults == ()


def test_pytorch_files_are_named_and_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(tmp_path / "trapped"),))

    (tmp_path / "config.json").write_text(json.dumps(NANO))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Trap()))
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Trap()))
    folder = read_folder(str(tmp_path))
    assert kinds(folder) == ["pickle", "pickle"]
    assert not any(fault.is_broken for fault in folder.faults)
    notes = {one.name: one.note for one in folder.files}
    assert notes["other.pt"] == "a PyTorch archive (zip)"
    assert notes["pytorch_model.bin"] == "a pickle of the form before PyTorch 1.6"
    assert not (tmp_path / "trapped").exists()


def test_a_pytorch_archive_that_was_cut_off(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(NANO))
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("data", b"x" * 100_000)
    os.truncate(tmp_path / "pytorch_model.bin", 90_000)
    assert kinds(read_folder(str(tmp_path))) == ["truncated"]


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (
            b"GGUF" + (3).to_bytes(4, "little") + (291).to_bytes(8, "little") + (24).to_bytes(8, "little"),
            None,
        ),
        (b"GGUF" + (99).to_bytes(4, "little") + b"\0" * 16, "header"),
        (b"GGUF" + (3).to_bytes(4, "little") + b"\xff" * 16, "header"),
        (b"GGML" + b"\0" * 20, "header"),
        (b"GGUF", "header"),
        (b"", "empty"),
    ],
)
def test_gguf(tmp_path: Path, start: bytes, kind: str | None) -> None:
    (tmp_path / "m.gguf").write_bytes(start)
    folder = read_folder(str(tmp_path / "m.gguf"))
    assert kinds(folder) == ([kind] if kind else [])
    if kind is None:
        assert folder.files[0].tensors == 291


@pytest.mark.parametrize("name", ["absent", "file/below"])
def test_nothing_to_read(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be read"):
        read_folder(str(tmp_path / name))


# --- digests --------------------------------------------------------------------------------------


def test_digests_are_those_of_the_bytes_and_kept(tmp_path: Path) -> None:
    for number in range(4):
        (tmp_path / f"f{number}").write_bytes(bytes([number]) * (10 + number))
    names = ["f0", "f1", "f2", "f3"]
    kept: dict[str, str] = {}
    seen: list[tuple[int, int]] = []
    found = digest_files(
        str(tmp_path), names, kept=kept, progress=lambda done, total: seen.append((done, total))
    )
    assert found == {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names}
    assert seen[-1] == (46, 46)
    assert len(kept) == 4
    # what is kept is taken; a file that changed is read again
    for key in kept:
        kept[key] = "0" * 64
    (tmp_path / "f2").write_bytes(b"another")
    again = digest_files(str(tmp_path), names, kept=kept)
    assert again["f1"] == "0" * 64
    assert again["f2"] == hashlib.sha256(b"another").hexdigest()


def test_an_interrupted_run_keeps_what_it_had(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"f{number}").write_bytes(b"x" * 1000)
    kept: dict[str, str] = {}

    def stop(done: int, _total: int) -> None:
        if done > 1000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        digest_files(str(tmp_path), ["f0", "f1", "f2"], kept=kept, progress=stop, workers=1)
    assert len(kept) >= 1
    assert len(digest_files(str(tmp_path), ["f0", "f1", "f2"], kept=kept)) == 3


def test_a_file_that_cannot_be_read_has_no_digest(tmp_path: Path) -> None:
    assert digest_files(str(tmp_path), ["absent"]) == {}


def test_digests_against_the_names_of_a_cache(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots"
    blobs.mkdir()
    snapshot.mkdir()
    right, wrong = hashlib.sha256(b"one").hexdigest(), "b" * 64
    (blobs / right).write_bytes(b"one")
    (blobs / wrong).write_bytes(b"two")
    (snapshot / "a").symlink_to(f"../blobs/{right}")
    (snapshot / "b").symlink_to(f"../blobs/{wrong}")
    (snapshot / "c").write_bytes(b"no link")
    faults = judge_digests(str(snapshot), digest_files(str(snapshot), ["a", "b", "c"]))
    assert [(fault.kind, fault.file) for fault in faults] == [("digest", "b")]


def test_kept_digests_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "digests.json"
    assert load_kept(str(path)) == {}
    save_kept(str(path), {"k": "a" * 64})
    assert load_kept(str(path)) == {"k": "a" * 64}
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text('{"k": 3, "l": "' + "a" * 64 + '"}')
    assert load_kept(str(path)) == {"l": "a" * 64}
    path.write_text("[")
    assert load_kept(str(path)) == {}


def test_an_adapter_names_its_base(tmp_path: Path) -> None:
    write_file(tmp_path / "adapter_model.safetensors", {"a.lora_A.weight": (16, 64)})
    said = {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}
    (tmp_path / "adapter_config.json").write_text(json.dumps(said))
    (fault,) = read_folder(str(tmp_path)).faults
    assert (fault.kind, fault.file, fault.is_broken) == ("unusual", "adapter_config.json", False)
    assert "an adapter (LORA) of meta-llama/Llama-3.1-8B, and no model" in fault.message


@pytest.mark.parametrize("said", ["[]", "{", '{"peft_type": 3, "base_model_name_or_path": ["x"]}'])
def test_an_adapter_of_which_nothing_can_be_read(tmp_path: Path, said: str) -> None:
    write_file(tmp_path / "adapter_model.safetensors", {"a.lora_A.weight": (16, 64)})
    (tmp_path / "adapter_config.json").write_text(said)
    (fault,) = read_folder(str(tmp_path)).faults
    assert fault.file == "adapter_config.json"


def test_a_file_that_this_user_may_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> int:
        raise PermissionError(13, "Permission denied")

    write_model(tmp_path)
    monkeypatch.setattr("optimize.modeldir.open_regular", refused)
    messages = [fault.message for fault in read_folder(str(tmp_path)).faults]
    assert messages
    assert all("the user who asks may not read it" in text for text in messages)

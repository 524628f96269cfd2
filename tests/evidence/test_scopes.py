"""Scopes in bundles: hand-made trees name them in their file names, and redaction reaches them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from doctor.core.evidence import Evidence, Item, Meta, command_name
from doctor.core.host import known
from doctor.errors import EvidenceError
from doctor.evidence.bundle import read_bundle, write_bundle
from doctor.evidence.redact import redact
from doctor.facts.read import read_scopes
from doctor.timeouts import BUNDLE_SCOPES_MAX

BOX = "container:4f2a"
OS = 'ID=debian\nVERSION_ID="12"\n'


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


HAND_MADE = {
    "commands/uname-a": "Linux node 6.8.0-1-generic #1\n",
    f"commands/uname-a@{BOX}": "Linux 4f2a 6.8.0-1-generic #1\n",
    f"commands/uname-a@{BOX}.err": "a warning\n",
    f"files@{BOX}/etc/os-release": OS,
    f"cuinit@{BOX}.json": '{"result": 803, "name": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}',
    "cuinit.json": '{"result": 0, "name": "CUDA_SUCCESS"}',
    "commands/systemctl-show-user@1000.service": "Id=user@1000.service\n",
    "commands/collect-env@venv:_opt_x": "PyTorch version: 2.9.1\n",
    "other@container:4f2a.json": "{}",
}


@pytest.mark.parametrize("packed", [False, True])
def test_a_hand_made_tree_has_scopes_in_its_file_names(tmp_path: Path, packed: bool) -> None:
    place = tree(tmp_path / "tree", HAND_MADE)
    if packed:
        import tarfile

        with tarfile.open(tmp_path / "tree.tar.gz", "w:gz") as archive:
            archive.add(place, "tree")
        place = tmp_path / "tree.tar.gz"
    found = read_bundle(place)
    assert found.scopes == ("host", BOX, "venv:_opt_x")
    assert found.item("command:systemctl-show-user@1000.service") is not None
    assert not any("other" in item.key for item in found.meta.items)
    host, box, inside = read_scopes(found)
    assert [known(h.system.hostname) for h in (host, box)] == ["node", "4f2a"]
    assert (known(host.system.os), known(box.system.os).id) == (None, "debian")
    assert [known(h.cuda.probe).result for h in (host, box)] == [0, 803]
    assert known(inside.environment).torch == "2.9.1"
    assert found.stderr(found.read("command:uname-a", BOX)) == "a warning\n"
    assert found.only(BOX).item("stat:/etc").kind == "dir"
    assert found.item("stat:/etc") is None


def test_a_tree_of_one_container_alone_is_a_bundle(tmp_path: Path) -> None:
    found = read_bundle(tree(tmp_path / "x", {f"files@{BOX}/etc/os-release": OS}))
    assert found.scopes == (BOX,)
    (box,) = read_scopes(found)
    assert (box.scope, known(box.system.virtualisation).kind) == (BOX, "container")


@pytest.mark.parametrize("suffix", ["", ".tar.gz"])
def test_scopes_survive_writing_and_reading(tmp_path: Path, suffix: str) -> None:
    found = read_bundle(tree(tmp_path / "tree", HAND_MADE))
    for _ in range(2):  # the second time over what the first has written
        write_bundle(found, tmp_path / f"again{suffix}")
    again = read_bundle(tmp_path / f"again{suffix}")
    assert again.meta.items == found.meta.items
    assert read_scopes(again) == read_scopes(found)


@pytest.mark.parametrize("name", ["files@nothing/etc/x", "files@container:/x", "filesystem/etc/x"])
def test_other_folders_are_no_part_of_a_bundle(tmp_path: Path, name: str) -> None:
    place = tree(tmp_path / "tree", {name: "x", "commands/uname-a": "Linux n 6.8\n"})
    assert read_bundle(place).scopes == ("host",)


def test_more_scopes_than_anybody_runs_are_refused(tmp_path: Path) -> None:
    many = {f"files@container:{n}/etc/os-release": OS for n in range(BUNDLE_SCOPES_MAX)}
    assert len(read_bundle(tree(tmp_path / "most", many)).scopes) == BUNDLE_SCOPES_MAX
    for number, extra in enumerate(
        ({"files/etc/os-release": OS}, {"meta.json": _meta(BUNDLE_SCOPES_MAX + 1)})
    ):
        with pytest.raises(EvidenceError, match="more than 100 scopes"):
            read_bundle(tree(tmp_path / f"more{number}", many | extra))


def _meta(count: int) -> str:
    items = [{"key": "env:X", "scope": f"venv:{n}", "status": "missing"} for n in range(count)]
    return msgspec.json.encode({"schema": "mopt.evidence/1", "items": items}).decode()


# --- redaction ------------------------------------------------------------------------------------

USER, OTHER = "vandermeer", "okonkwo"
SCOPES = (
    f"venv:/home/{USER}/serve",
    f"venv:/Users/{OTHER}/x",
    f"container:{USER}-vllm",
    f"venv:_home_{OTHER}_y",
)


def spilling() -> Evidence:
    items, blobs = [], {}
    for scope in SCOPES:
        name = f"commands/{command_name(('collect-env',), scope)}"
        items.append(
            Item(key="command:collect-env", scope=scope, status="ok", path=name, argv=("collect-env",))
        )
        blobs[name] = f"PyTorch version: 2.9.1\nVIRTUAL_ENV={scope[5:]}\n".encode()
        blobs[f"{name}.err"] = b"x"
    return Evidence(Meta(items=tuple(items)), blobs)


def test_users_in_the_names_of_scopes_are_replaced(tmp_path: Path) -> None:
    clean = redact(spilling())
    write_bundle(clean, tmp_path / "clean")
    spilled = [
        path
        for path in (tmp_path / "clean").rglob("*")
        for word in (USER, OTHER)
        if word in str(path.relative_to(tmp_path)) or (path.is_file() and word in path.read_text())
    ]
    assert spilled == []
    assert len(clean.scopes) == len(SCOPES)
    assert [s.split(":")[0] for s in clean.scopes].count("venv") == 3
    assert all(clean.stderr(clean.read("command:collect-env", scope)) == "x" for scope in clean.scopes)
    again = redact(clean)
    assert (again.meta, again.blobs) == (clean.meta, clean.blobs)
    assert [
        known(h.environment) for h in read_scopes(read_bundle(tmp_path / "clean")) if h.scope[:4] == "venv"
    ]

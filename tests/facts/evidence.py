"""Evidence values for tests, built from what a reader cares about instead of a bundle on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping

from doctor.core.evidence import Evidence, Item, Meta, command_name

__all__ = ["evidence"]

Text = str | bytes


def evidence(
    files: Mapping[str, Text] | None = None,
    commands: Mapping[tuple[str, ...], tuple[int, Text] | tuple[int, Text, Text]] | None = None,
    stats: Mapping[str, Mapping[str, object] | str | None] | None = None,
    *,
    nvml: object = None,
    cuinit: object = None,
    documents: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    absent: Mapping[str, str] | None = None,
    meta: Mapping[str, object] | None = None,
    hand_made: bool = False,
) -> Evidence:
    """An Evidence value.

    `files`: path -> content. `commands`: argv -> (rc, stdout[, stderr]). `stats`: path -> fields of
    the item (`{"kind": "dir"}`), a text for a link to it, None for a path that does not exist.
    `documents`: `{"nvml": …, "cuinit": …, "distro": …}` as JSON (bytes are taken as they are).
    `absent`: key -> status (`missing`, `denied`, `timeout`, `error`). `meta`: fields of Meta.
    """
    blobs: dict[str, bytes] = {}
    items: list[Item] = []
    for path, content in (files or {}).items():
        _keep(items, blobs, Item(key=f"file:{path}", status="ok", path=f"files{path}"), content)
    for argv, (rc, out, *err) in (commands or {}).items():
        name = command_name(argv)
        place = f"commands/{name}"
        words = () if hand_made else argv
        _keep(items, blobs, Item(key=f"command:{name}", status="ok", path=place, argv=words, rc=rc), out)
        if err:
            blobs[f"{place}.err"] = _bytes(err[0])
    items += [_stat(path, said) for path, said in (stats or {}).items()]
    named = {"nvml": nvml, "cuinit": cuinit, **(documents or {})}
    for key, content in named.items():
        if content is not None:
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            _keep(items, blobs, Item(key=key, status="ok", path=f"{key}.json"), raw)
    items += [Item(key=f"env:{name}", status="ok", value=value) for name, value in (env or {}).items()]
    items += [Item(key=key, status=status) for key, status in (absent or {}).items()]
    return Evidence(Meta(items=tuple(items), **(meta or {})), blobs, hand_made=hand_made)


def _keep(items: list[Item], blobs: dict[str, bytes], item: Item, content: Text) -> None:
    items.append(item)
    blobs[item.path or ""] = _bytes(content)


def _bytes(content: Text) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _stat(path: str, said: Mapping[str, object] | str | None) -> Item:
    if said is None:
        return Item(key=f"stat:{path}", status="missing", exists=False)
    fields = {"kind": "link", "link": said} if isinstance(said, str) else dict(said)
    return Item(key=f"stat:{path}", status="ok", **{"exists": True, "kind": "file", **fields})

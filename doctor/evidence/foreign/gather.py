"""Items and bytes of a foreign report, gathered into an `Evidence`."""

from __future__ import annotations

import re

from doctor.core.evidence import Evidence, Item, ItemStatus, Meta, command_name, scope_suffix

__all__ = ["Gathered", "clean_path"]

_ITEMS_MAX = 20_000
_ODD = re.compile(r"[\x00-\x1f\x7f]")


def clean_path(raw: str) -> str:
    """An absolute path without `.` and doubled slashes; empty for one that is none or climbs."""
    if not raw.startswith("/") or len(raw) > 4096 or _ODD.search(raw):
        return ""
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    return "" if ".." in parts else "/" + "/".join(parts)


class Gathered:
    """What has been found so far. The first answer to a question counts, unless it held nothing.

    `scope`: the side that what comes next was asked on.
    """

    def __init__(self) -> None:
        self._items: dict[tuple[str, str], Item] = {}
        self._blobs: dict[str, bytes] = {}
        self.scope = "host"

    def __len__(self) -> int:
        return len(self._items)

    def file(
        self, path: str, data: bytes | None, status: ItemStatus = "ok", detail: str | None = None
    ) -> None:
        """A file as read (`data`), or asked for in vain."""
        place = f"files{scope_suffix(self.scope)}{path}"
        self._put(f"file:{path}", place, data, Item(key="", status=status, detail=detail))

    def command(
        self,
        argv: tuple[str, ...],
        data: bytes | None,
        status: ItemStatus = "ok",
        detail: str | None = None,
        *,
        is_again: bool = False,
    ) -> None:
        """The output of a command, or why there is none. `is_again`: kept beside what it printed before."""
        name = command_name(argv)
        if is_again:
            name = f"{name}-again-{len(self)}"
        item = Item(key="", status=status, argv=argv, detail=detail)
        self._put(f"command:{name}", f"commands/{name}{scope_suffix(self.scope)}", data, item)

    def has_run(self, tool: str) -> bool:
        """Whether an output of that tool is here, in this scope."""
        return any(i.argv[:1] == (tool,) and i.scope == self.scope for i in self._items.values())

    def stat(self, path: str, **fields: str) -> None:
        """Existence of a path, with what a listing said of it."""
        self._put(f"stat:{path}", "", None, Item(key="", status="ok", exists=True, **fields))  # type: ignore[arg-type]

    def note(self, who: str, detail: str) -> None:
        """That a report is not whole."""
        item = Item(key="", status="truncated", detail=detail[:500])
        self._put(f"report:{who}", "", None, item)

    def _put(self, key: str, place: str, data: bytes | None, item: Item) -> None:
        known = self._items.get((key, self.scope))
        if len(self._items) >= _ITEMS_MAX or (known is not None and (known.path or data is None)):
            return
        # The key is known here only; `Item` is frozen.
        self._items[key, self.scope] = Item(
            key=key,
            scope=self.scope,
            status=item.status,
            path=place if data is not None else None,
            argv=item.argv,
            bytes=len(data) if data is not None else None,
            detail=item.detail,
            exists=item.exists,
            kind=item.kind,
            mode=item.mode,
            owner=item.owner,
            link=item.link,
        )
        if data is not None:
            self._blobs[place] = data

    def evidence(self, *, tool: str, taken_at: str = "", root: bool | None = None) -> Evidence:
        meta = Meta(tool=tool, taken_at=taken_at, root=root, items=tuple(self._items.values()))
        return Evidence(meta, self._blobs)

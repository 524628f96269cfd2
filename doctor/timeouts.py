"""Every time limit and size cap of the product, in one place. Seconds and bytes."""

from __future__ import annotations

__all__ = [
    "BUNDLE_MEMBERS_MAX",
    "BUNDLE_MEMBER_BYTES_MAX",
    "BUNDLE_SCOPES_MAX",
    "BUNDLE_UNPACKED_BYTES_MAX",
    "COLLECT_BUDGET_S",
    "COLLECT_GRACE_S",
    "FOREIGN_PASTE_BYTES_MAX",
    "FOREIGN_UNPACKED_BYTES_MAX",
    "INDEX_ANSWER_BYTES_MAX",
    "INDEX_ANSWER_S",
    "MATRIX_DEPTH_MAX",
    "MATRIX_EDITION_BYTES_MAX",
    "MATRIX_FILE_BYTES_MAX",
    "MATRIX_NODES_MAX",
]

#: The whole collection; `--timeout` replaces it. A healthy 8-GPU node without persistence mode
#: needs several seconds for its first NVML init.
COLLECT_BUDGET_S = 15.0

#: What the collector may take beyond its budget to write what it has.
COLLECT_GRACE_S = 0.8

#: A bundle with 240 kB of logs is about 2 MB unpacked; these leave room and still bound memory.
BUNDLE_MEMBERS_MAX = 20_000
BUNDLE_MEMBER_BYTES_MAX = 64 * 1024 * 1024
BUNDLE_UNPACKED_BYTES_MAX = 256 * 1024 * 1024

#: Each scope is read and judged by itself, at 3 to 10 ms; a busy node runs some tens of containers.
BUNDLE_SCOPES_MAX = 100

#: The largest matrix file has 120 kB, 22,000 values and 4 levels; a hostile overlay must not cost more
#: than a moment.
MATRIX_FILE_BYTES_MAX = 4 * 1024 * 1024
MATRIX_NODES_MAX = 500_000
MATRIX_DEPTH_MAX = 12
#: The compiled edition has 0.85 MB.
MATRIX_EDITION_BYTES_MAX = 32 * 1024 * 1024

#: A bug report unpacks to 0.2 to 18 MB; a gzip bomb to what it likes.
FOREIGN_UNPACKED_BYTES_MAX = 256 * 1024 * 1024
#: Pasted text is read as a whole.
FOREIGN_PASTE_BYTES_MAX = 8 * 1024 * 1024

#: One question to pip: a project's files take a second, METADATA of 20 releases of torch half a minute.
INDEX_ANSWER_S = 300.0
#: The files of torch and METADATA of 20 releases are 1 MB; an answer that was saved is no larger.
INDEX_ANSWER_BYTES_MAX = 32 * 1024 * 1024

#: What `explain` reads as a whole, wrapped lines joined; a larger log is scanned line by line.
EXPLAIN_WHOLE_BYTES_MAX = 4 * 1024 * 1024

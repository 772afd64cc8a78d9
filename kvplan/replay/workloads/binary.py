"""Files that are no text: named by their first bytes and refused, never unpacked by code of their own."""

from __future__ import annotations

import re

from kvplan.errors import TraceError
from kvplan.replay.workloads.stream import Source

PICKLE = re.compile(rb"\x80[\x02-\x05]|[(\]}](?:[ld]p\d|q\x00)|c[a-z_]+\n[a-z_]+\n")
PICKLE_HINT = (
    "kvplan never unpickles, since that runs code: use the server's text forms, "
    "--log-requests --log-requests-format json, or --export-metrics-to-file"
)
KINDS: tuple[tuple[bytes, str, str | None], ...] = (
    (b"PAR1", "a Parquet file", "convert it to CSV or JSON lines"),
    (b"ARROW1", "an Arrow file", "convert it to CSV or JSON lines"),
    (b"PK\x03\x04", "a zip archive", "unpack it and name the file inside"),
    (b"BZh", "a bzip2 file", "unpack it, or pack it with gzip or zstd"),
    (b"\xfd7zXZ", "an xz file", "unpack it, or pack it with gzip or zstd"),
    (b"\x1f\x8b", "packed twice", "unpack it once"),
    (b"\x28\xb5\x2f\xfd", "packed twice", "unpack it once"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself", "git lfs pull"),
)


def refuse_binary(source: Source, start: bytes) -> None:
    """TraceError naming the kind where a file's first bytes are no text."""
    where = source.where(1)
    if PICKLE.match(start):
        raise TraceError("a Python pickle", where=where, hint=PICKLE_HINT)
    for magic, kind, hint in KINDS:
        if start.startswith(magic):
            raise TraceError(kind, where=where, hint=hint)
    if b"\0" in start:
        line = start.count(b"\n", 0, start.index(b"\0")) + 1
        raise TraceError("a binary file, not text", where=source.where(line))

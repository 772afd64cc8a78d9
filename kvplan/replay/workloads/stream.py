"""A workload file as batches of numbered lines in bounded memory, and its first bytes for a look."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvplan import yamlfile
from kvplan.document import Document
from kvplan.errors import TraceError
from kvplan.replay.workloads.compression import DamagedFile, chunks, compression_of

BATCH_BYTES = 1 << 20
HEAD_BYTES = 1 << 20
# a million hash ids take about 10 MiB
MAX_ROW_BYTES = 16 << 20
MAX_DOCUMENT_BYTES = 64 << 20
MAX_YAML_BYTES = 2 << 20
BOM = b"\xef\xbb\xbf"


class Source(msgspec.Struct, frozen=True):
    """A readable workload file and how it is packed (`gzip`, `zstd` or None)."""

    path: Path
    compression: str | None

    def where(self, line: int) -> str:
        """`file:line` for messages."""
        return f"{self.path}:{line}"


def open_source(path: Path) -> Source:
    """Look at a file without reading it; TraceError where it cannot be read."""
    return Source(path, compression_of(path))


def head(source: Source, limit: int = HEAD_BYTES) -> bytes:
    """The first `limit` unpacked bytes without a byte order mark; fewer where the file is shorter."""
    parts: list[bytes] = []
    missing = limit
    try:
        for chunk in chunks(source.path, source.compression):
            parts.append(chunk[:missing])
            missing -= len(parts[-1])
            if not missing:
                break
    except DamagedFile as error:
        if not parts:
            raise damaged(source, 1, error) from None
    return b"".join(parts).removeprefix(BOM)


def line_batches(
    source: Source, max_bytes: int = MAX_ROW_BYTES
) -> Iterator[tuple[int, list[bytes]]]:
    """(number of the first line, lines without their ends), about a megabyte at a time.

    Takes CRLF, a byte order mark, and a last line without an end. TraceError for a line that is
    longer than a row can be.
    """
    number, rest = 1, b""
    try:
        for block in blocks(source):
            content = rest + block
            lines = content.split(b"\n")
            rest = lines.pop()
            if len(rest) > max_bytes:
                raise too_long(source, number + len(lines), max_bytes)
            if lines:
                yield number, ended(lines) if b"\r\n" in content else lines
                number += len(lines)
    except DamagedFile as error:
        raise damaged(source, number + bool(rest), error) from None
    if rest:
        yield number, ended([rest])


def blocks(source: Source) -> Iterator[bytes]:
    """Chunks joined to at least BATCH_BYTES, the byte order mark removed; damage comes last."""
    waiting: list[bytes] = []
    size, start = 0, BOM
    damage: DamagedFile | None = None
    try:
        for chunk in chunks(source.path, source.compression):
            waiting.append(chunk)
            size += len(chunk)
            if size >= BATCH_BYTES:
                yield b"".join(waiting).removeprefix(start)
                waiting, size, start = [], 0, b""
    except DamagedFile as error:
        damage = error
    if waiting:
        yield b"".join(waiting).removeprefix(start)
    if damage is not None:
        raise damage


def ended(lines: list[bytes]) -> list[bytes]:
    """Lines without the carriage returns of CRLF."""
    return [line.removesuffix(b"\r") for line in lines]


def numbered_lines(source: Source, max_bytes: int = MAX_ROW_BYTES) -> Iterator[tuple[int, bytes]]:
    """(line number, line) of every line that is not blank."""
    for first, lines in line_batches(source, max_bytes):
        for number, line in enumerate(lines, first):
            if line and not line.isspace():
                yield number, line


def whole(source: Source, limit: int = MAX_DOCUMENT_BYTES) -> bytes:
    """All of a file that is one document; TraceError beyond the limit."""
    parts: list[bytes] = []
    size = 0
    try:
        for chunk in chunks(source.path, source.compression):
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                raise TraceError(
                    f"a document of more than {limit >> 20} MiB", where=source.where(1)
                )
    except DamagedFile as error:
        raise damaged(source, 1, error) from None
    return b"".join(parts).removeprefix(BOM)


def yaml_document(source: Source) -> Document:
    """A workload file that is one YAML document, read strictly, with the line of each value."""
    content = whole(source, MAX_YAML_BYTES)
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TraceError("not UTF-8 text", where=source.where(line)) from None
    return yamlfile.parse(text, str(source.path))


def too_long(source: Source, line: int, max_bytes: int) -> TraceError:
    return TraceError(
        f"a line of more than {max_bytes >> 20} MiB, which is no request", where=source.where(line)
    )


def damaged(source: Source, line: int, error: TraceError) -> TraceError:
    return TraceError(error.problem, where=source.where(line), hint=error.hint)

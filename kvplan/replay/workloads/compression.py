"""Plain, gzip and zstd files as chunks of bytes; which one it is, the first bytes say."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from kvplan.errors import MissingExtra, TraceError

CHUNK_BYTES = 1 << 20
# 4 bytes of zstd may stand for 128 KiB: small bites keep what one of them yields below 16 MiB
BITE_BYTES = 512
SKIPPABLE = tuple(bytes((first, 0x2A, 0x4D, 0x18)) for first in range(0x50, 0x60))
MAGIC = {"gzip": (b"\x1f\x8b",), "zstd": (b"\x28\xb5\x2f\xfd", *SKIPPABLE)}
# what may stand behind a member without meaning anything, as the usual programs see it
PADDING = {"gzip": b"\0", "zstd": b""}


class DamagedFile(TraceError):
    """Compressed data that ends early or cannot be unpacked; raised without its place."""


def compression_of(path: Path) -> str | None:
    """`gzip`, `zstd` or None; TraceError for what is no readable regular file."""
    if not S_ISREG(mode_of(path)):
        hint = "a workload is read twice: save it to a file"
        raise TraceError("not a regular file", where=str(path), hint=hint)
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise TraceError(f"cannot read: {reason_of(error)}", where=str(path)) from None
    return next((name for name, magic in MAGIC.items() if head.startswith(magic)), None)


def mode_of(path: Path) -> int:
    """What a path leads to, as `os.stat` says it; TraceError where it leads nowhere."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        raise TraceError("no such file", where=str(path)) from None
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise TraceError(f"cannot read: {reason}", where=str(path)) from None


def chunks(path: Path, compression: str | None) -> Iterator[bytes]:
    """Unpacked content, at most CHUNK_BYTES at a time; DamagedFile where unpacking fails."""
    try:
        with path.open("rb") as file:
            yield from plain(file) if compression is None else cut(unpacked(file, compression))
    except OSError as error:
        raise DamagedFile(f"cannot read: {reason_of(error)}") from None


def plain(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of any size as pieces of at most CHUNK_BYTES."""
    for piece in pieces:
        if len(piece) <= CHUNK_BYTES:
            yield piece
            continue
        for start in range(0, len(piece), CHUNK_BYTES):
            yield piece[start : start + CHUNK_BYTES]


def unpacked(file: BinaryIO, compression: str) -> Iterator[bytes]:
    """Member after member of a packed file; a last one without its end is an error."""
    new_member, failure = UNPACKERS[compression]()
    padding = PADDING[compression]
    member: Any = None
    while bite := file.read(BITE_BYTES):
        while bite := bite if member else bite.lstrip(padding):
            member = member or new_member()
            try:
                chunk = member.decompress(bite)
            except failure:
                raise damaged(f"the {compression} data is damaged") from None
            if chunk:
                yield chunk
            bite = member.unused_data if member.eof else b""
            member = None if member.eof else member
    if member is not None:
        raise damaged(f"the {compression} data ends early")


def gzip_unpacker() -> tuple[Callable[[], Any], type[Exception]]:
    """A maker of decompressors of one gzip member, and what they raise."""
    return lambda: zlib.decompressobj(wbits=31), zlib.error


def zstd_unpacker() -> tuple[Callable[[], Any], type[Exception]]:
    """A maker of decompressors of one zstd frame, and what they raise."""
    zstandard = load_zstandard()
    return lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


def load_zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra(
            "reading a zstd file needs the package zstandard",
            hint="pip install 'kvplan-pools[zstd]', or unpack the file first",
        ) from None
    return zstandard


def damaged(problem: str) -> DamagedFile:
    return DamagedFile(problem, hint="copy the file again")


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


UNPACKERS = {"gzip": gzip_unpacker, "zstd": zstd_unpacker}

"""Plain, gzip and zstd files as chunks of bytes; which one it is, the first bytes say."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from kvplan.errors import MissingExtra, TraceError

CHUNK_BYTES = 1 << 20
# a zstd block of 4 bytes may stand for 128 KiB: small bites keep what one of them yields small
ZSTD_BITE_BYTES = 2048
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


class DamagedFile(TraceError):
    """Compressed data that ends early or cannot be unpacked; raised without its place."""


def compression_of(path: Path) -> str | None:
    """`gzip`, `zstd` or None; TraceError for what is no readable regular file."""
    if not path.exists():
        raise TraceError("no such file", where=str(path))
    if not path.is_file():
        raise TraceError(
            "not a regular file",
            where=str(path),
            hint="a workload is read twice: save it to a file",
        )
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise TraceError(f"cannot read: {reason_of(error)}", where=str(path)) from None
    return next((name for magic, name in MAGIC.items() if head.startswith(magic)), None)


def chunks(path: Path, compression: str | None) -> Iterator[bytes]:
    """Unpacked content, at most a few MiB at a time; DamagedFile where unpacking fails."""
    try:
        with path.open("rb") as file:
            yield from UNPACK[compression](file)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        early = isinstance(error, EOFError)
        raise DamagedFile(damage("gzip", early=early), hint="copy the file again") from None
    except OSError as error:
        raise DamagedFile(f"cannot read: {reason_of(error)}") from None


def plain(file: BinaryIO) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def gunzipped(file: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as unpacked:
        while chunk := unpacked.read(CHUNK_BYTES):
            yield chunk


def unzstd(file: BinaryIO) -> Iterator[bytes]:
    """Frame after frame; a last frame without its end is an error, which stream readers hide."""
    zstandard = load_zstandard()
    frame: Any = None
    while bite := file.read(ZSTD_BITE_BYTES):
        while bite:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                chunk = frame.decompress(bite)
            except zstandard.ZstdError:
                raise DamagedFile(damage("zstd"), hint="copy the file again") from None
            if chunk:
                yield chunk
            bite = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise DamagedFile(damage("zstd", early=True), hint="copy the file again")


def load_zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise MissingExtra(
            "reading a zstd file needs the package zstandard",
            hint="pip install 'kvplan-pools[zstd]', or unpack the file first",
        ) from None
    return zstandard


def damage(kind: str, *, early: bool = False) -> str:
    return f"the {kind} data ends early" if early else f"the {kind} data is damaged"


def reason_of(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


UNPACK = {None: plain, "gzip": gunzipped, "zstd": unzstd}

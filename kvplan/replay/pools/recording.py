"""The file of operations that a replay leaves: written beside its place, put there when it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from kvplan.errors import InputError
from kvplan.replay.server import Server
from kvplan.replay.workloads.events import (
    NAME,
    PARTIAL,
    VERSION,
    EventTrace,
    open_events,
    write_events,
)
from kvplan.replay.workloads.operations import Operation

OPERATIONS_SUFFIX = ".jsonl"


class Recording:
    """Operations on their way to a file; `named` is what the user knows it by."""

    def __init__(self, path: Path, header: dict[str, Any], named: Path | None) -> None:
        self.path = path
        self._header = header
        self._named = named
        self._encode = msgspec.json.Encoder().encode
        with written(named):
            self._file = path.open("wb")
        self._put({"kvplan": NAME, "version": VERSION, **header})

    def write(self, operation: Operation) -> None:
        """Append one operation."""
        self._put(operation)

    def close(self) -> None:
        """Nothing more is appended."""
        with written(self._named):
            self._file.close()

    def cut(self, num_operations: int) -> None:
        """Keep the first operations alone."""
        self._rewrite(num_operations, self._header)

    def mark_partial(self) -> None:
        """Say in the header that the replay was stopped."""
        self._rewrite(None, {**self._header, PARTIAL: True})

    def _rewrite(self, num_operations: int | None, header: dict[str, Any]) -> None:
        anew = self.path.with_suffix(".anew")
        with written(self._named):
            write_events(anew, islice(open_events(self.path), num_operations), **header)
            anew.replace(self.path)

    def _put(self, value: Any) -> None:
        try:
            self._file.write(self._encode(value) + b"\n")
        except OSError as error:
            raise unwritable(self._named, error) from None


@contextmanager
def recording(target: Path | None, header: dict[str, Any]) -> Iterator[Recording]:
    """A recording that ends up at `target`, or nowhere, if nothing went wrong on the way.

    InputError where it cannot be written.
    """
    with folder_beside(target) as folder:
        made = Recording(folder / "operations.jsonl", header, target)
        try:
            yield made
        except BaseException:
            with suppress(InputError):
                made.close()
            raise
        made.close()
        if target is not None:
            with written(target):
                made.path.replace(target)


@contextmanager
def folder_beside(target: Path | None) -> Iterator[Path]:
    """A folder that goes away: beside a file that is to be written, or among the temporary ones."""
    with written(target):
        folder = TemporaryDirectory(prefix=".kvplan-", dir=target and target.parent)
    with folder as name:
        yield Path(name)


@contextmanager
def written(target: Path | None) -> Iterator[None]:
    """Around writing a file; InputError with its name where the system does not let it."""
    try:
        yield
    except OSError as error:
        raise unwritable(target, error) from None


def unwritable(target: Path | None, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    where = "the temporary folder" if target is None else str(target)
    return InputError(f"cannot write: {reason}", where=where)


def header_of(server: Server, model: str) -> dict[str, Any]:
    """What a recording says of the pools it was made on."""
    sliding = {} if server.sliding is None else {"sliding_tokens": server.sliding.num_tokens}
    return {
        "model": model,
        "page_size": server.page_size,
        "tokens": server.num_tokens,
        **sliding,
        "rows": server.num_rows,
    }


def write_prefix(target: Path, trace: EventTrace, num_operations: int) -> None:
    """Write the first operations of a trace under its own header; InputError where it cannot be."""
    header = {key: value for key, value in trace.header.items() if key not in ("kvplan", "version")}
    with folder_beside(target) as folder, written(target):
        made = folder / target.name
        write_events(made, islice(trace, num_operations), **header)
        made.replace(target)


def write_whole(target: Path, text: str) -> None:
    """Write a file that never shows half-written under its name; InputError where it cannot be."""
    with folder_beside(target) as folder, written(target):
        made = folder / target.name
        made.write_text(text, encoding="utf-8")
        made.replace(target)

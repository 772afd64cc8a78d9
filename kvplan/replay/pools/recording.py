"""The file of operations that a replay leaves: written beside its place, put there when it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from kvplan.replay.server import Server
from kvplan.replay.workloads.events import NAME, VERSION, open_events, write_events
from kvplan.replay.workloads.operations import Operation


class Recording:
    """Operations on their way to a file."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path = path
        self._header = header
        self._file = path.open("wb")
        self._encode = msgspec.json.Encoder().encode
        self._put({"kvplan": NAME, "version": VERSION, **header})

    def write(self, operation: Operation) -> None:
        """Append one operation."""
        self._put(operation)

    def close(self) -> None:
        """Nothing more is appended."""
        self._file.close()

    def cut(self, num_operations: int) -> None:
        """Keep the first operations alone."""
        shorter = self.path.with_suffix(".cut")
        write_events(shorter, islice(open_events(self.path), num_operations), **self._header)
        shorter.replace(self.path)

    def _put(self, value: Any) -> None:
        self._file.write(self._encode(value) + b"\n")


@contextmanager
def recording(target: Path | None, header: dict[str, Any]) -> Iterator[Recording]:
    """A recording that ends up at `target`, or nowhere, if nothing went wrong on the way."""
    with TemporaryDirectory(prefix=".kvplan-", dir=target and target.parent) as folder:
        made = Recording(Path(folder) / "operations.jsonl", header)
        try:
            yield made
            made.close()
            if target is not None:
                made.path.replace(target)
        finally:
            made.close()


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


def write_whole(target: Path, text: str) -> None:
    """Write a file that never shows half-written under its name."""
    with TemporaryDirectory(prefix=".kvplan-", dir=target.parent) as folder:
        made = Path(folder) / target.name
        made.write_text(text, encoding="utf-8")
        made.replace(target)

"""kvplan's own low-level trace: operations on the pools by request name, as JSON lines or YAML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.workloads.detect import detect
from kvplan.replay.workloads.jsonrows import undecoded
from kvplan.replay.workloads.ledger import Ledger
from kvplan.replay.workloads.operations import NAMES as OPERATION_NAMES
from kvplan.replay.workloads.operations import Operation
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import MAX_TOKENS, BadRow, Row, shown
from kvplan.replay.workloads.stream import Source, numbered_lines, open_source, yaml_document
from kvplan.replay.workloads.tally import Tally

NAME, VERSION = "events", 1
OPERATIONS = "operations"
PARTIAL = "partial"  # in the header of what a stopped replay recorded


class EventTrace:
    """The operations of a file, checked against each other, as often as it is iterated.

    `header` is what the first object (or the YAML document) says beside the operations.
    """

    def __init__(self, source: Source, header: dict[str, Any], *, yaml: bool) -> None:
        self.source = source
        self.header = header
        self._yaml = yaml

    @property
    def is_partial(self) -> bool:
        """Whether a replay that was stopped left these operations."""
        return self.header.get(PARTIAL) is True

    def __iter__(self) -> Iterator[Operation]:
        """Operations in file order; TraceError at one that contradicts those before it."""
        size = self.header.get("page_size")
        ledger = Ledger(size if isinstance(size, int) and 0 < size <= MAX_TOKENS else None)
        for where, operation in self._located():
            try:
                ledger.take(operation)
            except BadRow as error:
                raise TraceError(error.problem, where=where, hint=error.hint) from None
            yield operation

    def _located(self) -> Iterator[tuple[str, Operation]]:
        return yaml_operations(self.source) if self._yaml else json_operations(self.source)


def open_events(path: Path | str) -> EventTrace:
    """Open a trace of operations; TraceError where it is none or of another version."""
    path = Path(path)
    detect(path, format=NAME)
    source = open_source(path)
    line, first = next(numbered_lines(source))
    if first.startswith(b"{"):
        header = msgspec.json.decode(first)
        return EventTrace(source, checked(header, source.where(line)), yaml=False)
    data = yaml_document(source).data
    header = {key: value for key, value in data.items() if key != OPERATIONS}
    return EventTrace(source, checked(header, str(path)), yaml=True)


def checked(header: dict[str, Any], where: str) -> dict[str, Any]:
    """The header itself, if its version can be read."""
    if header.get("kvplan") != NAME or header.get("version") != VERSION:
        raise TraceError(
            f"kvplan {shown(header.get('kvplan'))} of version {shown(header.get('version'))}",
            where=where,
            hint=f"this kvplan reads '{NAME}' of version {VERSION}",
        )
    return header


def json_operations(source: Source) -> Iterator[tuple[str, Operation]]:
    """(file:line, operation) of every line below the header."""
    decode = msgspec.json.Decoder(Operation).decode
    lines = numbered_lines(source)
    next(lines)
    for line, text in lines:
        try:
            yield source.where(line), decode(text)
        except (msgspec.MsgspecError, RecursionError) as error:
            problem = undecoded(error, text).problem
            hint = (
                f"one of: {', '.join(OPERATION_NAMES)}" if problem.startswith("'op' is ") else None
            )
            raise TraceError(problem, where=source.where(line), hint=hint) from None


def yaml_operations(source: Source) -> Iterator[tuple[str, Operation]]:
    """(file:line:column, operation) of the list under `operations`."""
    document = yaml_document(source)
    if not isinstance(document.data.get(OPERATIONS), list):
        raise TraceError(f"no list '{OPERATIONS}'", where=document.where())
    for position in range(len(document.data[OPERATIONS])):
        path = (OPERATIONS, position)
        yield document.where(path), document.convert(Operation, path)  # type: ignore[arg-type]


def write_events(path: Path, operations: Iterable[Operation], **header: Any) -> None:
    """Write operations as JSON lines that `open_events` reads back."""
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        file.write(encode({"kvplan": NAME, "version": VERSION, **header}) + b"\n")
        file.writelines(encode(operation) + b"\n" for operation in operations)


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Refused: operations have no arrivals and no lengths of answers."""
    del tally, options
    raise TraceError(
        "operations on the pools, not requests: they are replayed as they stand",
        where=str(source.path),
    )


def layout(keys: Sequence[str], sample: Any) -> str:
    """Whether it is the JSON lines or the YAML form."""
    del sample
    return "one YAML document" if OPERATIONS in keys else "JSON lines below a header"

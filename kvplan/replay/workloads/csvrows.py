"""Rows of a CSV workload: columns by name, one line a row, bad rows with their line and value."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence

from kvplan.errors import TraceError
from kvplan.replay.workloads.rows import BadRow, Row, shown
from kvplan.replay.workloads.stream import Source, line_batches
from kvplan.replay.workloads.tally import Tally

Parse = Callable[[int, Sequence[str]], Row]


def csv_rows(source: Source, tally: Tally, parser: Callable[[list[str]], Parse]) -> Iterator[Row]:
    """Every row below the header through `parser(header)(line number, fields)`."""
    parse: Parse | None = None
    width = 0
    for first, lines in line_batches(source):
        num_other = 0
        for line, text in enumerate(decoded(lines), first):
            if parse is None:
                num_other += 1
                if text and not text.isspace():
                    parse, width = opened(source, line, text, parser)
                continue
            fields = text.split(",")
            try:
                if len(fields) != width or '"' in text:
                    if not text or text.isspace():
                        num_other += 1
                        continue
                    fields = unusual_fields(text, width)
                row = parse(line, fields)
            except BadRow as error:
                tally.bad(error, source.where(line))
            else:
                yield row
        tally.read += len(lines) - num_other


def opened(
    source: Source, line: int, text: str, parser: Callable[[list[str]], Parse]
) -> tuple[Parse, int]:
    """The parser for a header line, and how many fields each row must have."""
    try:
        header = [name.strip() for name in fields_of(text)]
        return parser(header), len(header)
    except TraceError as error:
        raise TraceError(error.problem, where=source.where(line), hint=error.hint) from None


def decoded(lines: list[bytes]) -> list[str]:
    """Lines as text; what is not UTF-8 becomes a sign that no column takes for a number."""
    return b"\n".join(lines).decode(errors="replace").split("\n")


def fields_of(text: str) -> list[str]:
    """Fields of one line, quoted ones included."""
    try:
        return next(csv.reader([text], strict=True))
    except (csv.Error, StopIteration) as error:
        raise BadRow(f"{shown(text)} is no line of a CSV file ({error})") from None


def columns(header: list[str], names: Sequence[str]) -> list[int]:
    """Positions of the named columns; TraceError for one that is absent or there twice."""
    for name in names:
        if header.count(name) != 1:
            problem = "is missing" if name not in header else "is there twice"
            raise TraceError(
                f"the column '{name}' {problem}", hint=f"the header is {','.join(header)[:200]}"
            )
    return [header.index(name) for name in names]


def unusual_fields(text: str, width: int) -> list[str]:
    """Fields of a line with quotes; BadRow where there are more or fewer than the header's."""
    fields = fields_of(text)
    if len(fields) != width:
        raise BadRow(f"{len(fields)} fields instead of {width}: {shown(text)}")
    return fields

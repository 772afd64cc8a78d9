"""BurstGPT traces, with 6 columns or with 8: seconds, prompt tokens, answer tokens, sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.replay.workloads.clock import NS_PER, decimal_ns
from kvplan.replay.workloads.csvrows import Parse, columns, csv_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import INCONSISTENT, BadRow, Row, TokenColumn
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally

COLUMNS = ("Timestamp", "Request tokens", "Response tokens", "Total tokens")
SESSION = "Session ID"


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in file order. A session is carried along but implies no shared tokens."""
    unit_ns = NS_PER[options.time_unit or "s"]
    return csv_rows(source, tally, lambda header: parser(header, unit_ns))


def parser(header: list[str], unit_ns: int) -> Parse:
    """The parser of one file: by name, since the 8-column layout inserts two in the middle."""
    time, request, response, total = columns(header, COLUMNS)
    session = header.index(SESSION) if SESSION in header else None

    inputs, outputs, totals = (TokenColumn(name) for name in COLUMNS[1:])

    def parse(line: int, fields: Sequence[str]) -> Row:
        input_len, output_len = inputs[fields[request]], outputs[fields[response]]
        if totals[fields[total]] != input_len + output_len:
            raise BadRow(
                f"'Total tokens' is {fields[total]}, but {input_len} + {output_len} is "
                f"{input_len + output_len}",
                reason=INCONSISTENT,
                hint="are the columns under their own names?",
            )
        return Row(
            decimal_ns(fields[time], unit_ns, "Timestamp"),
            input_len,
            output_len,
            line,
            session=(fields[session] or None) if session is not None else None,
        )

    return parse


def layout(keys: Sequence[str], sample: Sequence[str]) -> str:
    """Which of the two column sets."""
    del sample
    if SESSION in keys:
        return f"8 columns: the header has '{SESSION}'"
    return "6 columns"

"""Vidur / Splitwise processed traces: seconds, prefill tokens, decode tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvplan.replay.workloads.clock import NS_PER, decimal_ns
from kvplan.replay.workloads.csvrows import Parse, columns, csv_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import Row, TokenColumn
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.supplied import refuse_rate, supplied_arrivals
from kvplan.replay.workloads.tally import Tally

ARRIVAL = "arrived_at"
COLUMNS = ("num_prefill_tokens", "num_decode_tokens")


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in file order; the files of lengths alone take their arrivals from the options."""
    return csv_rows(source, tally, lambda header: parser(header, options))


def parser(header: list[str], options: ReadOptions) -> Parse:
    prefill, decode = columns(header, COLUMNS)
    inputs, outputs = (TokenColumn(name) for name in COLUMNS)
    if ARRIVAL in header:
        refuse_rate(options)
        unit_ns = NS_PER[options.time_unit or "s"]
        (time,) = columns(header, [ARRIVAL])

        def arrival(fields: Sequence[str]) -> int:
            return decimal_ns(fields[time], unit_ns, ARRIVAL)
    else:
        times = supplied_arrivals(options, f"no column '{ARRIVAL}'")

        def arrival(fields: Sequence[str]) -> int:
            del fields
            return next(times)

    def parse(line: int, fields: Sequence[str]) -> Row:
        return Row(
            arrival(fields),
            inputs[fields[prefill]],
            outputs[fields[decode]],
            line,
        )

    return parse


def layout(keys: Sequence[str], sample: Sequence[str]) -> str:
    del sample
    return "with arrivals" if ARRIVAL in keys else f"lengths alone: no column '{ARRIVAL}'"

"""ServeGen offline traces: a batch of lengths, with hashed blocks (a-c) or answers (d-f), no arrivals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.workloads.blocks import covering
from kvplan.replay.workloads.jsonrows import json_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import BadRow, Row, token_count
from kvplan.replay.workloads.stream import Source, numbered_lines
from kvplan.replay.workloads.supplied import refuse_output, supplied_arrivals
from kvplan.replay.workloads.tally import Tally

BLOCK_SIZE = 16


class ServeGenRow(msgspec.Struct, frozen=True, gc=False):
    request_id: int | str
    input_length: int
    output_length: int | None = None
    hash_ids: tuple[int, ...] | None = None


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in file order at supplied times; TraceError naming every flag that is still needed."""
    times, output_len = supplied(source, options)
    block_size = options.block_size or BLOCK_SIZE

    def parse(line: int, row: ServeGenRow) -> Row:
        input_len = token_count(row.input_length, "input_length")
        answer = row.output_length if output_len is None else output_len
        if answer is None:
            raise BadRow("the key 'output_length' is missing, unlike in the first row")
        return Row(
            next(times),
            input_len,
            token_count(answer, "output_length"),
            line,
            str(row.request_id),
            identity=None
            if row.hash_ids is None
            else covering(row.hash_ids, input_len, block_size),
        )

    return json_rows(source, tally, ServeGenRow, parse, "servegen")


def supplied(source: Source, options: ReadOptions) -> tuple[Iterator[int], int | None]:
    """Arrivals and, where the file has none, the answer length that the user gives."""
    line, first = next(numbered_lines(source))
    has_outputs = b'"output_length"' in first
    needed = [flag for flag, given in needs(options, has_outputs=has_outputs) if given is None]
    if needed:
        lacking = (
            "neither arrival times nor answer lengths" if not has_outputs else "no arrival times"
        )
        raise TraceError(
            f"a ServeGen offline trace has {lacking}",
            where=source.where(line),
            hint=f"supply them: {' and '.join(needed)}",
        )
    if has_outputs:
        refuse_output(options, source.where(line))
    return supplied_arrivals(options, "a batch"), options.output_len


def needs(options: ReadOptions, *, has_outputs: bool) -> list[tuple[str, float | None]]:
    flags: list[tuple[str, float | None]] = [
        ("--request-rate R (per second, inf: all at time 0)", options.request_rate)
    ]
    if not has_outputs:
        flags.append(("--output-len N", options.output_len))
    return flags


def layout(keys: Sequence[str], sample: Any) -> str:
    """Which half of the family: a-c have hashes and no answers, d-f answers and no hashes."""
    del sample
    return "d-f: answers, no hashes" if "output_length" in keys else "a-c: hashes, no answers"

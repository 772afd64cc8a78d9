"""Azure LLM inference traces of 2023, 2024 and 2025: wall clock, input tokens, output tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kvplan.replay.workloads.clock import WallClock
from kvplan.replay.workloads.csvrows import Parse, columns, csv_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import Row, TokenColumn, shown
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally

ZONED = re.compile(r":\d\d(\.\d*)?(Z|[+-]\d\d:?\d\d)$")
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in file order."""
    del options
    return csv_rows(source, tally, parser)


def parser(header: list[str]) -> Parse:
    time, context, generated = columns(header, COLUMNS)
    ns = WallClock().ns
    inputs, outputs = TokenColumn(COLUMNS[1]), TokenColumn(COLUMNS[2])

    def parse(line: int, fields: Sequence[str]) -> Row:
        return Row(ns(fields[time]), inputs[fields[context]], outputs[fields[generated]], line)

    return parse


def layout(keys: Sequence[str], sample: Sequence[str]) -> str:
    """Which year's layout, and what says so."""
    if "NumImages" in keys:
        return "2025 multimodal: the header has NumImages, which ContextTokens already includes"
    first = dict(zip(keys, sample, strict=False)).get("TIMESTAMP", "")
    if ZONED.search(first):
        return f"2024: the first time {shown(first)} has a zone"
    return f"2023: the first time {shown(first)} has no zone"

"""Dynamo request traces: `request_end` rows with replay lengths and sequence hashes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.requests import BlockIds
from kvplan.replay.workloads.blocks import hash_count, sizes_by_ceil
from kvplan.replay.workloads.clock import NS_PER, number_ns
from kvplan.replay.workloads.jsonrows import json_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import OUT_OF_RANGE, BadRow, Row, shown, token_count
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally
from kvplan.units import ceil_div

SCHEMA = "dynamo.request.trace.v1"


class Replay(msgspec.Struct, frozen=True):
    trace_block_size: int
    input_length: int
    input_sequence_hashes: tuple[int, ...] = ()


class Ended(msgspec.Struct, frozen=True):
    request_id: str | int
    output_tokens: int
    request_received_ms: int | float
    replay: Replay


class DynamoRow(msgspec.Struct, frozen=True):
    event_type: str
    schema: str | None = None
    request: Ended | None = None
    agent_context: Any = None


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """One row a `request_end`; other events are counted as dropped, agents are refused."""
    del options

    def parse(line: int, row: DynamoRow) -> Row | None:
        if row.agent_context is not None or row.event_type == "tool_end":
            raise agentic(source.where(line))
        if row.event_type != "request_end":
            tally.dropped["not a request_end event"] += 1
            return None
        if row.schema != SCHEMA:
            raise BadRow(f"the schema is {shown(row.schema)}, not '{SCHEMA}'")
        if row.request is None:
            raise BadRow("the key 'request' is missing")
        return ended_row(line, row.request)

    return json_rows(source, tally, DynamoRow, parse, "dynamo")


def ended_row(line: int, request: Ended) -> Row:
    input_len = token_count(request.replay.input_length, "input_length")
    return Row(
        number_ns(request.request_received_ms, NS_PER["ms"], "request_received_ms"),
        input_len,
        token_count(request.output_tokens, "output_tokens"),
        line,
        str(request.request_id),
        identity=identity(request.replay, input_len),
    )


def identity(replay: Replay, input_len: int) -> BlockIds | None:
    """Sequence hashes of whole blocks, with or without the partial last one."""
    ids, size = replay.input_sequence_hashes, replay.trace_block_size
    if size < 1:
        raise BadRow(f"'trace_block_size' is {size}", reason=OUT_OF_RANGE)
    if len(ids) not in (input_len // size, ceil_div(input_len, size)):
        raise hash_count(ids, input_len, size, sizes_by_ceil(input_len, len(ids)))
    return BlockIds(ids=ids, block_size=size) if ids else None


def agentic(where: str) -> TraceError:
    return TraceError(
        "recognised but not supported: a Dynamo trace of agents, whose requests wait for tools and "
        "for each other",
        where=where,
        hint="replay a request trace without agent_context",
    )


def layout(keys: Sequence[str], sample: Any) -> str:
    del keys, sample
    return "request trace v1: request_end rows, block size in each row"

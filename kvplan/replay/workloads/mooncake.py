"""Mooncake traces: milliseconds, lengths, hashed blocks of 512 tokens; also with sessions and delays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvplan.errors import TraceError
from kvplan.replay.requests import BlockIds
from kvplan.replay.workloads.blocks import Sizes, hash_count, sizes_by_ceil
from kvplan.replay.workloads.clock import NS_PER, number_ns
from kvplan.replay.workloads.conversations import Conversations
from kvplan.replay.workloads.jsonrows import json_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import BadRow, Row, token_count
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally
from kvplan.units import ceil_div

BLOCK_SIZE = 512


class MooncakeRow(msgspec.Struct, frozen=True, gc=False):
    input_length: int
    output_length: int
    timestamp: int | float | None = None
    hash_ids: tuple[int, ...] | None = None
    request_id: str | int | None = None
    session_id: str | int | None = None
    delay: int | float | None = None


class Layouts:
    """How the hash counts of a file relate to its block size, row by row and as a whole."""

    def __init__(self, block_size: int, *, prefix_only: bool) -> None:
        self.block_size = block_size
        self.prefix_only = prefix_only
        self.num_covered = 0
        self.num_short = 0
        self.first_short = 0
        self.fitting = Sizes()

    def identity(self, line: int, ids: tuple[int, ...] | None, input_len: int) -> BlockIds | None:
        """Blocks of one prompt; BadRow where there are more ids than blocks."""
        if not ids:
            return None
        missing = ceil_div(input_len, self.block_size) - len(ids)
        if missing < 0:
            raise hash_count(ids, input_len, self.block_size, sizes_by_ceil(input_len, len(ids)))
        if missing:
            self.num_short += 1
            self.first_short = self.first_short or line
        else:
            self.num_covered += 1
        if not self.num_covered:
            self.fitting.narrow(sizes_by_ceil(input_len, len(ids)))
        return BlockIds(ids=ids, block_size=self.block_size)

    def finish(self, source: Source, tally: Tally) -> None:
        """Refuse a file whose every row is short and fits another block size in use."""
        other = self.fitting.usual()
        if self.num_short and not self.num_covered and not self.prefix_only and other is not None:
            raise TraceError(
                f"no row's hash ids cover its input in blocks of {self.block_size}, "
                f"but all fit blocks of {other}",
                where=source.where(self.first_short),
                hint=f"--block-size {other}, or --prefix-only if only prefixes are hashed",
            )
        if self.num_short:
            tally.note(
                f"rows that hash only a prefix, the rest shared with nobody: {self.num_short:,}"
            )


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in file order; TraceError at the end where another block size was meant."""
    block_size = options.block_size or BLOCK_SIZE
    layouts = Layouts(block_size, prefix_only=options.prefix_only)
    parse = Parser(tally, layouts, NS_PER[options.time_unit or "ms"])
    yield from json_rows(source, tally, MooncakeRow, parse, "mooncake")
    layouts.finish(source, tally)


class Parser:
    """Rows of one file; the first one says whether it holds conversations turn by turn."""

    def __init__(self, tally: Tally, layouts: Layouts, unit_ns: int) -> None:
        self.tally = tally
        self.layouts = layouts
        self.unit_ns = unit_ns
        self.conversations: Conversations | None = None
        self.first = True

    def __call__(self, line: int, row: MooncakeRow) -> Row:
        input_len = token_count(row.input_length, "input_length")
        output_len = token_count(row.output_length, "output_length")
        identity = self.layouts.identity(line, row.hash_ids, input_len)
        name = "" if row.request_id is None else str(row.request_id)
        if self.first:
            self.first = False
            self.conversations = Conversations() if row.session_id is not None else None
        if self.conversations is not None:
            return self.turn(line, row, identity, name)
        if row.session_id is not None or row.delay is not None:
            raise BadRow("a session's turn in a file whose first row has none")
        return Row(self.time(row), input_len, output_len, line, name, identity=identity)

    def turn(self, line: int, row: MooncakeRow, identity: BlockIds | None, name: str) -> Row:
        """One turn of a conversation: what it adds, behind all that was said before."""
        assert self.conversations is not None
        if row.session_id is None:
            raise BadRow("the key 'session_id' is missing, unlike in the first row")
        session = str(row.session_id)
        t_ns = None if row.timestamp is None else self.time(row)
        turn = self.conversations.turn(session, t_ns, row.input_length, row.output_length, identity)
        delay_ns = None if row.delay is None else number_ns(row.delay, self.unit_ns, "delay")
        return Row(
            turn.t_ns,
            turn.input_len,
            row.output_length,
            line,
            name,
            session=session,
            identity=turn.identity,
            delay_ns=delay_ns if turn.follows else None,
        )

    def time(self, row: MooncakeRow) -> int:
        if row.timestamp is None:
            raise BadRow("the key 'timestamp' is missing")
        if isinstance(row.timestamp, float) and not row.timestamp.is_integer():
            self.tally.note(
                "timestamps have fractions: if they are seconds, not milliseconds, say --time-unit s"
            )
        return number_ns(row.timestamp, self.unit_ns, "timestamp")


def layout(keys: Sequence[str], sample: Any) -> str:
    """Whether rows are requests or turns, and whether they carry hashes."""
    del sample
    if "session_id" in keys:
        return "turns of conversations: each adds to what its session said before"
    return "with hash_ids" if "hash_ids" in keys else "without hash_ids in the first row"

"""Qwen-Bailian traces: seconds, lengths, chat trees, hashed blocks of 16 tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kvplan.replay.workloads.blocks import covering
from kvplan.replay.workloads.clock import NS_PER, number_ns
from kvplan.replay.workloads.jsonrows import json_rows
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import Row, token_count
from kvplan.replay.workloads.stream import Source
from kvplan.replay.workloads.tally import Tally

BLOCK_SIZE = 16
REMEMBERED_CHATS = 500_000


class BailianRow(msgspec.Struct, frozen=True, gc=False):
    chat_id: int
    parent_chat_id: int
    timestamp: int | float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


class Roots:
    """The first chat of each chat's conversation, for the most recent half a million or more."""

    def __init__(self, remembered: int = REMEMBERED_CHATS) -> None:
        self.remembered = remembered
        self.recent: dict[int, int] = {}
        self.older: dict[int, int] = {}

    def root(self, chat: int, parent: int) -> int:
        """Root of a chat; the parent itself where it lies outside the trace, the chat if it has none."""
        known = self.recent.get(parent, self.older.get(parent, parent))
        root = chat if parent < 0 else known
        if len(self.recent) >= self.remembered:
            self.recent, self.older = {}, self.recent
        self.recent[chat] = root
        return root


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in file order; every prompt is hashed whole, its last block padded."""
    block_size = options.block_size or BLOCK_SIZE
    unit_ns = NS_PER[options.time_unit or "s"]
    roots = Roots()

    def parse(line: int, row: BailianRow) -> Row:
        input_len = token_count(row.input_length, "input_length")
        return Row(
            number_ns(row.timestamp, unit_ns, "timestamp"),
            input_len,
            token_count(row.output_length, "output_length"),
            line,
            session=str(roots.root(row.chat_id, row.parent_chat_id)),
            identity=covering(row.hash_ids, input_len, block_size),
        )

    return json_rows(source, tally, BailianRow, parse, "bailian")


def layout(keys: Sequence[str], sample: Any) -> str:
    del keys, sample
    return "chat_id and parent_chat_id: times are seconds, blocks hold 16 tokens"

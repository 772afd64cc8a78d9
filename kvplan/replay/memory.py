"""What the scheduling model asks of KV memory."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as List
from typing import Protocol

from kvplan.replay.prefix_cache import Slots
from kvplan.replay.sequence import Part, Sequence


class KvMemory(Protocol):
    """Rows and slots of one replica. `slots` run over consecutive positions of one row."""

    page_size: int

    @property
    def available(self) -> int:
        """Tokens that can be allocated now."""

    @property
    def free_rows(self) -> int:
        """Requests that can get a row now."""

    def open_row(self, sequence: Sequence, prefix: List[Slots]) -> None:
        """Give a request a row that starts with a cached prefix."""

    def close_row(self, sequence: Sequence) -> None:
        """Take the row back; its slots were freed or belong to the prefix cache."""

    def extend(self, parts: List[Part]) -> Slots | None:
        """Allocate each part behind its prefix and write the rows; returns out_cache_loc."""

    def decode(self, sequences: Collection[Sequence], num_new_pages: int) -> Slots | None:
        """Give every request one more slot; returns out_cache_loc."""

    def reserve(self, sequences: Collection[Sequence], num_new_pages: int) -> Slots | None:
        """Give every request slots up to its `allocated` positions; returns the new ones."""

    def row_slots(self, sequence: Sequence, start: int, stop: int) -> Slots:
        """A copy of a row's positions `start .. stop`."""

    def write_row(self, sequence: Sequence, start: int, slots: Slots) -> None:
        """Replace the row's slots from a position on."""

    def free(self, slots: Slots) -> None:
        """Give back slots that start on a page; a page cut at the end goes whole."""

    def free_group_begin(self) -> None:
        """What is freed from now on comes back together at the group's end."""

    def free_group_end(self) -> None:
        """What was freed in the group can be allocated from now on."""


class StateMemory(KvMemory, Protocol):
    """Memory with slots of recurrent state beside the KV."""

    @property
    def available_states(self) -> int:
        """State slots that are free."""

    def alloc_state(self, rid: str | None) -> Slots | None:
        """One state slot for a request, or None."""

    def free_states(self, slots: Slots) -> None:
        """Give state slots back."""


class SlidingMemory(KvMemory, Protocol):
    """Memory in which each full slot has a sliding slot beside it until it leaves the window."""

    @property
    def full_available(self) -> int:
        """Tokens that the full side can still give."""

    @property
    def sliding_available(self) -> int:
        """Tokens that the sliding side can still give."""

    def free_full(self, slots: Slots) -> None:
        """Give back full slots whose sliding ones went before."""

    def free_sliding(self, slots: Slots) -> None:
        """Give back the sliding slots beside these full ones."""

    def move_sliding(self, kept: Slots, incoming: Slots) -> None:
        """Put the sliding slots of the incoming full slots beside the kept ones."""

"""Who gives way when a decode step does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvplan.replay.ratio import RETRACT_STEPS
from kvplan.replay.running import Running
from kvplan.replay.sequence import Sequence
from kvplan.replay.store import KvStore
from kvplan.units import ceil_div


class Retraction(NamedTuple):
    """Requests that go back to the queue, and the last one if not even that one fits."""

    retracted: tuple[Sequence, ...]
    aborted: tuple[Sequence, ...]


def retraction_order(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Whom to keep, most wanted first: many outputs, then a short prompt."""
    return sorted(
        sequences,
        key=lambda sequence: (sequence.outputs(), -sequence.prompt_len),
        reverse=True,
    )


def retract(running: Running, store: KvStore) -> Retraction:
    """Release requests from the end of the order, at least one, until the rest can decode."""
    order = retraction_order(running.sequences)
    retracted: list[Sequence] = []
    while len(order) > 1 and not (retracted and fits(order, store)):
        retracted.append(give_back(order, running, store))
    aborted: tuple[Sequence, ...] = ()
    if len(order) == 1 and not fits(order, store):
        aborted = (give_back(order, running, store),)
    running.sequences = dict.fromkeys(order)
    return Retraction(tuple(retracted), aborted)


def fits(sequences: list[Sequence], store: KvStore) -> bool:
    """Whether these requests can decode one step, after evicting what is needed."""
    page = store.page_size
    num_pages = sum(
        ceil_div(sequence.next_allocated(), page) - ceil_div(sequence.allocated(), page)
        for sequence in sequences
    )
    return store.reclaim(num_pages * page)


def give_back(order: list[Sequence], running: Running, store: KvStore) -> Sequence:
    """Release the last of the order, uncached, and make room for some steps of those left."""
    sequence = order.pop()
    running.leave([sequence])
    store.release(sequence, keep=False)
    store.reclaim(len(order) * RETRACT_STEPS)
    sequence.retract(store.cache.no_lock)
    return sequence

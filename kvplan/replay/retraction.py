"""Who gives way when a decode step does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kvplan.replay.ratio import RETRACT_STEPS
from kvplan.replay.running import Running
from kvplan.replay.sequence import Sequence
from kvplan.replay.store import KvStore


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
    running.reorder(order)
    retracted: list[Sequence] = []
    while len(order) > 1 and not (retracted and fits(running, store)):
        retracted.append(give_back(order, running, store))
    aborted: tuple[Sequence, ...] = ()
    if len(order) == 1 and not fits(running, store):
        aborted = (give_back(order, running, store),)
    return Retraction(tuple(retracted), aborted)


def fits(running: Running, store: KvStore) -> bool:
    """Whether the running requests can decode one step, after evicting what is needed."""
    num_pages, _ = running.demand()
    return store.reclaim(num_pages * store.page_size)


def give_back(order: list[Sequence], running: Running, store: KvStore) -> Sequence:
    """Release the last of the order, uncached, and make room for some steps of those left."""
    sequence = order.pop()
    running.leave((sequence,), launched=False)
    store.release(sequence, keep=False)
    store.reclaim(len(order) * RETRACT_STEPS)
    sequence.retract(store.cache.no_lock)
    return sequence

"""Who holds each slot of a recorded state; a state in which two hold one is refused with its line."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from kvplan.document import Document, FieldPath
from kvplan.state.checks import (
    NOBODY,
    Checker,
    check_free,
    check_rows,
    check_sizes,
    check_slots,
    check_state_slots,
    first_held,
)
from kvplan.state.recorded import HeldRow, RecordedState, Run

# marks beside NOBODY: the higher one names a page; SHARED is cached and in the row of a request
CACHED, SHARED, OWNED = 1, 2, 3


class Ownership(NamedTuple):
    """One mark for each slot, the padding page's included; empty for pools that are not there."""

    kv: bytearray
    sliding: bytearray
    state: bytearray


class Holder(NamedTuple):
    """A request that has a slot in its row, and at which position."""

    request: HeldRow
    position: int


def read_ownership(state: RecordedState, document: Document) -> Ownership:
    """Marks of all slots; InputError for rows, slots or pages that cannot be as the state says."""
    checker = Checker(state, document)
    check_sizes(checker)
    check_rows(checker)
    kv = kv_marks(checker)
    check_free(checker, "kv", state.kv, kv)
    sliding = bytearray()
    if state.sliding is not None:
        sliding = sliding_marks(checker, kv, state.sliding.tokens + state.page_size)
        check_free(checker, "sliding", state.sliding, sliding)
    return Ownership(kv, sliding, state_marks(checker))


def kv_marks(checker: Checker) -> bytearray:
    """Slots of the only pool or of the full side: the cache's, then each request's."""
    state = checker.state
    marks = bytearray(state.kv.tokens + state.page_size)
    for index, run in enumerate(state.cached):
        claim(checker, ("cached", index), run, marks, CACHED)
    for index, request in enumerate(state.requests):
        position = 0
        for turn, run in enumerate(request.slots):
            path = ("requests", index, "slots", turn)
            cached, own = split(run, request.cached_len - position)
            share(checker, path, cached, marks, request)
            claim(checker, path, own, marks, OWNED)
            position += run[1]
    return marks


def claim(checker: Checker, path: FieldPath, run: Run, marks: bytearray, what: int) -> None:
    """Mark slots that are nobody's yet."""
    if not run[1]:
        return
    check_slots(checker, path, run, len(marks))
    slot = first_held(marks, run)
    if slot is not None:
        names = ", ".join(described(checker.state, slot))
        raise checker.refuse(path, f"slot {slot} is held twice: {names}")
    mark(marks, run, what)


def share(checker: Checker, path: FieldPath, run: Run, marks: bytearray, request: HeldRow) -> None:
    """Mark the slots of a cached prefix, which are the cache's."""
    if not run[1]:
        return
    check_slots(checker, path, run, len(marks))
    first, count = run
    if (
        marks.count(CACHED, first, first + count) + marks.count(SHARED, first, first + count)
        < count
    ):
        slot = next(each for each in range(first, first + count) if marks[each] in (NOBODY, OWNED))
        problem = f"slot {slot} of the cached prefix of {request.name} is not in the cache"
        raise checker.refuse(path, problem)
    mark(marks, run, SHARED)


def sliding_marks(checker: Checker, kv: bytearray, num_slots: int) -> bytearray:
    """Sliding slots: each is what the full slot that maps to it is."""
    page_size = checker.state.page_size
    marks, mapped = bytearray(num_slots), bytearray(len(kv))
    for index, (first, peer, count) in enumerate(checker.state.full_to_swa):
        path: FieldPath = ("full_to_swa", index)
        check_slots(checker, path, (first, count), len(kv))
        check_slots(checker, path, (peer, count), num_slots)
        if first % page_size != peer % page_size:
            problem = f"slot {first} maps to slot {peer}, at another offset of its page"
            raise checker.refuse(path, problem)
        refuse_second_mapping(checker, path, (first, peer, count), mapped, marks)
        nobody = kv.find(NOBODY, first, first + count)
        if nobody >= 0:
            raise checker.refuse(path, f"slot {nobody} has a sliding slot and nobody holds it")
        marks[peer : peer + count] = kv[first : first + count]
        mark(mapped, (first, count), 1)
    return marks


def refuse_second_mapping(
    checker: Checker,
    path: FieldPath,
    run: tuple[int, int, int],
    mapped: bytearray,
    marks: bytearray,
) -> None:
    """Both ends of a mapping are met once."""
    first, peer, count = run
    twice = mapped.find(1, first, first + count)
    if twice >= 0:
        raise checker.refuse(path, f"slot {twice} is mapped twice")
    held = first_held(marks, (peer, count))
    if held is not None:
        raise checker.refuse(path, f"two slots map to sliding slot {held}")


def state_marks(checker: Checker) -> bytearray:
    """Slots of recurrent state: the cache's and each request's."""
    state = checker.state
    if state.state is None:
        for index, request in enumerate(state.requests):
            if request.state_slot or request.tracking_slots:
                problem = f"{request.name} has state slots and the state has none"
                raise checker.refuse(("requests", index), problem)
        return bytearray()
    marks = bytearray(state.state.slots + 1)
    seen = bytearray(len(marks))
    for path, run, what in state_claims(state):
        check_state_slots(checker, path, run, seen)
        mark(marks, run, what)
    return marks


def state_claims(state: RecordedState) -> Iterator[tuple[FieldPath, Run, int]]:
    """Every list of state slots: the cache's, the requests', the free ones."""
    assert state.state is not None
    for index, run in enumerate(state.state.cached):
        yield ("state", "cached", index), run, CACHED
    for index, request in enumerate(state.requests):
        for slot in (request.state_slot, *request.tracking_slots):
            if slot is not None:
                yield ("requests", index), (slot, 1), OWNED
    for index, run in enumerate(state.state.free):
        yield ("state", "free", index), run, NOBODY


def mark(marks: bytearray, run: Run, what: int) -> None:
    first, count = run
    marks[first : first + count] = bytes([what]) * count


def split(run: Run, num_cached: int) -> tuple[Run, Run]:
    """The cached head of a run and the rest of it; either may be empty."""
    first, count = run
    cached = min(max(num_cached, 0), count)
    return (first, cached), (first + cached, count - cached)


def described(state: RecordedState, slot: int) -> list[str]:
    """Who has a slot, in words."""
    words = [f"{each.request.name} at position {each.position}" for each in holders(state, slot)]
    if is_cached(state, slot):
        words.insert(0, "the prefix cache")
    return words if len(words) > 1 else [f"{words[0]}, twice"]


def holders(state: RecordedState, slot: int) -> Iterator[Holder]:
    """Every request that has a slot of the main pool in its row."""
    for request in state.requests:
        starts = accumulate((count for _, count in request.slots), initial=0)
        for (first, count), start in zip(request.slots, starts, strict=False):
            if first <= slot < first + count:
                yield Holder(request, start + slot - first)


def is_cached(state: RecordedState, slot: int) -> bool:
    """Whether the prefix cache has a slot."""
    return any(first <= slot < first + count for first, count in state.cached)

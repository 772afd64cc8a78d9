"""Valid states made up from a seed, and what each of their pages was made to be."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import msgspec

from kvplan.id_runs import ids, mapped_runs, runs
from kvplan.report.occupancy import PageClass
from kvplan.state.recorded import (
    HeldRow,
    PagedPool,
    RecordedState,
    StateSlots,
)


class Made(NamedTuple):
    """A state, the class of each page of its main pool, and the slots of each request."""

    state: RecordedState
    classes: list[PageClass]
    slots: dict[str, list[int]]


def made_state(seed: int) -> Made:
    """Pages dealt out at random; whoever holds a page fills it, but the last one of a request."""
    random = Random(seed)
    page_size = random.choice([1, 4, 16])
    num_pages = random.randint(1, 60)
    pages = list(range(1, num_pages + 1))
    random.shuffle(pages)
    classes = [PageClass.PADDING] + [PageClass.LOST] * num_pages
    cached = take(pages, random.randint(0, num_pages // 3))
    free, staged = take(pages, random.randint(0, len(pages))), take(pages, random.randint(0, 3))
    for page in cached:
        classes[page] = PageClass.CACHED
    for page in free:
        classes[page] = PageClass.FREE
    for page in staged:
        classes[page] = PageClass.STAGED
    rows: list[HeldRow] = []
    slots: dict[str, list[int]] = {}
    for number in range(random.randint(0, 5)):
        shared = cached[: random.randint(0, len(cached))]
        own = take(pages, random.randint(0, 4))
        held = slots_of([*shared, *own], page_size)
        if own:
            held = held[: len(held) - random.randrange(page_size)]
        for page in shared:
            classes[page] = PageClass.SHARED
        for page in own:
            classes[page] = PageClass.USED
        name = f"request-{number}"
        slots[name] = held
        seq_len = len(held) - random.randint(0, len(held) - len(shared) * page_size)
        rows.append(
            HeldRow(
                rid=name,
                row=number * 2 + 1,
                seq_len=seq_len,
                cached_len=len(shared) * page_size,
                slots=runs(held),
                state_slot=number + 1 if seed % 2 else None,
            )
        )
    state = RecordedState(
        page_size=page_size,
        rows=12,
        row_width=64 * 16,
        kv=PagedPool(
            tokens=num_pages * page_size, free_pages=runs(free), staged_pages=runs(staged)
        ),
        cached=runs(slots_of(cached, page_size)),
        requests=tuple(rows),
        state=StateSlots(slots=9, free=runs(range(6, 10))) if seed % 2 else None,
    )
    return Made(with_sliding(state, random) if seed % 3 else state, classes, slots)


def with_sliding(state: RecordedState, random: Random) -> RecordedState:
    """The same state with a sliding side: some of the held pages have one there."""
    page_size = state.page_size
    held = sorted(
        {*ids(state.cached)} | {slot for row in state.requests for slot in ids(row.slots)}
    )
    full_pages = sorted({slot // page_size for slot in held})
    kept = random.sample(full_pages, random.randint(0, len(full_pages)))
    num_pages = len(kept) + random.randint(1, 9)
    sliding_pages = random.sample(range(1, num_pages + 1), len(kept))
    peer = dict(zip(kept, sliding_pages, strict=True))
    pairs = [
        (slot, peer[slot // page_size] * page_size + slot % page_size)
        for slot in held
        if slot // page_size in peer
    ]
    free = [page for page in range(1, num_pages + 1) if page not in sliding_pages]
    return msgspec.structs.replace(
        state,
        sliding=PagedPool(tokens=num_pages * page_size, free_pages=runs(free)),
        full_to_swa=mapped_runs(pairs),
    )


def take(pages: list[int], count: int) -> list[int]:
    """The last pages, removed from the list."""
    return [pages.pop() for _ in range(min(count, len(pages)))]


def slots_of(pages: list[int], page_size: int) -> list[int]:
    return [page * page_size + offset for page in pages for offset in range(page_size)]

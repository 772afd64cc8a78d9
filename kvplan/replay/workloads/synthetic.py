"""Made-up workloads from a YAML file: arrivals, lengths, shared prefixes, sessions, one seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Annotated, Any

import msgspec

from kvplan.errors import InputError
from kvplan.replay.requests import BlockIds
from kvplan.replay.runs import OWN_IDS, Said
from kvplan.replay.workloads.arrivals import Arrivals, arrival_times
from kvplan.replay.workloads.clock import NS_PER
from kvplan.replay.workloads.lengths import (
    Draw,
    Lengths,
    SomeLengths,
    drawer,
    weighted,
    zipf_weights,
)
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.rows import MAX_TIME_NS, Row
from kvplan.replay.workloads.stream import Source, yaml_document
from kvplan.replay.workloads.tally import Tally

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000_000)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class SharedPrefixes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Groups of requests with the same first `tokens`: a system prompt, a document.

    `share` of the requests (or sessions) belong to a group; `popularity` above 0 makes the first
    groups more popular, as 1 / rank ** popularity.
    """

    groups: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    tokens: Lengths
    share: Share = 1.0
    popularity: Annotated[float, msgspec.Meta(ge=0, le=20)] = 0.0


class Sessions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Conversations: each turn's prompt is everything said before plus its own input.

    A turn comes `think_ms` after the answer before it. A session ends early where its next turn
    would not fit `max_context`.
    """

    turns: Lengths
    think_ms: Lengths = 0
    max_context: Annotated[int, msgspec.Meta(ge=1, le=1 << 24)] = 131_072


class Synthetic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole made-up workload. `input` counts a request's own tokens, without what it shares."""

    requests: Count
    arrivals: Arrivals
    input: SomeLengths
    output: Lengths
    description: str = ""
    seed: int = 0
    max_new: Lengths | None = None
    shared_prefixes: SharedPrefixes | None = None
    sessions: Sessions | None = None


def read(source: Source, tally: Tally, options: ReadOptions) -> Iterator[Row]:
    """Rows in order of arrival; the turns of a session directly after its first."""
    del options
    return generate(load(source), tally)


def load(source: Source) -> Synthetic:
    """The workload that a YAML file describes; InputError with its line where it is not one."""
    return yaml_document(source).convert(Synthetic)


def generate(workload: Synthetic, tally: Tally) -> Iterator[Row]:
    """The rows of a workload, the same for the same seed."""
    draws = Draws(workload)
    times = arrival_times(workload.arrivals, f"{workload.seed}:arrivals")
    make = conversation if workload.sessions else single
    number = 0
    while number < workload.requests:
        t_ns = next(times)
        if t_ns > MAX_TIME_NS:
            raise InputError(f"request {number + 1} would arrive after more than 146 years")
        for row in make(draws, t_ns, number + 1):
            tally.read += 1
            yield row
            number += 1
            if number == workload.requests:
                return


class Draws:
    """The random choices of one workload, each from a stream of its own."""

    def __init__(self, workload: Synthetic) -> None:
        self.workload = workload
        stream = self.stream
        self.input_len = stream("input", workload.input)
        self.output_len = stream("output", workload.output)
        self.max_new = None if workload.max_new is None else stream("max_new", workload.max_new)
        self.prefix = prefixes(workload)
        sessions = workload.sessions
        self.turns = stream("turns", sessions.turns if sessions else 1)
        self.think_ms = stream("think", sessions.think_ms if sessions else 0)

    def stream(self, name: str, lengths: Lengths) -> Callable[[], int]:
        random, draw = Random(f"{self.workload.seed}:{name}"), drawer(lengths)
        return lambda: draw(random)


def prefixes(workload: Synthetic) -> Callable[[], tuple[int, int]]:
    """Draws (group, tokens of its prefix); no tokens where a request shares none."""
    shared = workload.shared_prefixes
    if shared is None:
        return lambda: (0, 0)
    sizes, sizing = Random(f"{workload.seed}:prefix tokens"), drawer(shared.tokens)
    tokens = [sizing(sizes) for _ in range(shared.groups)]
    random = Random(f"{workload.seed}:prefix groups")
    pick: Draw = weighted(range(shared.groups), zipf_weights(shared.groups, shared.popularity))

    def draw() -> tuple[int, int]:
        if random.random() >= shared.share:
            return 0, 0
        group = pick(random)
        return group, tokens[group]

    return draw


def single(draws: Draws, t_ns: int, number: int) -> Iterator[Row]:
    """One request; its shared prefix is a single block as long as the prefix."""
    group, prefix_len = draws.prefix()
    own = max(draws.input_len(), 1)
    identity = None
    if prefix_len:
        identity = BlockIds(ids=(group,), block_size=prefix_len, namespace=f"prefix {group}")
    yield Row(
        t_ns,
        prefix_len + own,
        draws.output_len(),
        number,
        max_new=draws.max_new() if draws.max_new else None,
        identity=identity,
    )


def conversation(draws: Draws, t_ns: int, number: int) -> Iterator[Row]:
    """The turns of one session; all carry the arrival of the first, later ones a delay."""
    sessions = draws.workload.sessions
    assert sessions is not None
    group, prefix_len = draws.prefix()
    said = Said(number)
    said.add(group * OWN_IDS, prefix_len)
    for turn in range(max(draws.turns(), 1)):
        own, output_len = max(draws.input_len(), 1), draws.output_len()
        delay_ns = draws.think_ms() * NS_PER["ms"] if turn else None
        if turn and said.length + own + output_len > sessions.max_context:
            return
        said.add_own(own)
        input_len = said.length
        said.add_own(output_len)
        yield Row(
            t_ns,
            input_len,
            output_len,
            number + turn,
            max_new=draws.max_new() if draws.max_new else None,
            session=f"session {number}",
            identity=said.tokens(),
            delay_ns=delay_ns,
        )


def layout(keys: Sequence[str], sample: Any) -> str:
    del sample
    parts = [name for name in ("shared_prefixes", "sessions") if name in keys]
    return f"generated, with {' and '.join(parts).replace('_', ' ')}" if parts else "generated"

"""What the requests of an event trace hold, to find operations that contradict earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from kvplan.replay.workloads.operations import (
    Alloc,
    Decode,
    Evict,
    Extend,
    Follow,
    Free,
    FreeStates,
    Leave,
    Move,
    Operation,
    Release,
    Reserve,
    Span,
    TakeState,
)
from kvplan.replay.workloads.rows import INCONSISTENT, MAX_TOKENS, BadRow, shown
from kvplan.units import ceil_page


class Ledger:
    """Tokens by live request and by those that left them in the cache; a refusal changes nothing.

    `page_size` is that of the pools, where the trace says it.
    """

    def __init__(self, page_size: int | None = None) -> None:
        self.page_size = page_size or MAX_TOKENS
        self.seq_lens: dict[str, int] = {}
        self.left: dict[str, int] = {}
        self.states: set[int] = set()
        self._takers: dict[type[Operation], Callable[[Any], None]] = {
            Alloc: self.alloc,
            Extend: self.extend,
            Decode: self.decode,
            Reserve: self.reserve,
            Follow: self.follow,
            Release: self.release,
            Move: self.move,
            TakeState: self.take_state,
            FreeStates: self.free_states,
            Leave: self.leave,
            Free: self.free,
            Evict: lambda _: None,
        }

    def take(self, operation: Operation) -> None:
        """Apply one operation; BadRow where it cannot follow those before it."""
        requests = getattr(operation, "requests", ())
        if len(set(requests)) != len(requests):
            raise contradiction("a request is named twice in one operation")
        if not isinstance(operation, Alloc):
            self.need_rows(requests)
        self._takers[type(operation)](operation)

    def need_rows(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.seq_lens:
                raise contradiction(
                    f"request {shown(name)} has no row", "it needs an 'alloc' before"
                )

    def need_spans(self, spans: Iterable[Span]) -> None:
        """Spans of tokens that the request has, or had when it left."""
        for name, start, stop in spans:
            held = self.seq_lens.get(name, self.left.get(name))
            if held is None:
                raise contradiction(f"request {shown(name)} holds no tokens")
            # a page that ends a span goes whole, with positions that hold no token yet
            if not 0 <= start < stop <= ceil_page(held, self.page_size) or start >= held:
                raise contradiction(
                    f"request {shown(name)} has no tokens {start} to {stop}", f"it holds {held}"
                )

    def alloc(self, operation: Alloc) -> None:
        if operation.prefixes and len(operation.prefixes) != len(operation.requests):
            raise contradiction(
                f"{len(operation.requests)} requests, {len(operation.prefixes)} prefixes"
            )
        for name in operation.requests:
            if name in self.seq_lens:
                raise contradiction(f"request {shown(name)} has a row already")
            if name in self.left:
                raise contradiction(
                    f"request {shown(name)} left, and its tokens are still cached",
                    "take another name, such as " + shown(f"{name}#2"),
                )
        for prefix in operation.prefixes:
            self.need_spans(prefix)
        self.seq_lens.update(dict.fromkeys(operation.requests, 0))
        for name, prefix in zip(operation.requests, operation.prefixes, strict=False):
            self.seq_lens[name] = sum(stop - start for _, start, stop in prefix)

    def extend(self, operation: Extend) -> None:
        names, prefix_lens, seq_lens = (
            operation.requests,
            operation.prefix_lens,
            operation.seq_lens,
        )
        if not len(names) == len(prefix_lens) == len(seq_lens):
            raise contradiction(
                f"{len(names)} requests, {len(prefix_lens)} prefix_lens, {len(seq_lens)} seq_lens"
            )
        for name, prefix_len, seq_len in zip(names, prefix_lens, seq_lens, strict=True):
            held = self.seq_lens[name]
            if held and prefix_len != held:
                raise contradiction(
                    f"request {shown(name)} holds {held} tokens, but its prefix_len is {prefix_len}"
                )
            refuse_backwards(name, prefix_len, seq_len)
        self.seq_lens.update(zip(names, seq_lens, strict=True))

    def decode(self, operation: Decode) -> None:
        for name in operation.requests:
            if not 0 < self.seq_lens[name] < MAX_TOKENS:
                raise contradiction(f"request {shown(name)} decodes without a prompt")
        for name in operation.requests:
            self.seq_lens[name] += 1

    def reserve(self, operation: Reserve) -> None:
        names, seq_lens = operation.requests, operation.seq_lens
        if len(names) != len(seq_lens):
            raise contradiction(f"{len(names)} requests, {len(seq_lens)} seq_lens")
        for name, seq_len in zip(names, seq_lens, strict=True):
            refuse_backwards(name, self.seq_lens[name], seq_len)
        self.seq_lens.update(zip(names, seq_lens, strict=True))

    def follow(self, operation: Follow) -> None:
        self.need_rows([operation.request])
        self.need_spans(operation.spans)

    def release(self, operation: Release) -> None:
        self.need_spans(operation.spans)

    def move(self, operation: Move) -> None:
        self.need_spans((*operation.kept, *operation.incoming))

    def take_state(self, operation: TakeState) -> None:
        if operation.state in self.states:
            raise contradiction(f"state {operation.state} is out already")
        self.states.add(operation.state)

    def free_states(self, operation: FreeStates) -> None:
        for state in operation.states:
            if state not in self.states:
                raise contradiction(f"state {state} is not out")
        self.states.difference_update(operation.states)

    def leave(self, operation: Leave) -> None:
        for name in operation.requests:
            self.left[name] = self.seq_lens.pop(name)

    def free(self, operation: Free) -> None:
        for name in operation.requests:
            del self.seq_lens[name]


def refuse_backwards(name: str, held: int, seq_len: int) -> None:
    if seq_len < held:
        raise contradiction(f"request {shown(name)} goes back from {held} to {seq_len} tokens")


def contradiction(problem: str, hint: str | None = None) -> BadRow:
    return BadRow(problem, reason=INCONSISTENT, hint=hint)

"""What the requests of an event trace hold, to find operations that contradict earlier ones."""

from __future__ import annotations

from kvplan.replay.workloads.operations import Alloc, Decode, Evict, Extend, Free, Operation
from kvplan.replay.workloads.rows import INCONSISTENT, MAX_TOKENS, BadRow, shown


class Ledger:
    """Tokens by live request; a refused operation changes nothing."""

    def __init__(self) -> None:
        self.seq_lens: dict[str, int] = {}

    def take(self, operation: Operation) -> None:
        """Apply one operation; BadRow where it cannot follow those before it."""
        if isinstance(operation, Evict):
            return
        if len(set(operation.requests)) != len(operation.requests):
            raise contradiction("a request is named twice in one operation")
        if not isinstance(operation, Alloc):
            self.need_rows(operation.requests)
        match operation:
            case Alloc():
                self.alloc(operation)
            case Extend():
                self.extend(operation)
            case Decode():
                self.decode(operation)
            case Free():
                self.free(operation)

    def need_rows(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self.seq_lens:
                raise contradiction(
                    f"request {shown(name)} has no row", "it needs an 'alloc' before"
                )

    def alloc(self, operation: Alloc) -> None:
        for name in operation.requests:
            if name in self.seq_lens:
                raise contradiction(f"request {shown(name)} has a row already")
        self.seq_lens.update(dict.fromkeys(operation.requests, 0))

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
        grown = list(zip(names, prefix_lens, seq_lens, strict=True))
        for name, prefix_len, seq_len in grown:
            held = self.seq_lens[name]
            if held and prefix_len != held:
                raise contradiction(
                    f"request {shown(name)} holds {held} tokens, but its prefix_len is {prefix_len}"
                )
            if seq_len < prefix_len:
                raise contradiction(
                    f"request {shown(name)} goes back from {prefix_len} to {seq_len} tokens"
                )
        self.seq_lens.update({name: seq_len for name, _, seq_len in grown})

    def decode(self, operation: Decode) -> None:
        for name in operation.requests:
            if not 0 < self.seq_lens[name] < MAX_TOKENS:
                raise contradiction(f"request {shown(name)} decodes without a prompt")
        for name in operation.requests:
            self.seq_lens[name] += 1

    def free(self, operation: Free) -> None:
        for name in operation.requests:
            del self.seq_lens[name]


def contradiction(problem: str, hint: str | None = None) -> BadRow:
    return BadRow(problem, reason=INCONSISTENT, hint=hint)

"""One request inside the scheduler: how far it is, and what it holds."""

from __future__ import annotations

from typing import NamedTuple

from kvplan.replay.keys import Key
from kvplan.replay.prefix_cache import Lock, Node


class Lockstep:
    """Decode steps that the running batch launched, and those whose result is taken in.

    Every running request grows with each of them, so its lengths are kept relative to these two.
    """

    __slots__ = ("collected", "launched")

    def __init__(self) -> None:
        self.launched = 0
        self.collected = 0


class Sequence:
    """A request's lengths in tokens, its cached prefix and its lock on it.

    `target` outputs end it; `max_new` is its clipped wish. `prefix_len .. stop` is its latest
    prefill part; the first `protected_len` slots of its row belong to the prefix cache, whose
    path down to `lock.node` it keeps. `node` is where its latest match ended.
    """

    __slots__ = (
        "_committed",
        "_lockstep",
        "_outputs",
        "arrival_ns",
        "branch_len",
        "counted_len",
        "end_tick",
        "finished",
        "holds_row",
        "key",
        "lock",
        "matched_len",
        "max_new",
        "node",
        "num_parts",
        "num_retractions",
        "prefix_len",
        "prompt_len",
        "protected_len",
        "retracted",
        "rid",
        "row",
        "session",
        "sliding_start",
        "stop",
        "target",
    )

    def __init__(
        self, rid: str, key: Key, prompt_len: int, max_new: int, output_len: int, root: Node
    ) -> None:
        self.rid = rid
        self.key = key
        self.prompt_len = prompt_len
        self.max_new = max_new
        self.target = max(1, min(output_len, max_new))
        self.prefix_len = 0
        self.matched_len = 0
        self.stop = 0
        self.protected_len = 0
        self.counted_len = 0
        self.branch_len = 0
        self.sliding_start = 0
        self.num_parts = 0
        self.node = root
        self.lock = Lock(root)
        self.holds_row = False
        self.row = 0
        self.end_tick = -1
        self.arrival_ns = 0
        self.session: str | None = None
        self.finished = False
        self.retracted = False
        self.num_retractions = 0
        self._lockstep: Lockstep | None = None
        self._committed = 0
        self._outputs = 0

    @property
    def outputs(self) -> int:
        """Tokens generated so far, as far as their results are taken in."""
        if self._lockstep is None:
            return self._outputs
        return self._outputs + self._lockstep.collected

    @property
    def committed(self) -> int:
        """Tokens whose slots it holds."""
        if self._lockstep is None:
            return self._committed
        return self._committed + self._lockstep.launched

    @property
    def in_lockstep(self) -> bool:
        """Whether it is in the running batch."""
        return self._lockstep is not None

    @property
    def decoded_before(self) -> bool:
        """Whether a decode step was launched for it before the latest one."""
        return self.committed > self.stop + 1

    @property
    def seq_len(self) -> int:
        """Prompt and outputs so far: what a prefill has to cover."""
        return self.prompt_len + self.outputs

    @property
    def kept_len(self) -> int:
        """Tokens that stay in the cache after it has finished."""
        return min(self.committed, self.prompt_len + min(self.target, self.max_new))

    @property
    def ends_by_length(self) -> bool:
        """Whether the end can be foreseen: it stops at its wish, not at a stop token."""
        return self.target >= self.max_new

    def commit(self, num_tokens: int) -> None:
        """A prefill part gave it slots up to here."""
        self._committed = num_tokens

    def add_first_output(self) -> None:
        """A prefill's result: one token."""
        self._outputs += 1

    def join(self, lockstep: Lockstep) -> None:
        """From now on it grows with every decode step."""
        self._committed -= lockstep.launched
        self._outputs -= lockstep.collected
        self._lockstep = lockstep

    def leave(self) -> None:
        """It takes no further part in decode steps."""
        self._committed, self._outputs = self.committed, self.outputs
        self._lockstep = None

    def end(self) -> None:
        """Its last output came."""
        self._outputs = self.target
        self.finished = True

    def retract(self, root: Node) -> None:
        """Its slots are gone; it will prefill prompt and outputs again."""
        self.retracted = True
        self.num_retractions += 1
        self.prefix_len = self.protected_len = self.counted_len = self.stop = 0
        self.branch_len = self.sliding_start = self.num_parts = 0
        self.node = root
        self.lock = Lock(root)
        self._committed = 0


class Part(NamedTuple):
    """The positions `prefix_len .. stop` that one prefill batch computes of a request."""

    sequence: Sequence
    prefix_len: int
    stop: int
    is_middle: bool

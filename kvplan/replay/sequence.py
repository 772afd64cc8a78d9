"""One request inside the scheduler: how far it is, and what it holds."""

from __future__ import annotations

import msgspec

from kvplan.replay.keys import Key
from kvplan.replay.lockstep import Lockstep
from kvplan.replay.prefix_cache import Lock, Slots
from kvplan.units import ceil_page


class Sequence:
    """A request's lengths in tokens, its cached prefix and its lock on it.

    `target` outputs end it; `max_new` is its clipped wish. `prefix_len .. stop` is its latest
    prefill part; the first `protected_len` slots of its row belong to the prefix cache, whose
    path down to `lock.node` it keeps. While it decodes it grows with `lockstep`. `node` is where
    its latest match ended, `states` its slots of recurrent state.

    What only some servers need is set by whoever needs it: `matched_len` by the queue,
    `sliding_start` by the store, `row` and `filled` by the memory (its line, and how many
    positions of it have slots).
    """

    matched_len: int
    sliding_start: int
    row: int
    filled: int

    __slots__ = (
        "_allocated",
        "_committed",
        "_joined",
        "_outputs",
        "arrival_ns",
        "branch_len",
        "counted_len",
        "end_tick",
        "filled",
        "finished",
        "holds_row",
        "key",
        "lock",
        "lockstep",
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
        "states",
        "stop",
        "target",
    )

    def __init__(
        self,
        rid: str,
        key: Key,
        prompt_len: int,
        max_new: int,
        output_len: int,
        no_lock: Lock,
        arrival_ns: int = 0,
        session: str | None = None,
    ) -> None:
        self.rid = rid
        self.key = key
        self.prompt_len = prompt_len
        self.max_new = max_new
        self.target = (output_len if output_len < max_new else max_new) or 1
        self.arrival_ns = arrival_ns
        self.session = session
        self.holds_row = False
        self.states: tuple[Slots, ...] = ()
        self.end_tick = -1
        self.finished = False
        self.retracted = False
        self.num_retractions = 0
        self.lockstep: Lockstep | None = None
        self._joined = 0
        self._outputs = 0
        self._start_afresh(no_lock)

    def _start_afresh(self, no_lock: Lock) -> None:
        """Nothing is computed, nothing is held."""
        self.prefix_len = 0
        self.stop = 0
        self.num_parts = 0
        self.protected_len = 0
        self.counted_len = 0
        self.branch_len = 0
        self.node = no_lock.node
        self.lock = no_lock
        self._committed = 0
        self._allocated = 0

    def outputs(self) -> int:
        """Tokens generated so far, as far as their results are taken in."""
        step = self.lockstep
        return self._outputs if step is None else self._outputs + step.generated

    def committed(self) -> int:
        """Tokens of prompt and answer that have a slot for good."""
        step = self.lockstep
        return self._committed if step is None else self._committed + step.committed

    def allocated(self) -> int:
        """Positions with a slot: with speculation some are reserved beyond the committed ones."""
        step = self.lockstep
        if step is None or step.launched == self._joined:
            return self._allocated
        if not step.reserve:
            return self.committed()
        return ceil_page(self._committed + step.reserved, step.page_size)

    def decoded_before(self) -> bool:
        """Whether a decode step was launched for it before the latest one."""
        return self.lockstep is not None and self.lockstep.launched > self._joined + 1

    def seq_len(self) -> int:
        """Prompt and outputs so far: what a prefill has to cover."""
        step = self.lockstep
        return self.prompt_len + self._outputs + (0 if step is None else step.generated)

    def kept_len(self) -> int:
        """Tokens that stay in the cache after it has finished."""
        end = self.prompt_len + (self.target if self.target <= self.max_new else self.max_new)
        committed = self.committed()
        return end if end < committed else committed

    def commit(self, num_tokens: int) -> None:
        """A prefill part gave it slots up to here."""
        self._committed = self._allocated = num_tokens
        self.num_parts += 1

    def add_first_output(self) -> int:
        """A prefill's result: one token. How many are missing to the target."""
        self._outputs += 1
        return self.target - self.outputs()

    def join(self, lockstep: Lockstep) -> tuple[int, int]:
        """From now on it grows with every decode step; committed and outputs relative to these."""
        committed = self._committed = self._committed - lockstep.committed
        outputs = self._outputs = self._outputs - lockstep.generated
        self._joined = lockstep.launched
        self.lockstep = lockstep
        return committed, outputs

    def leave(self) -> tuple[int, int]:
        """It takes no further part in decode steps; the same two lengths as they were within."""
        step, committed, outputs = self.lockstep, self._committed, self._outputs
        assert step is not None, "only running requests leave"
        self._allocated = self.allocated()
        self._committed = committed + step.committed
        self._outputs = outputs + step.generated
        self.lockstep = None
        return committed, outputs

    def end(self, late_tokens: int = 0) -> None:
        """Its last output came; `late_tokens` were committed after it had left the batch."""
        self._committed += late_tokens
        self._outputs = self.target
        self.finished = True

    def retract(self, no_lock: Lock) -> None:
        """Its slots are gone; it will prefill prompt and outputs again."""
        self.retracted = True
        self.num_retractions += 1
        self._start_afresh(no_lock)


class Part(msgspec.Struct, frozen=True, gc=False):
    """The positions `prefix_len .. stop` that one prefill batch computes of a request."""

    sequence: Sequence
    prefix_len: int
    stop: int
    is_middle: bool

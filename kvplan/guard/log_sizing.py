"""The sizings that a log is compared with: what its memory gives, and how its own tokens are laid out."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.errors import KvplanError
from kvplan.guard.log_memory import Measured
from kvplan.sizing.budget import Memory
from kvplan.sizing.memory import MemoryEstimate
from kvplan.sizing.plan import NoStart, Plan, plan_launch
from kvplan.sizing.resolved import Resolved
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec

MOST_TOKENS = 10**12
MOST_SLOTS = 10**9
AMPLE = Memory(float(1 << 20), float(1 << 20))


class Sizing(msgspec.Struct, frozen=True):
    """A resolved launch without its memory."""

    model: ModelSpec
    draft: ModelSpec | None
    gpu: GpuSpec
    resolved: Resolved

    def changed(self, **changes: Any) -> Sizing:
        """The same with other resolved arguments."""
        resolved = msgspec.structs.replace(self.resolved, **changes)
        return msgspec.structs.replace(self, resolved=resolved)

    def in_memory(self, memory: Memory) -> Plan | None:
        """What it gets in a given memory; None where it does not start."""
        try:
            outcome = plan_launch(self.model, self.gpu, self.resolved, memory, self.draft)
        except KvplanError:
            return None
        return outcome if isinstance(outcome, Plan) else None

    def at_tokens(self, tokens: int, slots: int | None) -> Plan | None:
        """The pools of so many tokens and state slots, whatever the memory."""
        whole_pages = tokens % self.resolved.page_size == 0
        if not 0 < tokens <= MOST_TOKENS or not 0 < (slots or 1) <= MOST_SLOTS:
            return None
        if not whole_pages and self.model.compressed is not None:
            return None
        changes: dict[str, Any] = {"max_total_tokens": tokens}
        if not whole_pages:
            changes["page_size"] = 1
        if slots is not None:
            changes["max_mamba_cache_size"] = slots * self.resolved.widths.attn_dp
        plan = self.changed(**changes).in_memory(AMPLE)
        return plan if plan is not None and plan.tokens == tokens else None


def sizing_of(outcome: Plan | NoStart) -> Sizing:
    """The launch behind an outcome."""
    return Sizing(outcome.model, outcome.draft, outcome.gpu, outcome.resolved)


def memory_bounds(measured: Measured, estimate: MemoryEstimate) -> tuple[Memory, Memory]:
    """The least and the most that may have been free: by the printed digits, else by the weights' range."""
    if measured.complete:
        return memory_of(measured, -1), memory_of(measured, 1)
    pre = estimate.memory.pre_load_gib
    return Memory(pre, estimate.low_post_gib), Memory(pre, estimate.high_post_gib)


def memory_of(measured: Measured, lean: int) -> Memory:
    inputs = measured.inputs(lean)
    assert inputs.free_before_gib is not None
    assert inputs.free_after_gib is not None
    return Memory(inputs.free_before_gib, inputs.free_after_gib)

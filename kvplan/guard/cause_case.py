"""Everything that is known when the cause of a difference is looked for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from kvplan.guard.log_memory import Measured
from kvplan.guard.log_rows import Row
from kvplan.guard.log_sizing import Sizing
from kvplan.guard.server_log import Event, ServerLog
from kvplan.planner import Launch, Planned
from kvplan.sizing.budget import Memory
from kvplan.sizing.plan import Plan
from kvplan.units import GIB

READ_AGAIN_GIB = 0.12  # small allocations between the engine's two readings of free memory


class Case(msgspec.Struct, frozen=True):
    """A log, the launch and plan that it is held against, and the log's own tokens laid out."""

    log: ServerLog
    launch: Launch
    sizing: Sizing
    planned: Planned
    measured: Measured
    least: Memory
    most: Memory
    layout: Plan | None
    tokens: int | None
    slots: int | None
    """state slots of the layout: the log's, else the plan's"""

    @property
    def logged_slots(self) -> bool:
        return self.log.get("max_mamba_cache_size") is not None

    @property
    def plan(self) -> Plan | None:
        """The plan where it starts."""
        outcome = self.planned.outcome
        return outcome if isinstance(outcome, Plan) else None

    @property
    def cell(self) -> float:
        """Bytes of one token; 0 where the plan does not start."""
        return float(self.plan.stages[0].pool.cell.num_bytes) if self.plan else 0.0

    def gives(self, field: str) -> bool:
        """Whether the launch itself sets an argument."""
        return getattr(self.launch.args, field) is not None

    def event(self, kind: str) -> Event | None:
        return next((event for event in self.log.events if event.kind == kind), None)

    def missing_gib(self, row: Row) -> float:
        """GiB of tokens that the memory allows at least and the log does not have; negative beyond the most."""
        if row.observed < row.low:
            return (row.low - row.observed) * self.cell / GIB
        return min(0.0, (row.high - row.observed) * self.cell / GIB)


Explain = Callable[[Case, Row], str | None]

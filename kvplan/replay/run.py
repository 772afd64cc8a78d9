"""A plan and a workload through the scheduling model over counts: what `check` and `fit` ask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Protocol

import msgspec

from kvplan.replay.assumptions import Assumptions
from kvplan.replay.counted import count_memory
from kvplan.replay.gauges import Gauges
from kvplan.replay.replay import Replay, Turn
from kvplan.replay.requests import Request
from kvplan.replay.result import ReplayResult, Spread
from kvplan.replay.settings import Choices, server_of
from kvplan.replay.timeline import Timeline
from kvplan.sizing.plan import Plan


class Observer(Protocol):
    """Whoever looks at a replay after each of its turns."""

    def attach(self, run: Replay, total: int | None) -> None:
        """A replay of so many requests starts."""

    def see(self, turn: Turn) -> None:
        """One turn has ended."""


class ReplayOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is assumed of clients and steps, how the scheduler is set, and how much is replayed."""

    assumptions: Assumptions = Assumptions()
    choices: Choices = Choices()
    limit: int | None = None  # requests from the start of the workload


def replay(
    plan: Plan,
    workload: Iterable[Request],
    options: ReplayOptions | None = None,
    *,
    observers: Collection[Observer] = (),
    stop: Callable[[], bool] | None = None,
    total: int | None = None,
) -> ReplayResult:
    """Replay requests in order of arrival over counts, jumping over uneventful steps.

    `stop` is asked after every turn; once it says yes the result is the partial one.
    ReplayViolation where the engine would end with an error.
    """
    run = over_counts(plan, workload, options or ReplayOptions())
    return drive(run, observers=observers, stop=stop, total=total)


def over_counts(plan: Plan, workload: Iterable[Request], options: ReplayOptions) -> Replay:
    """A replay over counts, about to start."""
    server = server_of(plan, options.choices)
    return Replay(
        server,
        count_memory(server),
        limited(workload, options.limit),
        options.assumptions,
        jumps=True,
        dp_ranks=plan.resolved.widths.dp_ranks,
    )


def limited(workload: Iterable[Request], limit: int | None) -> Iterable[Request]:
    """The first requests of a workload, or all of them."""
    return workload if limit is None else islice(workload, min(limit, sys.maxsize))


def drive(
    run: Replay,
    *,
    observers: Collection[Observer] = (),
    stop: Callable[[], bool] | None = None,
    total: int | None = None,
) -> ReplayResult:
    """Run a replay to its end, or until `stop` says so."""
    driver = Driver(run, observers=observers, stop=stop, total=total)
    driver.go()
    return driver.result()


class Driver:
    """Runs a replay with its onlookers; what was found so far can be asked for at any time."""

    def __init__(
        self,
        run: Replay,
        *,
        observers: Collection[Observer] = (),
        stop: Callable[[], bool] | None = None,
        total: int | None = None,
    ) -> None:
        self.run = run
        self.gauges = Gauges(run)
        self._timeline = Timeline(run, self.gauges)
        self._observers = observers
        self._stop = stop
        self._total = total
        self._complete = False

    def go(self) -> None:
        """Every turn, to the end or until it is stopped."""
        for each in self._observers:
            each.attach(self.run, self._total)
        measure, note, stop = self.gauges.see, self._timeline.see, self._stop
        watching = [each.see for each in self._observers]
        for turn in self.run:
            measure(turn)
            note(turn)
            for see in watching:
                see(turn)
            if stop is not None and stop():
                return
        self._complete = True

    def result(self) -> ReplayResult:
        """The figures so far."""
        return result_of(self.run, self.gauges, self._timeline, complete=self._complete)


def result_of(run: Replay, gauges: Gauges, line: Timeline, *, complete: bool) -> ReplayResult:
    """The figures of a replay so far."""
    meter = run.meter
    return ReplayResult(
        server=run.server,
        complete=complete,
        pools=gauges.uses(),
        num_requests=meter.num_requests,
        num_finished=meter.num_finished,
        num_clipped=meter.num_clipped,
        num_aborted=meter.num_aborted,
        num_retractions=meter.num_retractions,
        first_retraction_ns=meter.first_retraction_ns,
        rejections=dict(meter.rejections),
        hit_tokens=meter.hit_tokens,
        computed_tokens=meter.computed_tokens,
        rehit_tokens=meter.rehit_tokens,
        recomputed_tokens=meter.recomputed_tokens,
        output_tokens=meter.output_tokens,
        evicted_tokens=run.store.cache.evicted,
        wasted_tokens=meter.wasted_tokens,
        peak_running=meter.peak_running,
        peak_waiting=meter.peak_waiting,
        wait_ns=spread(sorted(meter.waits_ns)),
        num_steps=gauges.num_steps,
        prefill_steps=meter.prefill_steps,
        decode_steps=meter.decode_steps,
        end_ns=run.now_ns,
        timeline=tuple(line.points),
    )


def spread(ranked: list[int]) -> Spread:
    """Percentiles of sorted values; zeros where there are none."""
    if not ranked:
        return Spread(p50=0, p95=0, p99=0, max=0)
    p50, p95, p99 = (ranked[-(-len(ranked) * percent // 100) - 1] for percent in (50, 95, 99))
    return Spread(p50=p50, p95=p95, p99=p99, max=ranked[-1])

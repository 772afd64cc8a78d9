"""The workload that a fit has to serve: imported only where one is named."""

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec

from kvplan.replay.run import ReplayOptions
from kvplan.replay.settings import launch_choices, not_modelled
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.summary import Watch
from kvplan.replay.workloads.workload import Workload, open_workload
from kvplan.report.assumed import client_notes, supplied_notes

from .trace_options import arrivals, assumptions


class FitTraffic(msgspec.Struct, frozen=True):
    """A workload that was checked to its end, how it is replayed, and what a reader should know."""

    workload: Workload
    replay: ReplayOptions
    assumed: tuple[str, ...]
    warnings: tuple[str, ...]


def read_traffic(
    name: str,
    scheduling: Mapping[str, Any],
    *,
    format: str | None,
    limit: int | None,
    max_new: str,
    tpot: float,
    prefill_rate: float,
    accept_len: float | None,
    **reading: Any,
) -> FitTraffic:
    """Read a workload with the flags of `kvplan trace`; InputError or TraceError where it cannot be."""
    asked = arrivals(name, format, ReadOptions(**reading))
    workload = open_workload(asked.path, format=format, options=asked.options)
    replay = ReplayOptions(
        assumptions=assumptions(max_new, tpot, prefill_rate),
        choices=launch_choices(scheduling, accept_len),
        limit=limit,
    )
    watch = Watch()
    for request in islice(workload, limit):
        watch.note(request)
    notes = client_notes(replay.assumptions, watch.with_max_new, watch.input.counts.total())
    assumed = (*supplied_notes(asked.options), *notes)
    return FitTraffic(workload, replay, assumed, not_modelled(scheduling))

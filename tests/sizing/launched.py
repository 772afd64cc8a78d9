"""Launches with round memory figures: 64 GiB before the weights, 40 after, half of it slack."""

from __future__ import annotations

from typing import Any

from kvplan import catalog
from kvplan.sizing.budget import Memory
from kvplan.sizing.plan import NoStart, Plan, plan_launch
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import H100

GIB = 2**30
EIGHT_GIB = 8 * GIB  # what 40 GiB free leave after 32 GiB of slack
ROUND = Memory(pre_load_gib=64.0, post_load_gib=40.0)


def outcome(
    model: ModelSpec | str,
    gpu: GpuSpec = H100,
    draft: ModelSpec | None = None,
    memory: Memory = ROUND,
    /,
    **args: Any,
) -> Plan | NoStart:
    """A launch with a fraction of 0.5 unless it names one; a text is a preset's name."""
    spec = catalog.load_model(model) if isinstance(model, str) else model
    given = {"mem_fraction_static": 0.5, **args}
    resolved = resolve(server_args(given), spec, gpu, draft)
    return plan_launch(spec, gpu, resolved, memory, draft)


def planned(model: ModelSpec | str, *more: Any, **args: Any) -> Plan:
    """The plan of a launch that starts."""
    found = outcome(model, *more, **args)
    assert isinstance(found, Plan), found.shortage.problem
    return found

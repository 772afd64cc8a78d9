"""Requests at a context: bounds of every pool, worked out by hand and as properties."""

from __future__ import annotations

from random import Random

import pytest

from kvplan.sizing.capacity import capacity_at, request_tokens
from kvplan.sizing.plan import Plan
from tests.sizing.launched import planned
from tests.sizing.odd_launches import ALL_SLIDING, NAMES, drawn
from tests.sizing.resolve.launches import EAGLE, compressed, dense, latent

WIDE = {"max_running_requests": 100000}


@pytest.mark.parametrize(
    ("model", "args", "context", "requests", "bound"),
    [
        # 65,536 tokens of 131,072 B
        (dense(), WIDE, 1000, 65, "tokens"),
        (dense(), {"max_running_requests": 7}, 1000, 7, "running requests"),
        # pages of 16: 1,008 slots a request
        (dense(), {**WIDE, "page_size": 16}, 1000, 65, "tokens"),
        # a draft of 8 tokens ahead: 1,000 + 2 × 4; no draft layers here
        (dense(), {**WIDE, **EAGLE}, 1000, 65, "tokens"),
        (dense(), {**WIDE, **EAGLE}, 1, 7281, "tokens"),
        # two ranks of 232,960 tokens; a request takes whole pages of both: 1,024
        (latent("DeepseekV2ForCausalLM"), {**WIDE, "tp_size": 2, "dcp_size": 2, "page_size": 64,
                                          "attention_backend": "flashinfer"},
         1000, 465920 // 1024, "tokens"),
        # every layer slides: 65,536 slots, a window of 128, 128 more, two pages of 1
        (ALL_SLIDING, WIDE, 100000, 65536 // 258, "sliding tokens"),
        (ALL_SLIDING, WIDE, 100, 655, "sliding tokens"),
        # a hundredth of the tokens slide; 128 + 128 + two pages of 256 slots a request
        (compressed(), {"max_running_requests": 300, "swa_full_tokens_ratio": 0.01}, 1000, None,
         "sliding tokens"),
    ],
)  # fmt: skip
def test_requests_at_a_context_and_what_stops_the_next(model, args, context, requests, bound):
    plan = planned(model, **args)

    capacity = capacity_at(plan, context)

    if requests is None:
        pools = plan.stages[0].pool.compressed
        assert pools is not None
        requests = pools.sliding_tokens // 768
    assert (capacity.requests, capacity.bound_by) == (requests, bound)


@pytest.mark.parametrize("name", NAMES)
def test_capacity_falls_with_the_context_and_fits_the_pools(name):
    random, seen = Random(name), 0
    for _ in range(30):
        plan = drawn(name, random).outcome()
        if not isinstance(plan, Plan):
            continue
        seen += 1
        found = [capacity_at(plan, context) for context in (1, 10, 100, 1000, 10000, 10**6)]
        counts = [each.requests for each in found]
        assert counts == sorted(counts, reverse=True)
        assert all(0 <= count <= plan.max_running_requests for count in counts)
        for each in found:
            fits(plan, each.context_tokens, each.requests)
    assert seen


def fits(plan: Plan, context: int, requests: int) -> None:
    """All requests together find their slots in the full pool of every stage."""
    slots = request_tokens(plan, context) * requests
    for stage in plan.stages:
        sliding = stage.pool.sliding
        if sliding is None or sliding.full_tokens:
            assert slots <= stage.pool.tokens * plan.resolved.widths.attn_dcp

"""The one line that answers whether a launch starts, and with what."""

from __future__ import annotations

from kvplan.sizing.capacity import Capacity
from kvplan.sizing.plan import Plan


def verdict(plan: Plan, full_context: Capacity) -> str:
    """Tokens of KV, full-context requests, and how many may run."""
    context = plan.resolved.context_length
    requests = full_context.requests
    noun = "request" if requests == 1 else "requests"
    return (
        f"starts: {plan.tokens:,} tokens of KV · {requests:,} full-context {noun} ({context:,})"
        f" · at most {plan.max_running_requests:,} running"
    )

"""The one line that answers whether a launch starts, and with what."""

from __future__ import annotations

from kvplan.sizing.capacity import Capacity
from kvplan.sizing.plan import NoStart, Plan
from kvplan.units import GIB


def verdict(plan: Plan, full_context: Capacity, missing_bytes: int = 0) -> str:
    """Tokens of KV, full-context requests, and how many may run, of a DP rank where there are several.

    `missing_bytes` is what pools and tables take beyond the card.
    """
    if missing_bytes:
        return (
            f"runs out of memory: pools and tables of {plan.tokens:,} tokens take"
            f" {missing_bytes / GIB:.2f} GiB more than the card has"
        )
    ranks = plan.resolved.widths.dp_ranks
    each = f", on each of {ranks} DP ranks" if ranks > 1 else ""
    return (
        f"starts: {plan.tokens:,} tokens of KV · {requests_of(full_context)}"
        f" · at most {plan.max_running_requests:,} running{each}"
    )


def requests_of(full_context: Capacity) -> str:
    """Requests of the whole context, in words."""
    requests, context = full_context.requests, full_context.context_tokens
    count = f"{requests:,}" if requests else "no"
    return f"{count} full-context request{'' if requests in (0, 1) else 's'} ({context:,})"


def refusal(refused: NoStart) -> str:
    """Why a launch does not start."""
    return f"does not start: {refused.shortage.problem}"

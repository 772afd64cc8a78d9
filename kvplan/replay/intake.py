"""What the engine makes of a request before it joins the queue: refusals and clipping."""

from __future__ import annotations

from kvplan.replay.server import Server
from kvplan.units import ceil_page

INPUT_MARGIN = 5  # tokens that a prompt leaves of the longest request


def max_request_len(server: Server) -> int:
    """Tokens that one request may reach, prompt and answer."""
    by_context, by_pool = server.context_len, server.num_tokens
    return (by_context if by_context < by_pool else by_pool) - 1


def refusal(server: Server, input_len: int) -> str | None:
    """Why a prompt is not served at all, or None."""
    limit = max_request_len(server) - INPUT_MARGIN
    if input_len < limit:
        return None
    bound = "context" if server.context_len <= server.num_tokens else "KV pool"
    return f"the input reaches the limit of {max(0, limit):,} tokens ({bound})"


def clip_max_new(server: Server, input_len: int, max_new: int) -> int:
    """New tokens that are left of a wish after the context and an empty pool had their say."""
    page = server.page_size
    by_context = max_request_len(server) - input_len - 1
    by_memory = server.num_tokens - ceil_page(input_len, page) - page - 1
    if max_new <= by_context and max_new <= by_memory:
        return max_new
    return max(0, min(by_context, by_memory))

"""What the engine makes of a request before it joins the queue: refusals and clipping."""

from __future__ import annotations

from kvplan.replay.server import Server
from kvplan.units import ceil_page

INPUT_MARGIN = 5  # tokens that a prompt leaves of the longest request


def max_request_len(server: Server) -> int:
    """Tokens that one request may reach, prompt and answer."""
    return min(server.context_len, server.num_tokens) - 1


def refusal(server: Server, input_len: int) -> str | None:
    """Why a prompt is not served at all, or None."""
    limit = max_request_len(server) - INPUT_MARGIN
    if input_len < limit:
        return None
    bound = "context" if server.context_len <= server.num_tokens else "KV pool"
    return f"the input reaches the limit of {limit:,} tokens ({bound})"


def clip_max_new(server: Server, input_len: int, max_new: int) -> int:
    """New tokens that are left of a wish after the context and an empty pool had their say."""
    by_context = max_request_len(server) - input_len - 1
    page = server.page_size
    by_memory = server.num_tokens - ceil_page(input_len, page) - page - 1
    return max(0, min(max_new, by_context, by_memory))

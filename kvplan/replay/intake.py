"""What the engine makes of a request before it joins the queue: refusals and clipping."""

from __future__ import annotations

from kvplan.replay.server import Server
from kvplan.units import ceil_page

INPUT_MARGIN = 5  # the engine's max_req_input_len: tokens less than the longest request


class Intake:
    """A server's door. `max_len` is the tokens that one request may reach, prompt and answer."""

    def __init__(self, server: Server) -> None:
        self.max_len = min(server.context_len, server.num_tokens) - 1
        self._num_tokens = server.num_tokens
        self._page_size = server.page_size
        self._bound = "context" if server.context_len <= server.num_tokens else "KV pool"

    def refusal(self, input_len: int) -> str | None:
        """Why a prompt is not served at all, or None."""
        limit = self.max_len - INPUT_MARGIN
        if input_len < limit:
            return None
        return f"the input reaches the limit of {max(0, limit):,} tokens ({self._bound})"

    def clip(self, input_len: int, max_new: int) -> int:
        """New tokens that are left of a wish after the context and an empty pool had their say."""
        page = self._page_size
        by_context = self.max_len - input_len - 1
        by_memory = self._num_tokens - ceil_page(input_len, page) - page - 1
        if max_new <= by_context and max_new <= by_memory:
            return max_new
        return max(0, min(by_context, by_memory))

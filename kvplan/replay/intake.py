"""What the engine makes of a request before it joins the queue: refusals and clipping."""

from __future__ import annotations

from kvplan.replay.server import Server
from kvplan.units import ceil_page

INPUT_MARGIN = 5  # tokens that a prompt leaves of the longest request


class Intake:
    """A server's door.

    `max_len` is the tokens that one request may reach, prompt and answer; a prompt that reaches
    `limit` is not served at all, for which `refusal` is the reason.
    """

    def __init__(self, server: Server) -> None:
        self.max_len = min(server.context_len, server.num_tokens) - 1
        self.limit = max(0, self.max_len - INPUT_MARGIN)
        bound = "context" if server.context_len <= server.num_tokens else "KV pool"
        self.refusal = f"the input reaches the limit of {self.limit:,} tokens ({bound})"
        self._num_tokens = server.num_tokens
        self._page_size = server.page_size
        # lengths that are surely served whole
        self._roomy = min(self.max_len, server.num_tokens - 2 * server.page_size) - 1

    def clip(self, input_len: int, max_new: int) -> int:
        """New tokens that are left of a wish after the context and an empty pool had their say."""
        if input_len + max_new <= self._roomy:
            return max_new
        page = self._page_size
        by_context = self.max_len - input_len - 1
        by_memory = self._num_tokens - ceil_page(input_len, page) - page - 1
        return max(0, min(max_new, by_context, by_memory))

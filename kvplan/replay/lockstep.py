"""How all decoding requests grow together, step by step."""

from __future__ import annotations

from kvplan.replay.server import Speculation

ACCEPT_UNITS = 1000  # acceptance is counted in thousandths of a token


class Lockstep:
    """Tokens by which every running request has grown since the start.

    Lengths of running requests are kept relative to these. Without speculation a launched step
    commits one token and its result brings one. With it a launched step reserves slots, and its
    result says how many tokens it commits.
    """

    __slots__ = (
        "_accept",
        "committed",
        "generated",
        "launched",
        "page_size",
        "reserve",
        "reserved",
        "results",
    )

    def __init__(self, page_size: int, speculation: Speculation | None = None) -> None:
        self.page_size = page_size
        self.reserve = speculation.reserve if speculation else 0
        self._accept = round(speculation.accept_len * ACCEPT_UNITS) if speculation else ACCEPT_UNITS
        self.launched = 0  # steps
        self.results = 0  # with speculation: steps whose result is taken in
        self.committed = 0
        self.generated = 0
        self.reserved = 0  # with speculation: up to where slots reach since the latest launch

    def launch(self, num_steps: int = 1) -> None:
        """Steps were launched, each but the last with its result taken in before the next."""
        self.launched += num_steps
        if self.reserve:
            self.reserved = self.next_reserved(num_steps)
        else:
            self.committed += num_steps

    def take_in(self, num_steps: int = 1) -> int:
        """Results came; how many tokens they brought each request."""
        if not self.reserve:
            self.generated += num_steps
            return num_steps
        num_tokens = self.tokens_of(num_steps)
        self.committed += num_tokens
        self.results += num_steps
        self.generated += num_tokens
        return num_tokens

    def next_reserved(self, num_steps: int = 1) -> int:
        """Up to where slots will reach once so many more steps are launched, with speculation."""
        return max(self.reserved, self.committed + self.tokens_of(num_steps - 1) + self.reserve)

    def tokens_of(self, num_steps: int) -> int:
        """Tokens that the results of the next steps will bring each request."""
        units = self.results * self._accept
        return (units + num_steps * self._accept) // ACCEPT_UNITS - units // ACCEPT_UNITS

    def steps_within(self, num_tokens: int) -> int:
        """How many results may come until each request got more than so many tokens."""
        if not self.reserve:
            return num_tokens
        units = self.results * self._accept
        limit = (units // ACCEPT_UNITS + num_tokens + 1) * ACCEPT_UNITS - 1
        return limit // self._accept - self.results

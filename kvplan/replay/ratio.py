"""How much of their wishes running requests are expected to use: the new-token ratio."""

from __future__ import annotations

from collections.abc import Iterable

INITIAL = 0.7  # SGLANG_INIT_NEW_TOKEN_RATIO, times --schedule-conservativeness
LOWEST_SHARE = 0.14  # SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR: of the initial ratio
DECAY_STEPS = 600  # SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS
RETRACT_STEPS = 20  # SGLANG_RETRACT_DECODE_STEPS: must fit after a retraction


class NewTokenRatio:
    """Falls with every decode step that fits; starts anew when the server idles."""

    def __init__(self, conservativeness: float) -> None:
        self.initial = min(INITIAL * conservativeness, 1.0)
        self.lowest = min(self.initial * LOWEST_SHARE, 1.0)
        self.decay = (self.initial - self.lowest) / DECAY_STEPS
        self.current = self.initial

    def step(self, num_steps: int = 1) -> None:
        """So many decode steps that fit; each is rounded, as in the engine."""
        while num_steps and self.current != self.lowest:
            self.current = max(self.current - self.decay, self.lowest)
            num_steps -= 1

    def reset(self) -> None:
        self.current = self.initial


def ratio_after_retraction(survivors: Iterable[tuple[int, int]]) -> float:
    """From (outputs so far, new tokens asked for) of the requests that stay."""
    outputs, wishes = 0, 0
    for output_len, max_new in survivors:
        outputs += output_len + RETRACT_STEPS
        wishes += max_new
    return min(1.0, outputs / (wishes + 1))

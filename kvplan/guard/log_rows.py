"""One figure of a log beside the plan's, and whether the printed digits allow both."""

from __future__ import annotations

import msgspec

from kvplan.guard.server_log import Figure

Number = int | float

# what the engine calls a figure; the others go by their own name
LABELS = {
    "avail_before_load_gib": "free before loading",
    "avail_after_load_gib": "free after loading",
    "weights_gib": "weights",
    "num_tokens": "#tokens",
    "k_gib": "K size",
    "v_gib": "V size",
    "kv_gib": "KV size",
    "full_k_gib": "full K size",
    "full_v_gib": "full V size",
    "swa_k_gib": "SWA K size",
    "swa_v_gib": "SWA V size",
    "swa_pool_gib": "SWAKVPool",
    "swa_size": "swa size",
    "full_size": "full size",
    "conv_state_gib": "conv_state size",
    "ssm_state_gib": "ssm_state size",
    "intermediate_ssm_gib": "intermediate_ssm",
    "intermediate_conv_gib": "intermediate_conv",
    "available_bytes_gib": "available_bytes",
    "c128_state_fixed_gib": "c128_state_fixed",
    "compressed_full": "full",
    "compressed_swa": "swa",
    "avail_after_pool_gib": "free after the pools",
    "host_tokens": "host tokens",
    "host_gb": "host memory",
    "host_state_gb": "host state memory",
    "host_state_slots": "host state slots",
    "minimum_mem_fraction": "minimum fraction",
}


class Cause(msgspec.Struct, frozen=True):
    """Why a figure likely differs: its name in the table of causes, and the sentence with its numbers."""

    name: str
    text: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison. The plan allows any value from `low` to `high`."""

    name: str
    predicted: Number
    low: Number
    high: Number
    figure: Figure
    observed: Number
    basis: str
    """what the prediction rests on: memory, tokens, launch, or estimate"""
    counts: bool = True
    """whether a difference here is a difference of the answer"""
    cause: Cause | None = None
    excused: bool = False
    """differs for a reason that is no fault of the plan"""

    @property
    def label(self) -> str:
        """As the engine names it."""
        name = LABELS.get(self.name, self.name)
        return f"draft {name}" if self.figure.draft else name

    @property
    def difference(self) -> Number:
        """Observed less predicted."""
        return self.observed - self.predicted

    @property
    def within(self) -> bool:
        """Whether the printed digits allow the prediction."""
        slack = self.figure.rounding * (1 + 1e-9)
        return self.low - slack <= self.observed <= self.high + slack

    @property
    def agrees(self) -> bool:
        return self.within or self.excused

    @property
    def unit(self) -> str:
        return {"_gib": "GiB", "_gb": "GB"}.get("_" + self.name.rpartition("_")[2], "")


def row(
    figure: Figure,
    predicted: Number,
    *,
    basis: str,
    bounds: tuple[Number, Number] | None = None,
    name: str | None = None,
    counts: bool = True,
) -> Row:
    """A comparison with a figure that is a number; without bounds the prediction is exact."""
    assert not isinstance(figure.value, str)
    low, high = bounds or (predicted, predicted)
    return Row(
        name=name or figure.name,
        predicted=predicted,
        low=min(low, high),
        high=max(low, high),
        figure=figure,
        observed=figure.value,
        basis=basis,
        counts=counts,
    )

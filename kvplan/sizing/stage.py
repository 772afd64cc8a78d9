"""One pipeline stage of a launch: its layers and the widths that its KV has."""

from __future__ import annotations

import msgspec

from kvplan.sizing.drafts import DraftLayers, draft_layers
from kvplan.sizing.resolved import Resolved
from kvplan.sizing.shapes import StageLayers, kv_heads_per_rank, stage_layers, stage_range
from kvplan.spec.model import Mha, ModelSpec


class Stage(msgspec.Struct, frozen=True):
    """What all sizing of one stage starts from."""

    model: ModelSpec
    draft: ModelSpec | None
    resolved: Resolved
    pp_rank: int
    span: range
    layers: StageLayers
    draft_layers: DraftLayers | None
    kv_heads: int  # of the full pool, on one rank; 1 for latent caches

    @property
    def num_kv_layers(self) -> int:
        """Layers that hold KV in the full pool; looped models hold it more than once."""
        count = len(self.layers.full) + len(self.layers.sliding)
        return count * self.model.kv_layers_per_layer


def make_stage(
    model: ModelSpec, resolved: Resolved, draft: ModelSpec | None, pp_rank: int
) -> Stage:
    """The pp_rank-th stage of a launch."""
    if model.sliding is not None and not resolved.two_pools:
        model = msgspec.structs.replace(model, sliding=None)
    if model.indexer is not None and resolved.hisparse is not None:
        every_layer = msgspec.structs.replace(model.indexer, shared_topk_layers=())
        model = msgspec.structs.replace(model, indexer=every_layer)
    widths = resolved.widths
    span = stage_range(model.num_layers, pp_rank, widths.pp, widths.pp_partition)
    attention = model.attention
    heads = (
        kv_heads_per_rank(attention.num_kv_heads, widths.attn_tp, widths.attn_dcp)
        if isinstance(attention, Mha)
        else 1
    )
    return Stage(
        model=model,
        draft=draft,
        resolved=resolved,
        pp_rank=pp_rank,
        span=span,
        layers=stage_layers(model, span),
        draft_layers=draft_layers(model, draft, resolved.speculation.algorithm),
        kv_heads=heads,
    )

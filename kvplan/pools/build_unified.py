"""The pools of a planned stage in one byte buffer, and the allocator that moves their pages."""

from __future__ import annotations

import torch

from kvplan.allocators.backend import Backend
from kvplan.allocators.unified import UnifiedAllocator
from kvplan.pools.recurrent import StatePool
from kvplan.pools.slot_band import SlotBand
from kvplan.pools.storage import Storage, torch_dtype
from kvplan.pools.token_major import TokenMajorPool
from kvplan.pools.unified import UnifiedPool
from kvplan.sizing.plan import StagePlan
from kvplan.sizing.shapes import state_shapes
from kvplan.sizing.unified import dense_rows
from kvplan.spec.model import Mla


def unified_pool(planned: StagePlan, storage: Storage) -> UnifiedPool:
    """The buffer of one stage with its full side and either a sliding one or states."""
    shared, stage = planned.pool.unified, planned.stage
    assert shared is not None
    buffer = storage.zeros((shared.total_bytes,), torch.uint8)

    def side(*, slides: bool, layer_ids: tuple[int, ...]) -> TokenMajorPool:
        attention = stage.model.attention
        return TokenMajorPool(
            buffer,
            page_size=stage.resolved.page_size,
            layer_ids=layer_ids,
            rows=dense_rows(stage, slides=slides),
            value_width=attention.kv_lora_rank if isinstance(attention, Mla) else None,
            dtype=torch_dtype(stage.resolved.kv_cache_dtype),
            storage=storage,
        )

    full = side(slides=False, layer_ids=stage.layers.full)
    if shared.slides:
        sliding = side(slides=True, layer_ids=stage.layers.sliding)
        return UnifiedPool(buffer, full, sliding=sliding)
    band = SlotBand(buffer, shared.other_entry)
    return UnifiedPool(buffer, full, state=banded_states(planned, band, storage))


def banded_states(planned: StagePlan, band: SlotBand, storage: Storage) -> StatePool:
    """State slots over the whole buffer: those below the padding are never handed out."""
    stage = planned.stage
    linear, resolved = stage.model.linear, stage.resolved
    assert linear is not None
    shapes = state_shapes(linear.state, resolved.widths.attn_tp)
    return StatePool(
        slots=band.num_slots - 1,
        layer_ids=stage.layers.linear,
        conv_shapes=shapes.conv,
        temporal_shape=shapes.temporal,
        conv_dtype=torch_dtype(linear.conv_dtype),
        temporal_dtype=torch_dtype(resolved.mamba_ssm_dtype or linear.ssm_dtype),
        storage=storage,
        band=band,
    )


def shared_allocator(
    planned: StagePlan, pool: UnifiedPool, backend: Backend | str = Backend.REFERENCE
) -> UnifiedAllocator:
    """The buffer's allocator, which copies the bytes of the pages that it moves."""
    shared = planned.pool.unified
    assert shared is not None
    return UnifiedAllocator(
        shared.total_bytes,
        shared.page_size,
        full_token_bytes=shared.full_entry,
        swa_token_bytes=shared.other_entry if shared.slides else 0,
        state_slot_bytes=0 if shared.slides else shared.other_entry,
        num_ranks=planned.stage.resolved.widths.attn_dcp,
        device=pool.storage.device,
        backend=backend,
        move=pool.move,
    )

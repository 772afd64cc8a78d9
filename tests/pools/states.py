"""A small recurrent state with its siblings, and what its slots hold."""

from __future__ import annotations

from typing import Any

import torch

from kvplan.pools.recurrent import StatePool
from kvplan.pools.siblings import NgramState, ShortConvState
from kvplan.pools.storage import Storage

SLOTS, RUNNING, DRAFTS = 6, 3, 4
EOS = 151645
LAYERS = (2, 5, 6)


def state_pool(storage: Storage, **changes: Any) -> StatePool:
    options: dict[str, Any] = {
        "slots": SLOTS,
        "layer_ids": LAYERS,
        "conv_shapes": [(10, 3)],
        "temporal_shape": (2, 4, 4),
        "conv_dtype": torch.bfloat16,
        "temporal_dtype": torch.float32,
        "storage": storage,
        "running": RUNNING,
        "draft_tokens": DRAFTS,
        "dedup_windows": True,
    }
    return StatePool(**options | changes)


def with_siblings(storage: Storage, **changes: Any) -> StatePool:
    pool = state_pool(storage, **changes)
    drafts = pool.draft_tokens
    pool.register(
        ShortConvState(
            slots=SLOTS,
            layer_ids=(0, 5),
            shape=(6, 2),
            dtype=torch.bfloat16,
            storage=storage,
            running=RUNNING,
            draft_tokens=drafts,
        )
    )
    pool.register(
        NgramState(
            slots=SLOTS,
            context_len=3,
            eos_token_id=EOS,
            storage=storage,
            running=RUNNING,
            draft_tokens=drafts,
        )
    )
    return pool


def fill(pool: StatePool, slot: int, value: int) -> None:
    for part in pool.slot_tensors():
        part.tensor.select(part.slot_axis, slot).fill_(value)


def contents(pool: StatePool, slot: int) -> list[set[float]]:
    return [
        set(part.tensor.select(part.slot_axis, slot).flatten().tolist())
        for part in pool.slot_tensors()
    ]


def blank() -> list[set[float]]:
    return [{0.0}, {0.0}, {0.0}, {EOS}]

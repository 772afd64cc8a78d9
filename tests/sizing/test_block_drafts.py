"""What a block draft adds to a token, by hand."""

from __future__ import annotations

import pytest

from kvplan import catalog
from kvplan.errors import CombinationError
from kvplan.sizing.draft_tensors import draft_tensors
from tests.sizing.launched import outcome, planned
from tests.sizing.resolve.launches import H100

TARGET = 2 * (128 + 128) * 36 * 2  # bytes of Qwen3 8B on four attention ranks: 8 heads over 4
LAYER = (128 + 128) * 2  # one head of a draft layer in bfloat16; drafts have 5 layers of 8 heads


def draft_of(algorithm: str):
    return catalog.load_model(f"draft-qwen3-8b-{algorithm.lower()}")


@pytest.mark.parametrize(
    ("algorithm", "heads", "args"),
    [
        ("DFLASH", 8 // 8, {}),  # the draft leaves context parallelism alone: all 8 ranks
        ("DSPARK", 8 // 4, {}),  # keeps the target's layout: 4 attention ranks
        ("DFLASH", 8 // 4, {"tp_size": 4, "attn_cp_size": 1}),
    ],
)
def test_a_draft_s_heads_shard_over_the_ranks_it_runs_on(algorithm, heads, args):
    plan = planned(
        "qwen3-8b",
        H100,
        draft_of(algorithm),
        **{"tp_size": 8, "attn_cp_size": 2, **args},
        speculative_algorithm=algorithm,
    )
    (stage,) = plan.stages

    assert stage.pool.cell.num_bytes == TARGET + 5 * heads * LAYER
    keys, values = draft_tensors(plan, stage)
    assert keys.copies == values.copies == 5
    assert keys.shape == values.shape == (stage.pool.tokens + 1, heads, 128)


def test_a_draft_of_latents_is_no_block_draft():
    latent = catalog.load_model("deepseek-v3")

    with pytest.raises(CombinationError, match="attends through latents"):
        outcome("qwen3-8b", H100, latent, speculative_algorithm="DFLASH")

"""Families that no record covers: tokens, cells and slots worked out by hand."""

from __future__ import annotations

import pytest

from tests.sizing.launched import EIGHT_GIB, planned
from tests.sizing.resolve.launches import H100, dense, latent

NEXTN = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}
UNO = {
    "speculative_algorithm": "UNO",
    "speculative_num_draft_tokens": 6,
    "uno_lora_path": "/lora",
}


@pytest.mark.parametrize(
    ("model", "args", "cell", "tokens"),
    [
        # LongCat: 28 layers × 2 attentions × (512 + 64) × 2 B; 8,589,934,592 // 64,512
        (longcat := latent("LongcatFlashForCausalLM", num_layers=28, kv_layers_per_layer=2,
                           mtp_layers=1), {}, 64512, 133152),
        # one MTP layer on 56 attentions: 64,512 + 64,512 // 56 = 65,664
        (longcat, NEXTN, 65664, 130816),
        # two loops over 22 layers: 44 × 8 heads × 256 × 2 B
        (dense("NanbeigeForCausalLM", num_layers=22, kv_layers_per_layer=2), {}, 180224, 47662),
        # two loops, counted twice: 4 × 10 layers × 8 heads × 256 × 2 B
        (dense("IQuestLoopCoderForCausalLM", num_layers=10, kv_layers_per_layer=4), {}, 163840,
         52428),
        # an UNO target alone: 32 layers × 8 heads × 256 × 2 B
        (dense(), UNO, 131072, 65536),
    ],
)  # fmt: skip
def test_cells_and_tokens_of_one_pool(model, args, cell, tokens):
    plan = planned(model, **args)

    pool = plan.stages[0].pool
    assert pool.budget.num_bytes == EIGHT_GIB
    assert pool.cell.num_bytes == cell
    assert plan.tokens == tokens


@pytest.mark.parametrize(
    ("preset", "tp_size", "slot", "slots", "cell", "tokens"),
    [
        # slot: 70 linear layers × 8 heads × 128 × 128 × 4 B = 36,700,160. State takes 9 parts of
        # 19: 4,068,916,385 B, a padding slot less, in slots: 109. KV keeps
        # 8,589,934,592 - 110 × 36,700,160 = 4,552,916,992 B for 10 layers × 1 head × 256 × 2 B
        ("minimax-text-01", 8, 36700160, 109, 5120, 889241),
        ("minimax-m1-80k", 8, 36700160, 109, 5120, 889241),
        # slot: 16 layers × 4 heads × 128 × 128 × 4 B = 4,194,304: 970 - 1 slots; KV keeps
        # 8,589,934,592 - 970 × 4,194,304 = 4,521,459,712 B for 4 layers × 1 head × 256 × 2 B
        ("ring-mini-linear-2.0", 4, 4194304, 969, 2048, 2207744),
        # slot: 70 layers × 8 heads × 128 × 128 × 4 B; latents: 10 layers × 576 × 2 B
        ("ling-2.6-1t", 8, 36700160, 109, 11520, 395218),
    ],
)
def test_lightning_hybrids_share_the_budget_between_state_and_kv(
    preset, tp_size, slot, slots, cell, tokens
):
    plan = planned(preset, H100, tp_size=tp_size, disable_overlap_schedule=True, page_size=1)

    pool = plan.stages[0].pool
    state = pool.budget.state
    assert state is not None
    assert (state.slot_bytes, state.slots) == (slot, slots)
    assert pool.cell.num_bytes == cell
    assert plan.tokens == tokens


@pytest.mark.parametrize(
    ("args", "alloc_len", "reserve", "extra"),
    [
        # a root beside the 6 drafts, twice for the overlapped step; rows end 14 past the context
        (UNO, 7, 14, 14),
        # page 64: 14 + 63 positions
        ({**UNO, "page_size": 64}, 7, 14, 77),
        # a tree of 9 nodes
        ({**UNO, "speculative_num_steps": 3, "speculative_eagle_topk": 4,
          "speculative_num_draft_tokens": 9, "attention_backend": "fa3"}, 10, 20, 20),
    ],
)  # fmt: skip
def test_uno_keeps_a_root_beside_its_drafts(args, alloc_len, reserve, extra):
    needs = planned(dense(), **args).reserves

    assert needs.alloc_len_per_decode == alloc_len
    assert needs.alloc_reserve_per_decode == reserve
    assert needs.extra_context_len == extra


def test_an_assistant_draft_is_priced_at_the_target_s_full_layers():
    # 32 layers × 8 heads × 256 × 2 B, and 4 more for the assistant: 147,456 B
    assistant = dense("Gemma4AssistantForCausalLM", num_layers=4)

    plan = planned(dense("Gemma4ForCausalLM"), H100, assistant, **NEXTN)

    assert plan.resolved.speculation.algorithm == "FROZEN_KV_MTP"
    assert plan.stages[0].pool.cell.num_bytes == 147456
    assert plan.tokens == 58254
    assert plan.max_running_requests == 48
    assert plan.reserves.alloc_len_per_decode == 4


@pytest.mark.parametrize(
    ("model", "args", "warned"),
    [
        ("minimax-m1-80k", {"tp_size": 8}, "no model class MiniMaxM1ForCausalLM"),
        ("ring-mini-linear-2.0", {"tp_size": 4}, "no model class BailingMoeLinearV2ForCausalLM"),
        ("ling-2.6-1t", {"tp_size": 8}, None),
        ("gemma-2-9b-it", {"pp_size": 2}, "Gemma2ForCausalLM with pipeline parallelism"),
        ("gemma-2-9b-it", {}, None),
        ("llama-3.1-8b", {"pp_size": 2}, None),
    ],
)
def test_classes_that_the_engine_does_not_run_are_named(model, args, warned):
    warnings = planned(model, **args).resolved.warnings

    assert len(warnings) == (warned is not None)
    assert all(warned in warning for warning in warnings)

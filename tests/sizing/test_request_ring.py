"""DeepSeek-V4 with a ring a request, on AMD: cells, rings and tables worked out by hand."""

from __future__ import annotations

import msgspec
import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.ledger import ledger
from kvplan.spec.gpu import GpuSpec
from tests.sizing.launched import EIGHT_GIB, planned
from tests.sizing.resolve.launches import EAGLE, H100, MI300X, compressed

MI355X = GpuSpec(name="MI355X", memory_mib=294900)
RING = {"dsv4_unified_kv": True, "max_running_requests": 9}


@pytest.mark.parametrize(
    ("gpu", "args", "ring", "cell"),
    [
        # c4: 2 layers × (1,024 / 4 + 132 / 4), c128: 1,024 / 128
        (MI300X, RING, "bf16", 2 * (256 + 33) + 8),
        # fp8 rows are 512 + 64 × 2 B
        (MI355X, {**RING, "dsv4_unified_kv_fp8": True}, "fp8", 2 * (160 + 33) + 5),
        # which this card cannot store
        (MI300X, {**RING, "dsv4_unified_kv_fp8": True}, "bf16", 2 * (256 + 33) + 8),
        # a draft layer beside four
        (MI300X, {**RING, **EAGLE}, "bf16", (2 * (256 + 33) + 8) * 5 / 4),
    ],
)
def test_no_window_is_paid_by_the_token(gpu, args, ring, cell):
    plan = planned(compressed(), gpu, **args)

    assert plan.resolved.request_ring == ring
    assert plan.stages[0].pool.cell.num_bytes == cell


def test_rings_and_states_come_off_the_budget_first():
    plan = planned(compressed(), MI300X, **RING)

    # 10 request rows: a window of 128 in 4 layers of 1,024 B; c4 states 10 × 8 and 9 more, in
    # fours: 92 rows of 4 × 640 floats in 2 layers; c128 states 10 × 128 and 129 more, in 128s
    window = 10 * 128 * 4 * 1024
    states = 92 * 2560 * 4 * 2 + 1536 * 1024 * 4
    tokens = int((EIGHT_GIB - window - states) / 586) // 256 * 256
    pools = plan.stages[0].pool.compressed
    assert pools is not None
    assert plan.tokens == pools.full_tokens == tokens
    # 9 requests with a page of 256 each, and a c4 ring of 8 in every row
    assert (pools.sliding_tokens, pools.c4_state_slots) == (9 * 256, 80)


def test_a_layer_s_buffer_holds_rings_and_latents():
    plan = planned(compressed(), MI300X, **RING)

    books, pool = ledger(plan, plan.stages[0]), plan.stages[0].pool
    assert pool.compressed is not None
    blocks = pool.compressed.full_tokens // 128
    assert books.bytes_of("sliding KV") == 1280 * 1024
    assert books.bytes_of("c4 KV") == 2 * (1280 + blocks * 32 + 64) * 1024
    assert books.bytes_of("c128 KV") == (1280 + blocks + 2) * 1024
    # pages of the pool that is not there keep their list: a tenth of the tokens
    lists = plan.tokens // 256 + int(plan.tokens * 0.1) // 256
    assert books.bytes_of("page free lists") == 8 * lists


def test_a_verify_step_widens_the_ring_and_the_draft_has_its_own():
    model = msgspec.structs.replace(compressed(), mtp_layers=1)
    plan = planned(model, MI300X, **RING, **EAGLE)

    books = ledger(plan, plan.stages[0])
    # 10 rows of 128 + 3 slots
    assert books.bytes_of("sliding KV") == books.bytes_of("draft KV") == 1310 * 1024


def test_other_cards_keep_a_sliding_pool():
    plan = planned(compressed(), H100, **RING)

    assert plan.resolved.request_ring is None
    assert plan.stages[0].pool.cell.num_bytes == 663.25


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"enable_hisparse": True, "disable_radix_cache": True}, "HiSparse does not go"),
        (
            {"dsv4_unified_kv_fp8": True, "disaggregation_mode": "prefill", "pp_size": 2},
            "disaggregation in stages",
        ),
        ({**EAGLE, "speculative_num_steps": 10}, "keeps 10 draft tokens, not 11"),
    ],
)
def test_what_rings_do_not_go_with_is_refused(args, problem):
    with pytest.raises(CombinationError, match=problem):
        planned(compressed(), MI355X, **RING, **args)

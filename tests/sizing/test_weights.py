"""Weight bytes split over ranks and stages."""

from __future__ import annotations

import json

import pytest
from msgspec import structs

from kvplan.errors import InputError
from kvplan.sizing.resolved import ParallelWidths
from kvplan.sizing.served_weights import as_served
from kvplan.sizing.weights import checkpoint_bytes, draft_rank_weights, rank_weights
from kvplan.spec.model import Mha, ModelSpec, Weights
from kvplan.spec.server import server_args

WEIGHTS = Weights(
    total_bytes=1000_000,
    embedding_bytes=80_000,
    head_bytes=80_000,
    attention_bytes=240_000,
    replicated_bytes=40_000,
    mtp_bytes=60_000,
)
MODEL = ModelSpec(
    name="test",
    architecture="LlamaForCausalLM",
    dtype="bfloat16",
    context_length=4096,
    num_layers=10,
    hidden_size=64,
    num_attention_heads=8,
    attention=Mha(num_kv_heads=8, head_dim=8, v_head_dim=8),
    weights=WEIGHTS,
)
TIED = structs.replace(MODEL, weights=structs.replace(WEIGHTS, head_bytes=0))


def widths(tp: int = 1, pp: int = 1, attn_dp: int = 1) -> ParallelWidths:
    return ParallelWidths(
        tp=tp, pp=pp, attn_tp=tp // attn_dp, attn_dp=attn_dp, attn_cp=1, attn_dcp=1
    )


@pytest.mark.parametrize(
    ("model", "split", "pp_rank", "num_bytes"),
    [
        # everything but the MTP layers
        (MODEL, widths(), 0, 940_000),
        # 500,000 of experts and MLPs, attention and ends shard; 40,000 do not
        (MODEL, widths(tp=4), 0, (500_000 + 240_000 + 160_000) // 4 + 40_000),
        # DP attention keeps attention and ends whole
        (MODEL, widths(tp=4, attn_dp=4), 0, 500_000 // 4 + 240_000 + 160_000 + 40_000),
        # stages share the layers; the first has the embedding, the last the head
        (MODEL, widths(pp=2), 0, 780_000 // 2 + 80_000),
        (MODEL, widths(pp=5), 2, 780_000 // 5),
        (MODEL, widths(pp=2), 1, 780_000 // 2 + 80_000),
        # a tied head is a second copy on the last stage
        (TIED, widths(), 0, 940_000),
        (TIED, widths(pp=2), 1, 860_000 // 2 + 80_000),
    ],
)
def test_a_rank_holds_its_share(model, split, pp_rank, num_bytes):
    weights = rank_weights(model, split, pp_rank)

    assert weights is not None
    assert weights.num_bytes == num_bytes
    assert weights.low_bytes <= num_bytes <= weights.high_bytes
    assert not weights.estimated


def test_an_estimate_keeps_its_range_and_its_mark():
    rough = structs.replace(WEIGHTS, low_bytes=900_000, high_bytes=1_200_000)
    weights = rank_weights(structs.replace(MODEL, weights=rough), widths())

    assert weights is not None
    assert (weights.low_bytes, weights.high_bytes) == (840_000, 1_140_000)
    assert weights.estimated
    assert "estimated" in weights.origin


def test_a_model_without_known_weights_has_no_figure():
    assert rank_weights(structs.replace(MODEL, weights=None), widths()) is None
    assert draft_rank_weights(structs.replace(MODEL, weights=None), None, widths()) is None


def test_a_draft_weighs_its_mtp_layers_or_its_own_checkpoint():
    mtp = draft_rank_weights(MODEL, None, widths(tp=2))
    own = draft_rank_weights(MODEL, MODEL, widths(tp=2))

    assert mtp is not None
    assert own is not None
    assert mtp.num_bytes == 30_000
    assert own.num_bytes == 460_000  # the embedding is the target's
    assert mtp.low_bytes <= mtp.num_bytes < mtp.high_bytes


def test_a_safetensors_index_says_what_a_checkpoint_weighs(tmp_path):
    assert checkpoint_bytes(tmp_path) is None
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 64)
    assert checkpoint_bytes(tmp_path) == 64
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 16060522496}, "weight_map": {}}))
    assert checkpoint_bytes(tmp_path) == 16060522496


@pytest.mark.parametrize("total", [None, -1, True, "16 GB", 1.5])
def test_an_index_without_a_byte_count_is_refused_with_its_line(tmp_path, total):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": total}}))

    with pytest.raises(InputError, match=r"'metadata\.total_size'") as refusal:
        checkpoint_bytes(tmp_path)

    assert str(index) in str(refusal.value)


def test_what_a_draft_weighs_has_the_spread_of_its_source():
    """Published totals are known to a percent, whatever share of them is the draft's."""
    published = draft_rank_weights(MODEL, None, widths())
    rough = structs.replace(WEIGHTS, low_bytes=900_000, high_bytes=1_200_000)
    estimated = draft_rank_weights(structs.replace(MODEL, weights=rough), None, widths())

    assert published is not None
    assert estimated is not None
    assert published.low_bytes == pytest.approx(0.99 * published.num_bytes, abs=1)
    assert estimated.low_bytes == pytest.approx(0.8 * estimated.num_bytes, abs=1)


@pytest.mark.parametrize("total", [1 << 61, 10**30])
def test_an_index_of_more_bytes_than_any_model_has_is_refused(tmp_path, total):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": total}}))

    with pytest.raises(InputError, match=r"'metadata\.total_size'"):
        checkpoint_bytes(tmp_path)


def test_weight_files_that_are_not_there_and_copies_are_not_weighed(tmp_path):
    (tmp_path / "model-00001.safetensors").symlink_to(tmp_path / "gone")
    assert checkpoint_bytes(tmp_path) is None
    (tmp_path / "folder.safetensors").mkdir()
    assert checkpoint_bytes(tmp_path) is None
    (tmp_path / "consolidated.safetensors").write_bytes(b"\0" * 64)
    assert checkpoint_bytes(tmp_path) == 64
    (tmp_path / "model-00002.safetensors").write_bytes(b"\0" * 48)
    assert checkpoint_bytes(tmp_path) == 48


@pytest.mark.parametrize(
    ("arguments", "low", "high"),
    [
        ({}, 1000_000, 1000_000),
        ({"dtype": "bfloat16"}, 1000_000, 1000_000),
        ({"dtype": "float32"}, 2000_000, 2000_000),
        # 840,000 of linear layers at a byte instead of two; all plain at the high end
        ({"quantization": "fp8"}, 160_000 + 420_000, 1000_000),
        ({"quantization": "gptq_marlin"}, 160_000 + 210_000, 1000_000),
        ({"quantization": "modelslim"}, 160_000 + 420_000, 1000_000),
    ],
)
def test_a_launch_says_how_a_plain_checkpoint_is_loaded(arguments, low, high):
    served = as_served(MODEL, server_args(arguments)).weights

    assert served is not None
    assert served.total_bytes is not None
    assert served.total_bytes == pytest.approx(low, rel=0.05)
    assert (served.high_bytes or served.total_bytes) == pytest.approx(high, rel=0.05)
    assert served.estimated is ("quantization" in arguments)
    assert (served.low_bytes or served.total_bytes) <= served.total_bytes


def test_a_quantised_checkpoint_is_loaded_as_it_is():
    packed = structs.replace(MODEL, quantization="fp8")

    for arguments in ({"dtype": "float32"}, {"quantization": "fp8"}):
        assert as_served(packed, server_args(arguments)) == packed

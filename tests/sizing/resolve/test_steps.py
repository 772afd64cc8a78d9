"""Chunk, decode batch and memory fraction that a launch leaves open."""

from __future__ import annotations

import pytest

from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import Vision
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import A100, B200, H100, L40S, MI300X, T4, dense, latent, vision


def run(args, model=None, gpu=H100):
    return resolve(server_args(args), model or dense(), gpu)


@pytest.mark.parametrize(
    ("memory_gib", "tp", "chunk", "batch"),
    [
        (15, 1, 2048, 8),
        (15, 8, 2048, 8),
        (24, 1, 4096, 48),
        (24, 4, 4096, 160),
        (48, 2, 4096, 32),
        (48, 4, 4096, 160),
        (80, 1, 8192, 256),
        (80, 4, 8192, 512),
        (141, 1, 8192, 256),
        (141, 8, 8192, 512),
        (180, 1, 16384, 512),
    ],
)
def test_memory_sets_the_chunk_and_the_decode_batch(memory_gib, tp, chunk, batch):
    card = GpuSpec(name="card", memory_mib=memory_gib * 1024, sm=90)

    resolved = run({"tp_size": tp}, gpu=card)

    assert (resolved.chunked_prefill_size, resolved.decode_graph_max_bs) == (chunk, batch)


@pytest.mark.parametrize(
    ("args", "gpu", "reserve_mib"),
    [
        ({}, T4, 512 + 2048 * 1.5 + 128 + 8 * 2),
        ({"tp_size": 8}, L40S, 512 + 4096 * 1.5 + 1024 + 160 * 2),
        ({}, H100, 512 + 8192 * 1.5 + 128 + 256 * 2),
        ({"chunked_prefill_size": 2048}, H100, 10 * 1024),
        ({"chunked_prefill_size": -1}, H100, 512 + 16384 * 1.5 + 128 + 256 * 2),
        ({"disaggregation_mode": "prefill"}, H100, 512 + 8192 * 1.5 + 128),
        (
            {"disaggregation_mode": "decode", "max_running_requests": 64},
            T4,
            512 + 2048 * 1.5 + 128 + 8 * 2,
        ),
        (
            {
                "disaggregation_mode": "decode",
                "max_running_requests": 1024,
                "speculative_algorithm": "EAGLE",
                "speculative_num_steps": 3,
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": 4,
            },
            T4,
            512 + 1024 * 4 * 1.5 + 128 + 8 * 2,
        ),
        (
            {"tp_size": 8, "dp_size": 8, "enable_dp_attention": True},
            B200,
            512 + 16384 * 1.5 + 1024 + 512 * 2 + 512 * 8 * 3 + 512 * 8 * 1.5,
        ),
        (
            {"tp_size": 2, "dp_size": 2, "enable_dp_attention": True},
            H100,
            512 + 8192 * 1.5 + 256 + 256 * 2 + 256 * 2 * 3,
        ),
        ({"tp_size": 8, "moe_a2a_backend": "deepep"}, A100, 512 + 12288 + 1024 + 1024 + 2048),
        ({"disable_cuda_graph": True}, H100, 512 + 8192 * 1.5 + 128),
        ({"cuda_graph_max_bs_decode": 1024}, H100, 512 + 8192 * 1.5 + 128 + 1024 * 2),
        ({"cuda_graph_bs_decode": [1, 2, 40]}, H100, 512 + 8192 * 1.5 + 128 + 40 * 2),
        # 50 sizes up to 4096 tokens and 8 more up to 8192
        (
            {"cuda_graph_backend_prefill": "breakable"},
            H100,
            512 + 8192 * 1.5 + 128 + 256 * 2 + 58 * 8,
        ),
        (
            {"cuda_graph_config": {"prefill": {"backend": "full", "bs": [64, 128]}}},
            H100,
            512 + 8192 * 1.5 + 128 + 256 * 2 + 2 * 8,
        ),
    ],
)
def test_the_fraction_leaves_room_for_activations_and_graphs(args, gpu, reserve_mib):
    fraction = run(args, gpu=gpu).mem_fraction_static

    assert fraction == round((gpu.memory_mib - reserve_mib) / gpu.memory_mib, 3)


def test_captured_prefill_of_latent_attention_takes_a_gib_and_a_half():
    plain = run({}, latent()).mem_fraction_static

    captured = run({"cuda_graph_backend_prefill": "breakable"}, latent()).mem_fraction_static

    assert captured == pytest.approx(plain - 1536 / H100.memory_mib, abs=1e-3)


@pytest.mark.parametrize(
    ("layers", "hidden", "factor"),
    [
        (24, 1024, 0.95),
        (27, 1152, 0.909736328125),
        (27, 1024, 0.938125),
        (63, 5120, 0.76),
        (2, 64, 0.95 * 1.05),
    ],
)
def test_a_vision_tower_takes_its_share(layers, hidden, factor):
    model = vision(vision=Vision(num_layers=layers, hidden_size=hidden))

    fraction = run({}, model).mem_fraction_static

    assert fraction == pytest.approx(run({}).mem_fraction_static * factor, rel=1e-12)


@pytest.mark.parametrize(
    "args",
    [
        {"disaggregation_mode": "decode"},
        {"language_only": True},
        {"language_model_only": True},
        {"enable_multimodal": False},
    ],
)
def test_a_node_that_encodes_no_images_keeps_the_fraction(args):
    model = vision()
    plain = {name: value for name, value in args.items() if name == "disaggregation_mode"}

    assert run(args, model).mem_fraction_static == run(plain).mem_fraction_static


def test_dp_attention_divides_the_chunk_after_the_fraction_is_set():
    args = {"tp_size": 4, "dp_size": 4, "enable_dp_attention": True, "cuda_graph_max_bs_decode": 1}

    shared, alone = run(args), run({"tp_size": 4, "cuda_graph_max_bs_decode": 1})

    assert (shared.chunked_prefill_size, alone.chunked_prefill_size) == (2048, 8192)
    assert shared.mem_fraction_static == round(
        (81559 - (512 + 8192 * 1.5 + 512 + 2 + 12)) / 81559, 3
    )


def test_given_values_stand():
    args = {
        "mem_fraction_static": 0.5,
        "chunked_prefill_size": 1024,
        "max_prefill_tokens": 32768,
        "cuda_graph_max_bs_decode": 7,
    }

    resolved = run(args, vision())

    assert resolved.mem_fraction_static == 0.5
    assert resolved.chunked_prefill_size == 1024
    assert resolved.max_prefill_tokens == 32768
    assert resolved.decode_graph_max_bs == 7


def test_running_requests_cap_the_default_decode_batch_only():
    assert run({"max_running_requests": 16}).decode_graph_max_bs == 16
    assert run({"max_running_requests": 4096}).decode_graph_max_bs == 256
    given = {"max_running_requests": 16, "cuda_graph_max_bs_decode": 64}
    assert run(given).decode_graph_max_bs == 64


def test_aiter_takes_its_workspace_out_of_a_given_fraction_too():
    resolved = run({"mem_fraction_static": 0.8}, gpu=MI300X)

    assert resolved.attention_backend == "aiter"
    assert resolved.mem_fraction_static == pytest.approx(0.8 * 0.85)
    assert resolved.provenance["mem_fraction_static"].assumed


def test_models_that_cannot_split_images_are_not_chunked():
    assert run({}, vision("MllamaForConditionalGeneration")).chunked_prefill_size == -1

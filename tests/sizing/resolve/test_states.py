"""How hybrid linear models cache their states, and what overlap and paging do to it."""

from __future__ import annotations

import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.server import server_args
from tests.sizing.resolve.launches import H100, dense, hybrid


def run(args, model=None, gpu=H100):
    return resolve(server_args(args), model or hybrid(), gpu)


@pytest.mark.parametrize(
    ("args", "architecture", "strategy", "overlap"),
    [
        ({}, "Qwen3NextForCausalLM", "extra_buffer", True),
        ({"disable_overlap_schedule": True}, "Qwen3NextForCausalLM", "no_buffer", False),
        (
            {"disable_overlap_schedule": True, "page_size": 64},
            "Qwen3NextForCausalLM",
            "extra_buffer",
            False,
        ),
        ({}, "Lfm2ForCausalLM", "no_buffer", False),
        ({"disable_radix_cache": True}, "Lfm2ForCausalLM", "no_buffer", True),
        ({"linear_attn_backend": "cutedsl"}, "Qwen3NextForCausalLM", "no_buffer", False),
        ({"pp_size": 2}, "Qwen3NextForCausalLM", "extra_buffer", False),
        ({}, "InklingForConditionalGeneration", "extra_buffer", True),
        ({}, "MiniMaxText01ForCausalLM", "no_buffer", True),
        (
            {"mamba_radix_cache_strategy": "extra_buffer_lazy"},
            "FalconH1ForCausalLM",
            "extra_buffer_lazy",
            True,
        ),
        ({"disaggregation_mode": "decode"}, "Qwen3NextForCausalLM", "no_buffer", True),
    ],
)
def test_the_strategy_follows_overlap_and_paging(args, architecture, strategy, overlap):
    resolved = run(args, hybrid(architecture))

    assert (resolved.mamba_strategy, resolved.overlap_schedule) == (strategy, overlap)


def test_models_without_recurrent_state_have_no_strategy():
    assert run({}, dense()).mamba_strategy is None
    assert run({"disable_radix_cache": True}, dense()).mamba_strategy is None


@pytest.mark.parametrize(
    ("args", "architecture", "problem"),
    [
        ({"page_size": 16}, "Lfm2ForCausalLM", "page_size 1 only, not 16"),
        ({"mamba_radix_cache_strategy": "no_buffer"}, "FalconH1ForCausalLM", "overlapped schedule"),
        ({"mamba_radix_cache_strategy": "extra_buffer"}, "Lfm2ForCausalLM", "use no_buffer|served"),
        (
            {
                "mamba_radix_cache_strategy": "extra_buffer_lazy",
                "disaggregation_mode": "prefill",
            },
            "FalconH1ForCausalLM",
            "disaggregation",
        ),
        ({"page_size": 512}, "FalconH1ForCausalLM", "does not divide"),
        (
            {"speculative_algorithm": "DFLASH", "speculative_num_draft_tokens": 512},
            "FalconH1ForCausalLM",
            "below the 512 draft tokens",
        ),
    ],
)
def test_strategies_that_do_not_fit_are_refused(args, architecture, problem):
    with pytest.raises(CombinationError, match=problem):
        run(args, hybrid(architecture))


def test_extra_buffers_without_state_are_refused():
    with pytest.raises(CombinationError, match="LlamaForCausalLM has not"):
        run({"mamba_radix_cache_strategy": "extra_buffer"}, dense())


def test_lazy_buffers_without_overlap_fail_when_the_slots_are_counted():
    lazy = {"mamba_radix_cache_strategy": "extra_buffer_lazy", "disable_overlap_schedule": True}

    assert "overlapped schedule" in str(run(lazy).pool_refusal)
    with pytest.raises(CombinationError, match="overlapped schedule"):
        run({**lazy, "speculative_algorithm": "EAGLE"})


@pytest.mark.parametrize(
    ("args", "architecture", "state_ratio", "sliding_ratio"),
    [
        ({}, "Qwen3NextForCausalLM", 0.9, 0.8),
        ({}, "InklingForConditionalGeneration", 0.1, 0.1),
        (
            {"mamba_full_memory_ratio": 2.0, "swa_full_tokens_ratio": 0.5},
            "InklingForConditionalGeneration",
            2.0,
            0.5,
        ),
    ],
)
def test_ratios_of_state_and_sliding_memory(args, architecture, state_ratio, sliding_ratio):
    resolved = run(args, hybrid(architecture))

    assert resolved.mamba_full_memory_ratio == state_ratio
    assert resolved.swa_full_tokens_ratio == sliding_ratio


def test_step_models_share_one_pool_under_a_host_tier():
    args = {"enable_hierarchical_cache": True, "swa_full_tokens_ratio": 0.5}

    resolved = run(args, dense("Step3p5ForCausalLM"))

    assert not resolved.two_pools
    assert resolved.swa_full_tokens_ratio == 1.0
    assert run({}, dense("Step3p5ForCausalLM")).two_pools

"""kvplan resolves every recorded launch to the engine's own arguments, or refuses it as the engine did."""

from __future__ import annotations

import math

import pytest

from kvplan.errors import CombinationError
from kvplan.sizing.resolved import Resolved
from tests.sizing.resolve.golden import FILES, records, resolve_case

# machine-dependent where the launch names them: the records count them in `defaults` only
DEFAULTS_ONLY = {"attention_backend", "decode_graph_max_bs", "max_prefill_tokens"}


@pytest.mark.parametrize("name", FILES)
def test_recorded_launches_resolve_as_in_the_engine(name, shared):
    ignored = set() if name == "defaults" else DEFAULTS_ONLY

    differences = [
        f"{case['id']}: {field} is {got}, the engine says {wanted}"
        for case, answer in records(shared, name)
        if "error" not in answer
        for field, wanted in answer["resolved"].items()
        if field not in ignored and not same(got := engine_view(resolve_case(case))[field], wanted)
    ]

    assert differences == []


@pytest.mark.parametrize("name", FILES)
def test_recorded_refusals_are_refused_and_nothing_else_is(name, shared):
    wrong = []
    for case, answer in records(shared, name):
        kind = answer.get("error", {}).get("kind")
        try:
            refused = resolve_case(case).pool_refusal
        except CombinationError as error:
            refused = str(error)
        if kind != "memory" and (refused is not None) != (kind == "combination"):
            wrong.append(f"{case['id']}: {refused}, the engine says {answer.get('error')}")

    assert wrong == []


def engine_view(resolved: Resolved) -> dict[str, object]:
    """A resolution by the names of the records."""
    speculation = resolved.speculation
    return {
        "mem_fraction_static": resolved.mem_fraction_static,
        "page_size": resolved.page_size,
        "chunked_prefill_size": resolved.chunked_prefill_size,
        "max_prefill_tokens": resolved.max_prefill_tokens,
        "max_running_requests_arg": resolved.max_running_requests,
        "decode_graph_max_bs": resolved.decode_graph_max_bs,
        "attention_backend": resolved.attention_backend,
        "kv_cache_dtype": resolved.kv_cache_dtype,
        "attn_tp_size": resolved.widths.attn_tp,
        "attn_dp_size": resolved.widths.attn_dp,
        "attn_dcp_size": resolved.widths.attn_dcp,
        "context_len": resolved.context_length,
        "speculative": {
            "algorithm": speculation.algorithm,
            "num_steps": speculation.num_steps,
            "eagle_topk": speculation.eagle_topk,
            "num_draft_tokens": speculation.num_draft_tokens,
        },
        "overlap_schedule": resolved.overlap_schedule,
        "radix_cache": resolved.radix_cache,
        "swa_full_tokens_ratio": resolved.swa_full_tokens_ratio,
        "mamba_full_memory_ratio": resolved.mamba_full_memory_ratio,
    }


def same(got: object, wanted: object) -> bool:
    """Equal, floats within the records' own 1e-9."""
    if isinstance(got, float) and isinstance(wanted, float):
        return math.isclose(got, wanted, rel_tol=1e-9)
    return got == wanted

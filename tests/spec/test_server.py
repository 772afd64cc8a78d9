"""Server arguments are read by field name, with the engine's own values and no others."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.spec.server import GraphPhase, ServerArgs, server_args
from tests.sizing.resolve.golden import FILES, records


def test_a_bare_launch_leaves_everything_to_the_engine():
    assert server_args({}) == ServerArgs()
    assert server_args({"page_size": None}) == ServerArgs()


def test_values_are_kept_as_given():
    args = server_args(
        {
            "tp_size": 8,
            "mem_fraction_static": 0.85,
            "kv_cache_dtype": "bf16",
            "speculative_algorithm": "nextn",
            "cuda_graph_bs_decode": [1, 2, 4],
            "cuda_graph_config": {"prefill": {"backend": "breakable"}},
        }
    )

    assert (args.tp_size, args.mem_fraction_static, args.kv_cache_dtype) == (8, 0.85, "bf16")
    assert args.speculative_algorithm == "NEXTN"
    assert args.cuda_graph_bs_decode == (1, 2, 4)
    assert args.cuda_graph_config is not None
    assert args.cuda_graph_config.prefill == GraphPhase(backend="breakable")


@pytest.mark.parametrize(
    ("values", "problem", "hint"),
    [
        ({"tp_sise": 2}, "unknown field 'tp_sise'", "did you mean 'tp_size'?"),
        ({"tp_size": 0}, "'tp_size' must be an integer >= 1, got 0", None),
        ({"tp_size": 2.5}, "'tp_size' must be an integer or null, got 2.5", None),
        ({"page_size": True}, "'page_size' must be an integer or null, got true", None),
        ({"chunked_prefill_size": -2}, "'chunked_prefill_size' must be an integer >= -1", None),
        ({"mem_fraction_static": 1.5}, "'mem_fraction_static' must be a number <= 1.0", None),
        ({"mem_fraction_static": float("nan")}, "'mem_fraction_static' must be a number", None),
        ({"max_total_tokens": 10**15}, "'max_total_tokens' must be an integer <= ", None),
        ({"kv_cache_dtype": "nvfp44"}, "unknown value 'nvfp44'", "did you mean 'nvfp4'?"),
        ({"attention_backend": "fa5"}, "unknown value 'fa5'", "did you mean"),
        ({"speculative_algorithm": "eagel"}, "unknown value 'EAGEL'", "did you mean 'EAGLE'?"),
        ({"speculative_algorithm": "MTP"}, "unknown value 'MTP'", "NEXTN"),
        ({"cuda_graph_config": {"decode": {"maxbs": 4}}}, "unknown field 'maxbs'", "'max_bs'"),
    ],
)
def test_what_the_engine_does_not_know_is_refused_with_its_place(values, problem, hint):
    with pytest.raises(InputError) as refused:
        server_args(values, where="launch.yaml")

    assert refused.value.problem.startswith(problem)
    assert str(refused.value.where).startswith("launch.yaml")
    assert hint is None or hint in str(refused.value.hint)


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_launch_is_read(name, shared):
    for case, _ in records(shared, name):
        args = server_args(case["args"])
        assert all(getattr(args, field) == value for field, value in plain(case["args"]))


def plain(args):
    return [(field, value) for field, value in args.items() if not isinstance(value, list)]

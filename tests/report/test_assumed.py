"""What a replay leaves out of a launch is said, in a sentence of its own."""

from __future__ import annotations

import pytest

from kvplan.report.assumed import launch_notes
from tests.sizing.launched import planned
from tests.sizing.resolve.launches import (
    H100,
    MI300X,
    compressed,
    dense,
    hybrid,
    latent,
    sparse_latent,
)


@pytest.mark.parametrize(
    ("model", "gpu", "args", "said"),
    [
        (dense(), H100, {}, None),
        (dense(), H100, {"pp_size": 2}, "micro-batches"),
        (sparse_latent(), H100, {"enable_hisparse": True, "disable_radix_cache": True}, "HiSparse"),
        (hybrid(), H100, {"enable_unified_memory": True}, "unified pool"),
        (latent("DeepseekV2ForCausalLM"), H100, {"enable_kv_cache_sharding": True, "tp_size": 4,
         "disaggregation_mode": "prefill", "page_size": 64, "context_length": 1000}, "one of 4 ranks"),
        (compressed(), MI300X, {"dsv4_unified_kv": True}, "rings of the request rows"),
    ],
)  # fmt: skip
def test_a_launch_s_unmodelled_parts_are_named(model, gpu, args, said):
    notes = tuple(launch_notes(planned(model, gpu, **args)))

    if said is None:
        assert not notes
    else:
        assert said in notes[0]

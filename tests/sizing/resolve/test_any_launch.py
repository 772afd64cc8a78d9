"""Any launch resolves or is refused: no other error, and widths and reserves that hang together."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import inspect

from kvplan.errors import CombinationError
from kvplan.sizing.reserves import old_alloc_len_per_decode, reserves
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.server import ServerArgs, server_args
from tests.sizing.resolve.launches import (
    A100,
    B200,
    H100,
    MI300X,
    RTX_5090,
    T4,
    compressed,
    dense,
    hybrid,
    kimi,
    latent,
    sparse_latent,
    vision,
)

CARDS = [T4, A100, H100, B200, RTX_5090, MI300X]
MODELS = [
    dense(),
    dense("GptOssForCausalLM", attention_sinks=True),
    dense("MiMoV2FlashForCausalLM"),
    dense("MiniMaxM3SparseForConditionalGeneration", multimodal=True),
    latent(),
    sparse_latent(),
    sparse_latent("GlmMoeDsaForCausalLM"),
    compressed(),
    hybrid(),
    hybrid("NemotronHForCausalLM"),
    hybrid("Lfm2ForCausalLM"),
    kimi("KimiK3ForConditionalGeneration"),
    vision("Qwen3VLForConditionalGeneration"),
]
DRAFTS = [None, dense("DFlashDraftModel", block_size=16), dense("Gemma4AssistantForCausalLM")]


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values that fit one field of ServerArgs."""
    match kind:
        case inspect.UnionType():
            return st.one_of(*(values(option) for option in kind.types))
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(kind.values)
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            low, high = kind.ge if kind.ge is not None else 0, kind.le or 1 << 20
            usual = [value for value in (1, 2, 4, 8, 16, 64, 8192) if low <= value <= high]
            return st.sampled_from(usual) | st.integers(low, high)
        case inspect.FloatType():
            return st.floats(0.01, kind.le or 4.0)
        case inspect.StrType():
            return st.text(max_size=4)
        case inspect.VarTupleType():
            return st.lists(values(kind.item_type), min_size=1, max_size=4)
        case inspect.StructType():
            fields = {field.encode_name: values(field.type) for field in kind.fields}
            return st.fixed_dictionaries({}, optional=fields)
    raise AssertionError(kind)


STRUCT = inspect.type_info(ServerArgs)
assert isinstance(STRUCT, inspect.StructType)
FIELDS = {field.encode_name: values(field.type) for field in STRUCT.fields}
ARGUMENTS = st.lists(st.sampled_from(sorted(FIELDS)), max_size=8, unique=True).flatmap(
    lambda names: st.fixed_dictionaries({name: FIELDS[name] for name in names})
)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    args=ARGUMENTS,
    model=st.sampled_from(MODELS),
    gpu=st.sampled_from(CARDS),
    draft=st.sampled_from(DRAFTS),
)
def test_any_launch_resolves_or_is_refused(args, model, gpu, draft):
    try:
        resolved = resolve(server_args(args), model, gpu, draft)
    except CombinationError:
        return

    widths, found = resolved.widths, reserves(resolved)
    assert widths.attn_tp * widths.attn_dp * widths.attn_cp == widths.tp
    assert resolved.page_size >= 1
    assert found.row_width > resolved.context_length
    assert old_alloc_len_per_decode(resolved) >= 1
    assert all(str(origin) for origin in resolved.provenance.values())
    assert msgspec.json.encode(resolved)

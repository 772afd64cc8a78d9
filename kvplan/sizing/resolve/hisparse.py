"""HiSparse: `enable_hisparse` with its JSON configuration, and what it does not go with."""

from __future__ import annotations

import json
from typing import Any

from kvplan.errors import CombinationError, InputError
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.parallel import Layout
from kvplan.sizing.resolved import Hisparse
from kvplan.sizing.shapes import kv_heads_per_rank
from kvplan.spec.model import Mha

WHERE = "server arguments: hisparse_config"
TOP_K = 2048
HOST_TO_DEVICE = 2
SWAP_BLOCK, MOST_SWAP_BLOCK = 960, 1024
SWAPPED_RATIO = 4  # DeepSeek-V4 swaps the latents of its c4 layers
SPEC_TOKENS = range(2, 5)  # draft tokens that its speculative swap serves
SPEC_TOP_K = 1024


def hisparse(launch: Launch, layout: Layout, page: int) -> Hisparse | None:
    """The settled configuration, None where it is off.

    InputError for a configuration that cannot be read; CombinationError for one that the engine
    refuses.
    """
    if not launch.args.enable_hisparse:
        return None
    given = configuration(launch.args.hisparse_config)
    top_k = whole(given, "top_k", TOP_K)
    found = Hisparse(
        host_to_device_ratio=whole(given, "host_to_device_ratio", HOST_TO_DEVICE),
        top_k=top_k,
        device_buffer_tokens=whole(given, "device_buffer_size", 2 * top_k),
    )
    whole(given, "swap_in_block_size", SWAP_BLOCK, MOST_SWAP_BLOCK)
    if found.device_buffer_tokens < top_k:
        raise CombinationError(
            f"device_buffer_size {found.device_buffer_tokens} is below top_k {top_k}"
        )
    check_model(launch, layout, found, page)
    return found


def configuration(text: str | None) -> dict[str, Any]:
    """The JSON mapping of `hisparse_config`."""
    if text is None:
        return {}
    try:
        given = json.loads(text)
    except ValueError as error:
        raise InputError(f"'hisparse_config' is no JSON: {error}", where=WHERE) from None
    if not isinstance(given, dict):
        raise InputError("'hisparse_config' is no JSON mapping", where=WHERE)
    return given


def whole(given: dict[str, Any], key: str, default: int, most: int = 1 << 30) -> int:
    """A whole number above zero."""
    value = given.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(
            f"'{key}' of 'hisparse_config' must be an integer from 1 to {most}, got {value!r}",
            where=WHERE,
        )
    return value


def check_model(launch: Launch, layout: Layout, found: Hisparse, page: int) -> None:
    """Refuse what the swap of a model's kind does not serve."""
    model, args = launch.model, launch.args
    speculates = args.speculative_algorithm is not None
    if model.compressed is not None and speculates:
        raise CombinationError("HiSparse on DeepSeek-V4 does not speculate")
    in_page = page // SWAPPED_RATIO if model.compressed is not None else page
    if found.device_buffer_tokens % in_page:
        raise CombinationError(
            f"device_buffer_size {found.device_buffer_tokens} is no multiple of {in_page}, a page"
        )
    if speculates and found.top_k < SPEC_TOP_K:
        raise CombinationError(f"HiSparse speculates with top_k {SPEC_TOP_K} or more")
    if model.sparse is not None and isinstance(model.attention, Mha):
        heads = kv_heads_per_rank(model.attention.num_kv_heads, layout.attn_tp)
        if heads != 1:
            raise CombinationError(
                f"HiSparse on MiniMax-M3 needs one KV head a rank, not {heads}",
                hint="raise tp_size",
            )


def check_draft_tokens(draft_tokens: int | None) -> None:
    """Refuse draft widths that the speculative swap does not serve."""
    if draft_tokens is not None and draft_tokens not in SPEC_TOKENS:
        raise CombinationError(f"HiSparse speculates with 2 to 4 draft tokens, not {draft_tokens}")

"""How many tokens one prefill step computes."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin, given
from kvplan.sizing.resolve.launch import Launch

DEFAULT_MAX_PREFILL_TOKENS = 16384
LARGE_TP = 4


class MemoryClass(msgspec.Struct, frozen=True):
    """Defaults of cards with less than `below_mib` of memory."""

    below_mib: float
    chunk: int
    decode_batch: int
    decode_batch_large_tp: int


MEMORY_CLASSES = (
    MemoryClass(20 * 1024, 2048, 8, 8),
    MemoryClass(35 * 1024, 4096, 48, 160),
    MemoryClass(60 * 1024, 4096, 32, 160),
    MemoryClass(160 * 1024, 8192, 256, 512),
    MemoryClass(float("inf"), 16384, 512, 512),
)

# multimodal models whose image tokens cannot be split over chunks
UNCHUNKED_ARCHITECTURES = frozenset(
    {
        "Grok1VForCausalLM",
        "Grok1AForCausalLM",
        "LlavaLlamaForCausalLM",
        "MllamaForConditionalGeneration",
        "MossVLForConditionalGeneration",
    }
)


def memory_class(memory_mib: float) -> MemoryClass:
    """The row of defaults that a card's memory falls into."""
    for row in MEMORY_CLASSES:
        if memory_mib < row.below_mib:
            return row
    raise AssertionError("the last row has no bound")


def asked_chunk(launch: Launch) -> tuple[int, Origin]:
    """Chunk size over all DP ranks; -1 where prefill is not chunked."""
    if launch.args.chunked_prefill_size is not None:
        return launch.args.chunked_prefill_size, GIVEN
    chunk = memory_class(launch.gpu.memory_mib).chunk
    return chunk, Origin("default", "chunk-by-memory", "{0} MiB card", (launch.gpu.memory_mib,))


def rank_chunk(launch: Launch, chunk: int, attn_dp: int, origin: Origin) -> tuple[int, Origin]:
    """Chunk size of one DP rank: DP attention shares the chunk, some models take none."""
    if launch.multimodal and launch.model.architecture in UNCHUNKED_ARCHITECTURES:
        return -1, Origin("default", "unchunked-model", "{0}", (launch.model.architecture,))
    if attn_dp == 1:
        return chunk, origin
    return chunk // attn_dp, Origin("derived", "chunk-over-dp", "{0} // {1}", (chunk, attn_dp))


def max_prefill_tokens(launch: Launch) -> tuple[int, Origin]:
    """Bound on the tokens of one prefill batch."""
    asked = launch.args.max_prefill_tokens
    origin = given(asked, default=Origin("default", "max-prefill-tokens"))
    return asked or DEFAULT_MAX_PREFILL_TOKENS, origin


def check_chunk(chunk: int, page_size: int, mode: str) -> None:
    """Refuse a chunk that ends inside a page."""
    if chunk > 0 and mode != "decode" and chunk % page_size:
        raise CombinationError(
            f"chunked_prefill_size {chunk} is not a multiple of page_size {page_size}",
            hint=f"use {max(1, chunk // page_size) * page_size}",
        )

"""Bytes that one token's KV takes in one layer, for each way of storing it."""

from __future__ import annotations

from kvplan.units import ceil_div

ELEMENT_BYTES = {
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float4_e2m1fn_x2": 1,  # two values a byte; recipes halve the element count
}
FP4_BLOCK = 16  # elements that share one scale byte
MXFP8_BLOCK = 32
INDEX_BLOCK = 128  # index elements that share one float32 scale
ROPE_BYTES = 2  # packed DSA rows keep the rope part in bf16


def mha_bytes(heads: int, dims: int, kv_dtype: str) -> int:
    """K and V of one token: dims is head_dim + v_head_dim."""
    return heads * dims * ELEMENT_BYTES[kv_dtype]


def mla_bytes(kv_lora_rank: int, rope_dim: int, kv_dtype: str) -> int:
    """One latent row; FP4 stores half the bytes and a scale byte per block."""
    width = kv_lora_rank + rope_dim
    if kv_dtype == "float4_e2m1fn_x2":
        return width // 2 + width // FP4_BLOCK
    return width * ELEMENT_BYTES[kv_dtype]


def dsa_packed_bytes(kv_lora_rank: int, rope_dim: int) -> int:
    """A DSA row in fp8 with its scales: 512 + 16 + 128 = 656 bytes for DeepSeek-V3.2."""
    return kv_lora_rank + kv_lora_rank // INDEX_BLOCK * 4 + rope_dim * ROPE_BYTES


def index_key_bytes(head_dim: int, kpool: int) -> int:
    """One index key with its scale: 132 bytes for a head of 128, pooled over kpool tokens."""
    return ceil_div(head_dim + head_dim // INDEX_BLOCK * 4, kpool)


def mxfp8_scale_bytes(heads: int, dims: int, num_layers: int) -> int:
    """One byte per 32 elements, floored over all layers together."""
    return heads * dims * num_layers // MXFP8_BLOCK


def fp4_bytes(heads: int, head_dim: int, num_layers: int, *, num_scale_layouts: int) -> int:
    """K and V in FP4 with their scale layouts, over all layers."""
    data = heads * (head_dim // 2) * num_layers * 2
    scales = heads * (head_dim // FP4_BLOCK) * num_layers * 2
    return data + scales * num_scale_layouts


def fp4_block16_bytes(heads: int, head_dim: int, num_layers: int) -> int:
    """The block-16 recipe floors its scales over all heads of a layer."""
    data = heads * (head_dim // 2) * num_layers * 2
    return data + heads * head_dim // FP4_BLOCK * num_layers * 2

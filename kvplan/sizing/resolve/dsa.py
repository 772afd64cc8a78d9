"""Sparse attention (DSA): which kernels read the cache, hence which rows it stores in fp8."""

from __future__ import annotations

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import Origin
from kvplan.sizing.resolve.launch import BLACKWELL, Launch

HIP_RAW = frozenset({"tilelang", "triton", "aiter"})
HISPARSE_CUDA = {
    "bfloat16": frozenset({"flashmla_sparse"}),
    "fp8_e4m3": frozenset({"flashmla_kv", "flashinfer_sparse_mla"}),
}
TILELANG_LEAST_SM = 89


def dsa_backends(launch: Launch, kv_dtype: str, dcp: int) -> tuple[str, str]:
    """(prefill, decode) kernels of sparse attention."""
    args = launch.args
    prefill, decode = args.dsa_prefill_backend, args.dsa_decode_backend
    if dcp > 1:
        prefill, decode = prefill or "trtllm", decode or "trtllm"
    pair = default_pair(launch, kv_dtype)
    chosen = prefill or pair[0], decode or pair[1]
    check_pair(launch, kv_dtype, chosen, dcp)
    return chosen


def default_pair(launch: Launch, kv_dtype: str) -> tuple[str, str]:
    """Kernels by card and cache dtype."""
    family, fp8 = launch.family, kv_dtype == "fp8_e4m3"
    if launch.model.attention_sinks:
        return "flashmla_sparse", "flashmla_sparse"
    if launch.model.architecture == "GlmMoeDsaForCausalLM" and family == "sm120" and fp8:
        return "flashinfer_sparse_mla", "flashinfer_sparse_mla"
    if launch.args.enable_hisparse:
        name = "tilelang" if family == "hip" else "flashmla_kv" if fp8 else "flashmla_sparse"
        return name, name
    if family == "hip":
        return "triton", "triton"
    blackwell = family in BLACKWELL
    if fp8:
        name = "trtllm" if blackwell else "flashmla_kv"
        return name, name
    return "flashmla_sparse", "trtllm" if blackwell else "fa3"


def check_pair(launch: Launch, kv_dtype: str, pair: tuple[str, str], dcp: int) -> None:
    """Refuse kernels that the card, the cache dtype or HiSparse rules out."""
    hip, fp8 = launch.family == "hip", kv_dtype == "fp8_e4m3"
    if launch.model.attention_sinks and set(pair) != {"flashmla_sparse"}:
        raise CombinationError("sparse attention with sinks runs on flashmla_sparse only")
    if not hip and "triton" in pair:
        raise CombinationError(
            "the triton kernels of sparse attention serve AMD only",
            hint="flashmla_kv on Hopper, trtllm on Blackwell",
        )
    if launch.args.enable_hisparse:
        allowed = HIP_RAW if hip else HISPARSE_CUDA[kv_dtype]
        if not allowed.issuperset(pair):
            raise CombinationError(
                f"HiSparse with {kv_dtype} does not run on {' and '.join(pair)}",
                hint=f"one of: {', '.join(sorted(allowed))}",
            )
    if hip or not fp8 or "tilelang" not in pair:
        return
    if set(pair) != {"tilelang"}:
        raise CombinationError("tilelang stores other fp8 rows than its partner: use it for both")
    if dcp > 1 or (launch.gpu.sm or 0) < TILELANG_LEAST_SM:
        raise CombinationError("tilelang's fp8 cache needs SM 8.9 or newer and dcp_size 1")


def raw_layout(launch: Launch, pair: tuple[str, str]) -> tuple[bool, Origin]:
    """Whether fp8 rows are kept without scales: trtllm in the node's own phase, tilelang, AMD."""
    mode = launch.args.disaggregation_mode
    readers = {"prefill": pair[:1], "decode": pair[1:]}.get(mode or "null", pair)
    hip = launch.family == "hip" and not HIP_RAW.isdisjoint(pair)
    raw = "trtllm" in readers or hip or set(pair) == {"tilelang"}
    return raw, Origin("default", "dsa-layout", "prefill {0}, decode {1}", pair, assumed=hip)

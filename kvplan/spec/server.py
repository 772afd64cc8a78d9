"""The SGLang server arguments that have a say in sizing, by their field names."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError

DRAFT_FIELD = (
    "speculative_draft_model_path"  # names a model, which a launch reads beside the arguments
)
Count = Annotated[int, Meta(ge=1, le=65536)]
Tokens = Annotated[int, Meta(ge=1, le=10**12)]
Fraction = Annotated[float, Meta(gt=0, le=1)]
Ratio = Annotated[float, Meta(gt=0, le=1000)]
GraphSizes = Annotated[tuple[Count, ...], Meta(min_length=1)]

AttentionBackend = Literal[
    "triton", "torch_native", "flex_attention", "dsa", "nsa", "qsa", "dsv4", "compressed",
    "fa3", "fa4", "flashinfer", "llada2_cfg_flashinfer", "flashmla", "trtllm_mla", "cutedsl_mla",
    "tokenspeed_mla", "trtllm_mha", "hpc_ops", "minicpm_flashattn", "minicpm_flashinfer",
    "aiter", "wave", "intel_amx", "ascend", "intel_xpu",
]  # fmt: skip
DsaBackend = Literal[
    "flashmla_sparse", "flashmla_sparse_q8", "flashmla_kv", "flashmla_auto",
    "flashinfer_sparse_mla", "triton_sparse_mla", "fa3", "tilelang", "triton", "aiter", "trtllm",
    "intel_xpu",
]  # fmt: skip
KvCacheDtype = Literal[
    "auto", "fp8_e5m2", "fp8_e4m3", "mxfp8", "bf16", "bfloat16", "nvfp4", "fp4_mx_block16"
]
Algorithm = Literal[
    "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK", "FROZEN_KV_MTP", "UNO"
]
MoeA2aBackend = Literal[
    "none", "deepep", "deepep_v2", "mooncake", "nixl", "mori", "ascend_fuseep", "flashinfer",
    "flashinfer_megamoe", "megamoe", "pplx", "ascend_tp",
]  # fmt: skip
LinearBackend = Literal[
    "triton", "cutedsl", "flashinfer", "flashkda", "nvidia_kda", "ptx_kda", "helion", "intel_xpu"
]
GraphBackend = Literal["full", "breakable", "disabled"]


class GraphPhase(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """CUDA graph settings of one phase, as in `cuda_graph_config`."""

    backend: GraphBackend | None = None
    max_bs: Count | None = None
    bs: GraphSizes | None = None
    max_seq_len: int | None = None
    max_context_size: int | None = None
    full_prefill_max_req: int | None = None
    full_prefill_prefix_chunk_tokens: int | None = None


class GraphConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`cuda_graph_config`: it wins over the single flags."""

    decode: GraphPhase = GraphPhase()
    prefill: GraphPhase = GraphPhase()


class ServerArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A launch as it was asked for; None leaves an argument to the engine.

    Sizes are in tokens, ratios plain, hicache_size in decimal GB a rank. The last five fields
    are the engine's environment variables that change a size.
    """

    tp_size: Count | None = None
    pp_size: Count | None = None
    dp_size: Count | None = None
    attn_dp_size: Count | None = None
    enable_dp_attention: bool | None = None
    attn_cp_size: Count | None = None
    dcp_size: Count | None = None
    ep_size: Count | None = None
    dwdp_size: Count | None = None
    nnodes: Count | None = None
    enable_prefill_cp: bool | None = None
    cp_strategy: Literal["zigzag", "interleave"] | None = None
    moe_a2a_backend: MoeA2aBackend | None = None
    enable_two_batch_overlap: bool | None = None
    enable_dp_lm_head: bool | None = None

    dtype: Literal["auto", "half", "float16", "bfloat16", "float", "float32"] | None = None
    quantization: str | None = None
    mem_fraction_static: Fraction | None = None
    page_size: Annotated[int, Meta(ge=1, le=1 << 20)] | None = None
    context_length: Tokens | None = None
    kv_cache_dtype: KvCacheDtype | None = None
    max_total_tokens: Tokens | None = None
    max_running_requests: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    chunked_prefill_size: Annotated[int, Meta(ge=-1, le=10**9)] | None = None
    max_prefill_tokens: Tokens | None = None
    disable_radix_cache: bool | None = None
    disable_overlap_schedule: bool | None = None
    swa_full_tokens_ratio: Fraction | None = None
    disable_hybrid_swa_memory: bool | None = None
    prefill_only_disable_kv_cache: bool | None = None
    enable_unified_memory: bool | None = None
    enable_kv_cache_sharding: bool | None = None
    enable_hisparse: bool | None = None
    hisparse_config: str | None = None  # JSON

    mamba_full_memory_ratio: Ratio | None = None
    max_mamba_cache_size: Annotated[int, Meta(ge=1, le=10**9)] | None = None
    mamba_radix_cache_strategy: (
        Literal["auto", "no_buffer", "extra_buffer", "extra_buffer_lazy"] | None
    ) = None
    mamba_ssm_dtype: Literal["float32", "bfloat16", "float16"] | None = None
    mamba_track_interval: Count | None = None
    linear_attn_backend: LinearBackend | None = None
    linear_attn_decode_backend: LinearBackend | None = None
    enable_linear_replayssm: bool | None = None
    enable_linear_replayssm_spec: bool | None = None
    enable_int8_mamba_checkpoint: bool | None = None

    disable_cuda_graph: bool | None = None
    disable_prefill_cuda_graph: bool | None = None
    disable_decode_cuda_graph: bool | None = None
    cuda_graph_backend_decode: GraphBackend | None = None
    cuda_graph_backend_prefill: GraphBackend | None = None
    cuda_graph_max_bs_decode: Count | None = None
    cuda_graph_max_bs_prefill: Count | None = None
    cuda_graph_bs_decode: GraphSizes | None = None
    cuda_graph_bs_prefill: GraphSizes | None = None
    cuda_graph_config: GraphConfig | None = None

    attention_backend: AttentionBackend | None = None
    prefill_attention_backend: AttentionBackend | None = None
    decode_attention_backend: AttentionBackend | None = None
    prefill_kv_cache_dequant_dtype: Literal["auto", "fp8_e4m3", "nvfp4"] | None = None
    dsa_prefill_backend: DsaBackend | None = None
    dsa_decode_backend: DsaBackend | None = None
    dsv4_attn_backend: Literal["auto", "flashmla", "flashmla_mega", "trtllm"] | None = None
    enable_deterministic_inference: bool | None = None

    speculative_algorithm: Algorithm | None = None
    speculative_num_steps: Annotated[int, Meta(ge=0, le=4096)] | None = None
    speculative_eagle_topk: Annotated[int, Meta(ge=1, le=4096)] | None = None
    speculative_num_draft_tokens: Annotated[int, Meta(ge=1, le=4096)] | None = None
    speculative_draft_model_path: str | None = None
    speculative_draft_attention_backend: AttentionBackend | None = None
    speculative_draft_kv_cache_dtype: (
        Literal["auto", "fp8_e5m2", "fp8_e4m3", "bf16", "bfloat16"] | None
    ) = None
    speculative_dflash_block_size: Annotated[int, Meta(ge=1, le=4096)] | None = None
    speculative_dspark_block_size: Annotated[int, Meta(ge=1, le=4096)] | None = None
    speculative_ngram_max_bfs_breadth: Annotated[int, Meta(ge=1, le=4096)] | None = None
    speculative_adaptive: bool | None = None
    enable_multi_layer_eagle: bool | None = None
    uno_lora_path: str | None = None

    disaggregation_mode: Literal["null", "prefill", "decode"] | None = None
    disaggregation_transfer_backend: (
        Literal["mooncake", "nixl", "ascend", "fake", "mori", "mooncake_tcp"] | None
    ) = None
    disaggregation_decode_extra_slots: Annotated[int, Meta(ge=0, le=10**9)] | None = None
    disaggregation_decode_enable_radix_cache: bool | None = None
    disaggregation_decode_retraction_backup: Literal["cpu_tensor", "host_pool", "none"] | None = (
        None
    )

    enable_hierarchical_cache: bool | None = None
    hicache_ratio: Ratio | None = None
    hicache_size: Annotated[int, Meta(ge=0, le=10**6)] | None = None
    hicache_host_memory_mode: Literal["cache", "buffer_only"] | None = None
    hicache_host_memory_fraction: Fraction | None = None
    hicache_storage_backend: str | None = None

    enable_multimodal: bool | None = None
    language_only: bool | None = None
    language_model_only: bool | None = None
    mm_feature_transport: Literal["cpu", "cuda_ipc", "cuda_vmm"] | None = None

    pp_layer_partition: Annotated[tuple[Count, ...], Meta(min_length=1)] | None = (
        None  # SGLANG_PP_LAYER_PARTITION
    )
    allow_longer_context: bool | None = None  # SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN
    post_capture_sizing: bool | None = None  # SGLANG_ENABLE_POST_CAPTURE_KV_SIZING
    # SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton, on AMD
    dsv4_unified_kv: bool | None = None
    dsv4_unified_kv_fp8: bool | None = None  # SGLANG_DSV4_UNIFIED_KV_FP8, on gfx95


def server_args(values: Mapping[str, Any], *, where: str = "server arguments") -> ServerArgs:
    """Read a mapping of field names; InputError for an unknown name or a value out of range."""
    if not values:
        return ServerArgs()

    def place(path: FieldPath, key: bool) -> str:
        del key
        return f"{where}: {'.'.join(map(str, path))}" if path else where

    values = dict(values)
    algorithm = values.get("speculative_algorithm")
    if isinstance(algorithm, str):
        values["speculative_algorithm"] = engine_name(algorithm, where)
    return Document(values, where, place).convert(ServerArgs)


def engine_name(algorithm: str, where: str) -> str:
    """The engine's spelling of a speculative algorithm, which it reads in any case."""
    name = algorithm.upper()
    if name == "MTP":
        raise InputError(
            f"unknown value {algorithm!r} of 'speculative_algorithm'",
            where=where,
            hint="the engine calls MTP layers of the checkpoint itself NEXTN",
        )
    return name

"""A launch after the engine's own resolution: every argument that sizing reads, with its origin."""

from __future__ import annotations

from typing import Literal

import msgspec

from kvplan.sizing.provenance import Origin
from kvplan.spec.server import ServerArgs

KvDtype = Literal[
    "bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2"
]
KvRecipe = Literal["mxfp8", "nvfp4", "fp4_mx_block16"]
MambaStrategy = Literal["no_buffer", "extra_buffer", "extra_buffer_lazy"]
Role = Literal["null", "prefill", "decode"]


class ParallelWidths(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks of each kind; attn_tp = tp // attn_dp // attn_cp. Replicas are whole engines."""

    tp: int
    pp: int
    attn_tp: int
    attn_dp: int
    attn_cp: int
    attn_dcp: int
    replicas: int = 1
    pp_partition: tuple[int, ...] | None = None  # SGLANG_PP_LAYER_PARTITION

    @property
    def dp_ranks(self) -> int:
        """Schedulers over all replicas, which share the requests."""
        return self.replicas * self.attn_dp

    @property
    def gpus(self) -> int:
        """Cards of the whole launch."""
        return self.tp * self.pp * self.replicas


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved speculative decoding; algorithm None is off."""

    algorithm: str | None = None
    num_steps: int | None = None
    eagle_topk: int | None = None
    num_draft_tokens: int | None = None
    max_draft_tokens: int | None = None  # what buffers are sized for; adaptive steps move below it


class Hicache(msgspec.Struct, frozen=True, kw_only=True):
    """The host tier as asked for; size is decimal GB a rank, and wins over ratio."""

    enabled: bool = False
    ratio: float | None = None
    ratio_given: bool = False  # a default ratio shrinks to the machine's free memory
    size_gb: int = 0
    buffer_only: bool = False
    host_free_bytes: int | None = None
    ranks_per_host: int = 1
    host_memory_fraction: float = 0.8
    backs_up: bool = False  # a decode node's host pool, for the KV of retracted requests


class Hisparse(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens whose KV lives on the host, and what of it each request keeps on the device."""

    host_to_device_ratio: int  # logical tokens for one device token
    top_k: int
    device_buffer_tokens: int  # of one running request, a page less


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """What the engine would print as its server arguments once all defaults are set."""

    asked: ServerArgs  # the launch's own arguments, from which this was resolved
    widths: ParallelWidths
    speculation: Speculation
    context_length: int
    page_size: int
    mem_fraction_static: float
    chunked_prefill_size: int
    max_prefill_tokens: int
    max_running_requests: int | None  # over all DP ranks; None: derived from the tokens
    max_total_tokens: int | None
    decode_graph_max_bs: int | None
    attention_backend: str | None
    prefill_attention_backend: str | None
    decode_attention_backend: str | None
    kv_cache_dtype: KvDtype  # as the engine's log names it: mxfp8 stores float8_e4m3fn
    kv_recipe: KvRecipe | None = None  # block-scaled caches; nvfp4 and fp4_mx_block16 store FP4
    radix_cache: bool
    overlap_schedule: bool
    swa_full_tokens_ratio: float
    swa_ratio_given: bool = False
    mamba_full_memory_ratio: float
    max_mamba_cache_size: int | None
    mamba_strategy: MambaStrategy | None  # None: not a hybrid linear model
    mamba_overlap_asked: bool = True  # overlap before pipeline parallelism switched it off
    mamba_ssm_dtype: str | None = None  # the launch's own, over the model's
    disaggregation_mode: Role = "null"
    decode_extra_slots: int = 0  # pre-allocation slots of a decode node
    dsa_raw_layout: bool = False  # trtllm / tilelang keep fp8 latents without scales
    two_pools: bool = True  # False: sliding layers share the full pool
    draft_attention_backend: str | None = None
    draft_kv_cache_dtype: KvDtype | None = None  # of a DFLASH or DSPARK draft; None without one
    gpu_sm: int | None = None  # compute capability times 10; None on other vendors
    multimodal_reservation_mib: int = 0
    hicache: Hicache = Hicache()
    hisparse: Hisparse | None = None
    # DeepSeek-V4 on AMD: a ring a request instead of a sliding pool, and what its rows store
    request_ring: Literal["bf16", "fp8"] | None = None
    uniform_latents: bool = False  # DeepSeek-V4 on trtllm: fp8 rows without scales
    kv_shards: int = 1  # ranks that share one token space, a page each
    unified_memory: bool = False  # one buffer for all pools, where the plan follows it
    pool_refusal: str | None = None  # what the engine refuses only once the sizes are settled
    not_modelled: tuple[str, ...] = ()  # arguments that change pools in ways no plan follows
    warnings: tuple[str, ...] = ()
    provenance: dict[str, Origin] = {}

    @property
    def logical_ratio(self) -> int:
        """Logical tokens for one device token: above 1 under HiSparse alone."""
        return 1 if self.hisparse is None else self.hisparse.host_to_device_ratio

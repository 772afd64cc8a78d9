"""The lines of SGLang's start-up log that carry figures, as the versions 0.4 to 0.5.23 word them."""

from __future__ import annotations

import re
from typing import NamedTuple


class LinePattern(NamedTuple):
    """A line's fixed words, what is read from it, and which stage tells a draft's line from the target's."""

    words: str
    pattern: re.Pattern[str]
    stage: str | None = None


def gib(name: str) -> str:
    """A memory figure; the log's GB are GiB."""
    return f"(?P<{name}>-?\\d+(?:\\.\\d+)?) ?Gi?B"


def number(name: str) -> str:
    """A count."""
    return f"(?P<{name}>-?\\d+)"


def line(words: str, *parts: str, stage: str | None = None) -> LinePattern:
    """A pattern of parts that follow each other, each of them optional but the first."""
    first, *others = parts
    optional = "".join(f"(?:.*?{part})?" for part in others)
    return LinePattern(words, re.compile(first + optional), stage)


# a name ending in _gib or _gb is a float, the names in TEXTS are text, all others are integers
TEXTS = frozenset({"model_class", "weights_dtype", "kv_dtype", "kv_label", "graph", "host_pool"})
FLOATS = frozenset(
    {
        "mem_fraction_static",
        "suggested_mem_fraction",
        "minimum_mem_fraction",
        "bytes_per_full_token",
    }
)
PATTERNS: tuple[LinePattern, ...] = (
    line("Init torch distributed end", f"mem usage={gib('baseline_used_gib')}"),
    line("Memory baseline taken", f"mem usage={gib('baseline_used_gib')}"),
    line("Load weight begin", f"avail mem={gib('avail_before_load_gib')}", stage="load"),
    line(
        "Load weight end",
        r"Load weight end",
        r"(?<!d)type=(?P<model_class>\w+)",
        r"dtype=(?P<weights_dtype>[\w.]+)",
        f"avail mem={gib('avail_after_load_gib')}",
        f"mem usage={gib('weights_gib')}",
        stage="load",
    ),
    line("KV cache dtype: ", r"KV cache dtype: (?P<kv_dtype>[\w.]+)", stage="pool"),
    line(
        "KV Cache is allocated",
        r"(?:(?P<kv_label>Full|SWA|Draft|MiniMax[\w .-]{0,40}?) )?KV Cache is allocated",
        r"dtype: (?P<kv_dtype>[\w.]+)",
        f"#tokens: {number('num_tokens')}",
        f"K size: {gib('k_gib')}",
        f"(?<!K)V size: {gib('v_gib')}",
        f"KV size: {gib('kv_gib')}",
        stage="pool",
    ),
    line(
        "liding window memory pool",
        r"liding window memory pool",
        f"full_layer_tokens={number('full_layer_tokens')}",
        f"swa_layer_tokens={number('swa_layer_tokens')}",
        stage="pool",
    ),
    line(
        "all SWA",
        f"swa_layer_tokens={number('swa_layer_tokens')}",
        stage="pool",
    ),
    line(
        "SWAKVPool",
        f"mem usage: {gib('swa_pool_gib')}",
        f"swa size: {number('swa_size')}",
        f"full size: {number('full_size')}",
        stage="pool",
    ),
    line(
        "Mamba Cache is allocated",
        f"max_mamba_cache_size: {number('max_mamba_cache_size')}",
        f"conv_state size: {gib('conv_state_gib')}",
        f"ssm_state size: {gib('ssm_state_gib')}",
        f"intermediate_ssm_state_cache size: {gib('intermediate_ssm_gib')}",
        f"intermediate_conv_window_cache size: {gib('intermediate_conv_gib')}",
        stage="pool",
    ),
    line(
        "memory calculation",
        r"bytes_per_full_token=(?P<bytes_per_full_token>\d+(?:\.\d+)?)",
        f"available_bytes={gib('available_bytes_gib')}",
        f"c128_state_fixed={gib('c128_state_fixed_gib')}",
        f"full_token={number('full_token')}",
        stage="pool",
    ),
    line(
        "pool sizes",
        f"full={number('compressed_full')}",
        f"swa={number('compressed_swa')}",
        f"c4={number('c4')}",
        f"c128={number('c128')}",
        f"c4_state={number('c4_state')}",
        f"c128_state={number('c128_state')}",
        stage="pool",
    ),
    line(
        "DeepSeekV4TokenToKVPool",
        f"max_num_reqs={number('max_num_reqs')}",
        f"swa_size={number('compressed_swa')}",
        f"c4_size={number('c4')}",
        f"c4_logical_size={number('c4_logical')}",
        f"c128_size={number('c128')}",
        f"c4_state_pool_size={number('c4_state')}",
        f"c128_state_pool_size={number('c128_state')}",
        stage="pool",
    ),
    line("Memory pool end", f"avail mem={gib('avail_after_pool_gib')}", stage="pool"),
    line("graph begin", f"avail mem={gib('avail_before_graph_gib')}"),
    line(
        " end.",
        r"Capture (?P<graph>[\w -]{0,60}?) graph end",
        f"mem usage={gib('graph_gib')}",
        f"avail mem={gib('avail_after_graph_gib')}",
    ),
    line(
        "max_total_num_tokens=",
        f"max_total_num_tokens={number('max_total_num_tokens')}",
        f"chunked_prefill_size={number('chunked_prefill_size')}",
        f"max_prefill_tokens={number('max_prefill_tokens')}",
        f"max_running_requests={number('max_running_requests')}",
        f"context_len={number('context_len')}",
        f"available_[cg]pu_mem={gib('available_gpu_mem_gib')}",
    ),
    line(
        "hierarchical KV host pool",
        r"Allocating (?P<host_pool>[\w -]{0,60}?) ?hierarchical KV host pool"
        + f"(?:: {number('host_tokens')} tokens)?",
        f"{gib('host_gb')} host memory",
    ),
    line("HiCache host token capacity", f"capacity from \\d+ to {number('synced_host_tokens')}"),
    line("host memory for hierarchical KV", f"Allocating {gib('host_gb')} host memory"),
    line("host memory for DSA indexer", f"Allocating {gib('host_indexer_gb')} host memory"),
    line("host memory for NSA indexer", f"Allocating {gib('host_indexer_gb')} host memory"),
    line(
        "hierarchical Mamba cache",
        f"Allocating {gib('host_state_gb')} host memory",
        f"{number('host_state_slots')} state slots",
    ),
    line("post-sizing multimodal", f"Reserving {gib('multimodal_reserve_gib')}"),
    line(
        "is capped to",
        f"max_running_requests is capped to {number('capped_requests')}",
        f"{number('state_slots_per_request')} state slots",
    ),
    line(
        "was reduced from the requested",
        f"requested {number('requested_requests')} to {number('reduced_requests')}",
    ),
    line(
        "larger than the profiled value",
        f"max_total_tokens={number('asked_tokens')} is larger than the profiled value {number('profiled_tokens')}",
    ),
    line(
        "leave no GPU memory",
        r"--mem-fraction-static=(?P<mem_fraction_static>\d*\.?\d+)",
        r"above (?P<suggested_mem_fraction>\d*\.\d+)",
        r"available/pre = (?P<minimum_mem_fraction>\d*\.\d+)",
    ),
    line(
        "Not enough memory",
        r"Not enough memory",
        r"mem_fraction_static=(?P<mem_fraction_static>\d*\.?\d+)",
    ),
    line("out of memory", r"out of memory", f"[Tt]ried to allocate {gib('tried_gib')}"),
)

# a line's fixed words -> the kind of event that it reports
EVENTS = {
    "leave no GPU memory": "weights_leave_nothing",
    "Not enough memory. Please try": "pool_too_small",
    "CUDA out of memory": "out_of_memory",
    "HIP out of memory": "out_of_memory",
    "XPU out of memory": "out_of_memory",
    "Not enough host memory": "host_memory",
    "memory capacity is unbalanced": "unbalanced_memory",
    "larger than the profiled value": "user_limit_too_large",
    "is capped to": "capped_by_state",
    "was reduced from the requested": "requests_reduced",
    "KV Cache VA upper bound": "post_capture_sizing",
    "KV Cache skipped": "no_kv_pool",
    "host pool (": "host_pool_small",
}

"""Writes a start-up log around published figures, in the wording of several SGLang versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

# figure of the reader -> key of the published record
NAMES = {
    "avail_before_load_gib": "avail_mem_before_load_gb",
    "avail_after_load_gib": "avail_mem_after_load_gb",
    "weights_gib": "weight_usage_gb",
    "model_class": "type",
    "kv_dtype": "kv_dtype",
    "num_tokens": "num_tokens",
    "k_gib": "k_size_gb",
    "v_gib": "v_size_gb",
    "kv_gib": "kv_size_gb",
    "swa_k_gib": "swa_k_size_gb",
    "swa_v_gib": "swa_v_size_gb",
    "full_k_gib": "full_k_size_gb",
    "full_v_gib": "full_v_size_gb",
    "full_layer_tokens": "full_layer_tokens",
    "swa_layer_tokens": "swa_layer_tokens",
    "swa_pool_gib": "swakvpool_gb",
    "max_mamba_cache_size": "max_mamba_cache_size",
    "conv_state_gib": "conv_state_gb",
    "ssm_state_gib": "ssm_state_gb",
    "intermediate_ssm_gib": "intermediate_ssm_state_gb",
    "intermediate_conv_gib": "intermediate_conv_window_gb",
    "bytes_per_full_token": "bytes_per_full_token",
    "available_bytes_gib": "available_bytes_gb",
    "c128_state_fixed_gib": "c128_state_fixed_gb",
    "full_token": "full_token",
    "avail_after_pool_gib": "avail_mem_after_pool_gb",
    "avail_before_graph_gib": "avail_mem_graph_begin_gb",
    "graph_gib": "cuda_graph_mem_gb",
    "max_total_num_tokens": "max_total_num_tokens",
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "max_running_requests": "max_running_requests",
    "context_len": "context_len",
    "available_gpu_mem_gib": "available_gpu_mem",
    "host_tokens": "hicache_host_tokens",
    "host_gb": "hicache_host_gb",
    "host_indexer_gb": "hicache_indexer_host_gb",
}


def published(record: dict[str, Any]) -> dict[str, Any]:
    """The record's figures by the reader's names."""
    observed = record["observed"]
    found = {name: observed.get(key) for name, key in NAMES.items()}
    return {name: value for name, value in found.items() if plain(name, value)}


def plain(name: str, value: Any) -> bool:
    """Whether a record states one figure, not a range or a remark."""
    if name in {"model_class", "kv_dtype"}:
        return isinstance(value, str) and " " not in value
    return isinstance(value, int | float)


def messages(figures: dict[str, Any], written: set[str], *, old: bool) -> Iterator[str]:
    """The log's messages that carry the figures; `old` words them as version 0.4 did."""

    def part(name: str, words: str, end: str = "") -> str:
        value = figures.get(name)
        if value is None:
            return ""
        written.add(name)
        rounded = name.endswith(("_gib", "_gb")) and value == round(value, 2)
        printed = f"{value:.2f}" if rounded else str(value)
        return words + printed + end

    if value := part("avail_before_load_gib", "avail mem=", " GB"):
        yield f"Load weight begin. {value}"
    if "avail_after_load_gib" in figures:
        load = [
            "" if old else "elapsed=12.34 s",
            part("model_class", "type="),
            part("avail_after_load_gib", "avail mem=", " GB"),
            part("weights_gib", "mem usage=", " GB"),
        ]
        yield "Load weight end. " + ", ".join(filter(None, load)) + "."
    if "bytes_per_full_token" in figures:
        cell = part("bytes_per_full_token", "DSV4 memory calculation: bytes_per_full_token=")
        rest = part("available_bytes_gib", ", available_bytes=", " GB")
        fixed = part("c128_state_fixed_gib", ", c128_state_fixed=", " GB")
        yield cell + rest + fixed + part("full_token", ", full_token=")
    if "full_layer_tokens" in figures:
        use = "Use Sliding" if old else "Use sliding"
        yield (
            part("full_layer_tokens", f"{use} window memory pool. full_layer_tokens=")
            + part("swa_layer_tokens", ", swa_layer_tokens=")
        )
    if "max_mamba_cache_size" in figures:
        yield (
            part("max_mamba_cache_size", "Mamba Cache is allocated. max_mamba_cache_size: ")
            + part("conv_state_gib", ", conv_state size: ", "GB")
            + part("ssm_state_gib", ", ssm_state size: ", "GB ")
            + part("intermediate_ssm_gib", "intermediate_ssm_state_cache size: ", "GB ")
            + part("intermediate_conv_gib", "intermediate_conv_window_cache size: ", "GB ")
        )
    if value := part("kv_dtype", "Using KV cache dtype: "):
        yield value
    dtype = "" if old else part("kv_dtype", "dtype: ", ", ")
    for kind in ["swa", "full"] if old else ["full", "swa"]:
        if f"{kind}_k_gib" in figures:
            label = "" if old else {"full": "Full ", "swa": "SWA "}[kind]
            yield (
                f"{label}KV Cache is allocated. {dtype}"
                + part(f"{kind}_layer_tokens", "#tokens: ", ", ")
                + part(f"{kind}_k_gib", "K size: ", " GB, ")
                + part(f"{kind}_v_gib", "V size: ", " GB")
            )
    if "swa_pool_gib" in figures:
        yield (
            part("swa_pool_gib", "SWAKVPool mem usage: ", " GB")
            + part("swa_layer_tokens", ", swa size: ")
            + part("full_layer_tokens", ", full size: ")
        )
    if "k_gib" in figures or "kv_gib" in figures:
        yield (
            f"KV Cache is allocated. {dtype}"
            + part("num_tokens", "#tokens: ", ", ")
            + part("k_gib", "K size: ", " GB, ")
            + part("v_gib", "V size: ", " GB")
            + part("kv_gib", "KV size: ", " GB")
        )
    if value := part("avail_after_pool_gib", "avail mem=", " GB"):
        yield f"Memory pool end. {value}"
    if value := part("avail_before_graph_gib", "avail mem=", " GB"):
        name = "cuda graph" if old else "target decode CUDA graph"
        yield f"Capture {name} begin. This can take up to several minutes. {value}"
    if value := part("graph_gib", "mem usage=", " GB"):
        yield (
            f"Capture cuda graph end. Time elapsed: 5.97 s. {value}. avail mem=1.00 GB."
            if old
            else f"Capture target decode CUDA graph end. bs=[1, 2], elapsed=5.97 s, {value}, avail mem=1.00 GB."
        )
    if "host_tokens" in figures:
        size = part("host_gb", ", ", " GB host memory.")
        yield part("host_tokens", "Allocating kv hierarchical KV host pool: ", " tokens") + size
    if value := part("host_indexer_gb", "Allocating ", " GB host memory for DSA indexer"):
        yield f"{value} (layout=page_first)."
    limits = ["max_total_num_tokens", "chunked_prefill_size", "max_prefill_tokens"]
    limits += ["max_running_requests", "context_len"]
    if "max_total_num_tokens" in figures:
        shown = [part(name, f"{name}=") for name in limits]
        shown.append(part("available_gpu_mem_gib", "available_gpu_mem=", " GB"))
        yield ", ".join(filter(None, shown))


def bare(figures: dict[str, Any], written: set[str]) -> str:
    """Messages alone, as in an issue."""
    return "\n".join(messages(figures, written, old=True))


def timed(figures: dict[str, Any], written: set[str]) -> str:
    """Two ranks that take turns, with time stamps and a progress bar; the second has less memory."""
    other = dict(figures)
    if "avail_after_load_gib" in other:
        other["avail_after_load_gib"] = round(other["avail_after_load_gib"] - 0.02, 2)
    lines = ["[2025-11-11 04:05:38] Ignore import error when loading x"]
    for first, second in zip(
        messages(figures, written, old=False), messages(other, written, old=False), strict=True
    ):
        lines.append(f"[2025-11-11 04:05:39 TP0] {first}")
        lines.append(
            f"Loading shards: 50% | 1/2\rLoading shards: 100%[2025-11-11 04:05:39 TP1] {second}"
        )
    return "\r\n".join(lines)


def coloured(figures: dict[str, Any], written: set[str]) -> str:
    """Container output with colours, three ranks' prefixes and messages that share a line."""
    text = "".join(
        f"\x1b[32m[2026-02-03 10:11:12.345 DP0 PP0 TP0 EP0]\x1b[0m {message}"
        for message in messages(figures, written, old=False)
    )
    return f"\x1b[36mserver-1  |\x1b[0m {text}\n"


STYLES: dict[str, tuple[Callable[[dict[str, Any], set[str]], str], str]] = {
    "bare": (bare, ""),
    "timed": (timed, "TP0"),
    "coloured": (coloured, "DP0 PP0 TP0 EP0"),
}

"""Published start-up logs that are tests of the sizing, and how each of their launches is planned."""

from __future__ import annotations

import json
from functools import cache
from typing import Any, NamedTuple

from kvplan import catalog
from kvplan.overrides import parse_override
from kvplan.planner import Launch, overridden
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.model import Mha, ModelSpec
from kvplan.spec.server import server_args
from kvplan.spec.state import LinearState, Mamba2State, ShortConvState, StateKind
from tests.conftest import SHARED

READ_AGAIN_GIB = 0.12  # small allocations between the engine's two readings of free memory


def dense(name: str, layers: int, heads: int, head_dim: int, **fields: Any) -> ModelSpec:
    """A model without a shipped config: nothing but its KV geometry is used."""
    return ModelSpec(
        name=name,
        architecture="Qwen2ForCausalLM",
        dtype="bfloat16",
        context_length=fields.pop("context_length", 262144),
        num_layers=layers,
        hidden_size=heads * head_dim,
        num_attention_heads=fields.pop("num_attention_heads", heads),
        attention=Mha(num_kv_heads=heads, head_dim=head_dim, v_head_dim=head_dim),
        **fields,
    )


def hybrid(layers: int, full: tuple[int, ...], state: StateKind) -> LinearState:
    """Every layer that is not full is linear."""
    linear = tuple(layer for layer in range(layers) if layer not in full)
    return LinearState(layers=linear, full_attention_layers=full, state=state)


QWEN_25_HALF = dense("qwen2.5-0.5b", 24, 2, 64)
TINY_LLAMA = dense("tinyllama-1.1b", 22, 4, 64, context_length=2048)
DEVSTRAL = dense("devstral-small-2-24b", 40, 8, 128)
QWEN_35_9B = dense(
    "qwen3.5-9b",
    32,
    4,
    256,
    linear=hybrid(
        32,
        tuple(range(3, 32, 4)),
        Mamba2State(
            intermediate_size=4096,
            num_groups=16,
            num_heads=32,
            head_dim=128,
            state_size=128,
            conv_kernel=4,
        ),
    ),
)
LFM2_700M = dense(
    "lfm2-700m",
    16,
    8,
    64,
    linear=hybrid(16, (2, 5, 8, 10, 12, 14), ShortConvState(conv_dim=1536, conv_kernel=3)),
)
NO_IMAGES = {"enable_multimodal": False}
NOT_RESERVED = "versions of that time reserved nothing for images"
ALL_INDEX_KEYS = ("model.indexer.shared_topk_layers=[]",)
KEPT_INDEX_KEYS = "versions before July 2026 kept index keys for layers that share another's top-k"
READ_AGAIN = "small allocations came between the two readings of free memory"
KV_BY_RATIO = "that version gave KV the share 1 / (1 + ratio), whatever whole state slots left over"
FORCED_BF16 = "DSA ran in bf16 alone on that card"
SCALES = "the log was patched to count scales"


class Case(NamedTuple):
    """How a record is planned: the model, what its launch says beyond the record, and why."""

    model: str | ModelSpec
    gpu: str
    server: dict[str, Any] = {}  # noqa: RUF012  (read, never changed)
    sets: tuple[str, ...] = ()
    draft: str | None = None
    below_gib: float = 0.0  # how far the tokens may stay below what the memory allows
    reason: str = ""  # of everything that is not in the record


def gemma(size: str) -> Case:
    reason = f"{NOT_RESERVED}; {READ_AGAIN}"
    return Case(f"gemma-4-{size}", "rtx-3090", NO_IMAGES, below_gib=READ_AGAIN_GIB, reason=reason)


def spark(**server: Any) -> Case:
    return Case("qwen2.5-1.5b", "gb10", server, below_gib=READ_AGAIN_GIB, reason=READ_AGAIN)


CASES = {
    "sgl-003": Case("llama-3.1-8b", "h100"),
    "sgl-040": Case("kimi-k2.5", "mi355x", NO_IMAGES, reason=NOT_RESERVED),
    "sgl-041": Case("glm-5", "rtx-pro-6000", {"kv_cache_dtype": "bf16"}, below_gib=READ_AGAIN_GIB, reason=f"{FORCED_BF16}; {READ_AGAIN}"),
    "sgl-042": Case("granite-4.0-h-micro", "t4"),
    "sgl-043": Case(QWEN_35_9B, "rtx-4090", {"mamba_full_memory_ratio": 0.9}, below_gib=READ_AGAIN_GIB, reason=KV_BY_RATIO),
    "sgl-048": Case("qwen3-0.6b", "rtx-4090"),
    "sgl-050": Case("qwen3-30b-a3b-fp8", "h100", below_gib=READ_AGAIN_GIB, reason=READ_AGAIN),
    "sgl-053": Case("qwen3-235b-a22b-fp8", "h100"),
    "sgl-060": Case("kimi-k2.5", "h200", {"tp_size": 8}),
    "sgl-061": Case(QWEN_25_HALF, "t4"),
    "sgl-065": Case("deepseek-v3", "h200"),
    "sgl-101": gemma("12b"),
    "sgl-103": gemma("12b"),
    "sgl-106": gemma("26b-a4b"),
    "sgl-109": gemma("26b-a4b"),
    "sgl-111": gemma("26b-a4b"),
    "sgl-112": gemma("31b"),
    "sgl-113": gemma("31b"),
    "sgl-114": gemma("31b"),
    "sgl-118": Case(DEVSTRAL, "rtx-3090"),
    "sgl-121": gemma("31b"),
    "sgl-122": gemma("31b"),
    "sgl-140": spark(),
    "sgl-143": spark(kv_cache_dtype="fp4_mx_block16", attention_backend="triton")._replace(reason=f"{SCALES}; {READ_AGAIN}"),
    "sgl-146": spark(),
    "sgl-160": Case("glm-5.2", "mi355x", {}, ALL_INDEX_KEYS, reason=KEPT_INDEX_KEYS),
    "sgl-161": Case("glm-5.2", "mi355x", {}, ALL_INDEX_KEYS, reason=KEPT_INDEX_KEYS),
    "sgl-170": Case("qwen3-8b", "b200"),
    "sgl-174": Case(TINY_LLAMA, "a100-80gb"),
    "sgl-175": Case("llama-3.1-8b", "h100"),
    "sgl-194": Case("qwen3.6-27b-nvfp4", "rtx-pro-6000", {"kv_cache_dtype": "bf16"}, reason="the fp8 checkpoint carries no KV scales"),
    "sgl-195": Case(LFM2_700M, "t4"),
    "sgl-204": Case("qwen3.6-27b-nvfp4", "rtx-5090", draft="draft-qwen3.6-27b-dflash"),
}  # fmt: skip
COPIED = (
    "mem_fraction_static", "max_total_tokens", "max_running_requests", "chunked_prefill_size",
    "swa_full_tokens_ratio", "disable_radix_cache", "enable_dp_attention", "hicache_size",
    "disaggregation_mode", "speculative_algorithm", "context_length", "attention_backend",
    "kv_cache_dtype", "page_size",
)  # fmt: skip


@cache
def records() -> dict[str, dict[str, Any]]:
    """The records that are tests, by id."""
    return {name: record for name, record in all_records().items() if record.get("use") is True}


@cache
def all_records() -> dict[str, dict[str, Any]]:
    """Every published log, by id."""
    file = SHARED / "facts" / "logs.jsonl"
    if not file.is_file():
        return {}
    lines = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    return {record["id"]: record for record in lines}


def arguments(record: dict[str, Any], case: Case) -> dict[str, Any]:
    """The launch's arguments with the values that are plain, then what the case says."""
    given = record["launch_args"]
    server = {name: given[name] for name in COPIED if is_plain(given.get(name))}
    for name, field in (("tp", "tp_size"), ("dp", "dp_size")):
        if isinstance(given.get(name), int):
            server[field] = given[name]
    server |= case.server
    page = str(given.get("page_size", "")).partition(" ")[0]
    return server | ({"page_size": int(page)} if page.isdigit() else {})


def is_plain(value: Any) -> bool:
    return value is not None and (
        not isinstance(value, str) or (" " not in value and value != "default")
    )


def launch(
    record: dict[str, Any], memory: MemoryInputs, case: Case | None = None, **changes: Any
) -> Launch:
    """The record's launch in given memory."""
    case = case or CASES[record["id"]]
    model = catalog.load_model(case.model) if isinstance(case.model, str) else case.model
    server = arguments(record, case) | changes
    if server.get("enable_hierarchical_cache") is None and "hicache_size" in server:
        server["enable_hierarchical_cache"] = True
    made = Launch(
        model=model,
        draft=catalog.load_model(case.draft) if case.draft else None,
        gpu=catalog.load_gpu(case.gpu),
        args=server_args(server, where=record["id"]),
        memory=memory,
    )
    return overridden(made, server, map(parse_override, case.sets))

"""CUDA graphs: the largest decode batch, and for how many sizes prefill is captured where asked."""

from __future__ import annotations

from bisect import bisect_right

import msgspec

from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve.chunked_prefill import LARGE_TP, memory_class
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.parallel import Layout
from kvplan.spec.server import GraphPhase

# token counts that prefill captures, up to 4096; then one every 512
SMALL_SIZES = (
    *range(4, 33, 4),
    *range(48, 257, 16),
    *range(288, 513, 32),
    *range(576, 1025, 64),
    *range(1280, 4097, 256),
)
SMALL_LARGEST = 4096
LARGE_STEP = 512
MLA_LARGEST = 8192
PIPELINE_LARGEST = 8192
LLAMA2_LARGEST = 4096
DEEPEP_LARGEST = 2048  # DeepEP rounds its sizes up before the chunk size is known

FULL_PREFILL = frozenset({"InklingForConditionalGeneration", "InklingForConditionalGenerationMTP"})
PREFILL_LARGEST = dict.fromkeys(
    ("MuseGlimmerForCausalLM", "MuseGlimmerForConditionalGeneration"), 512
)
RUNNING_LIMIT_ARCHITECTURES = frozenset(
    {"Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"}
)
RUNNING_LIMIT = 512


class Graphs(msgspec.Struct, frozen=True):
    """What is captured; `prefill_backend` is None where prefill runs without a graph."""

    decode_max_bs: int
    decode_captured: bool
    prefill_backend: str | None
    prefill_sizes: int


def graphs(launch: Launch, layout: Layout, chunk: int) -> tuple[Graphs, Origin]:
    """Captured graphs as the engine settles them before it sets aside memory for them."""
    args = launch.args
    decode, prefill = phase(launch, "decode"), phase(launch, "prefill")
    mode = args.disaggregation_mode
    decode_backend = decode.backend or ("disabled" if mode == "prefill" else "full")
    prefill_backend = prefill.backend or "disabled"
    sizes = prefill_sizes(launch, layout, prefill, prefill_backend, chunk)
    batch, origin = decode_max_bs(launch, layout, decode)
    if args.dwdp_size is not None and args.dwdp_size > 1:
        decode_backend = prefill_backend = "disabled"
    return Graphs(
        decode_max_bs=batch,
        decode_captured=decode_backend != "disabled",
        prefill_backend=None if prefill_backend == "disabled" else prefill_backend,
        prefill_sizes=sizes,
    ), origin


def phase(launch: Launch, name: str) -> GraphPhase:
    """Settings of one phase: `cuda_graph_config` over the single flags over the switches."""
    args, architecture = launch.args, launch.model.architecture
    if name == "decode":
        off, backend = args.disable_decode_cuda_graph, args.cuda_graph_backend_decode
        largest, sizes = args.cuda_graph_max_bs_decode, args.cuda_graph_bs_decode
    else:
        off, backend = args.disable_prefill_cuda_graph, args.cuda_graph_backend_prefill
        largest, sizes = args.cuda_graph_max_bs_prefill, args.cuda_graph_bs_prefill
        largest = largest or PREFILL_LARGEST.get(architecture)
        if backend is None and not off and architecture in FULL_PREFILL:
            backend = "full"
    if backend is None and (off or args.disable_cuda_graph):
        backend = "disabled"
    if args.cuda_graph_config is not None:
        config: GraphPhase = getattr(args.cuda_graph_config, name)
        backend, largest = config.backend or backend, config.max_bs or largest
        sizes = config.bs or sizes
    return GraphPhase(backend=backend, max_bs=largest, bs=sizes)


def prefill_sizes(
    launch: Launch, layout: Layout, settings: GraphPhase, backend: str, chunk: int
) -> int:
    """How many token counts prefill captures."""
    if launch.args.moe_a2a_backend == "deepep" and backend == "breakable":
        sizes = settings.bs or [*SMALL_SIZES, *range(4608, (settings.max_bs or 0) + 1, LARGE_STEP)]
        largest = max(sizes) if settings.bs else settings.max_bs or DEEPEP_LARGEST
        return len({-(-size // 8) * 8 for size in sizes if size <= largest})
    if settings.bs is not None:
        return len(settings.bs)
    return count_sizes(settings.max_bs or largest_prefill(launch, layout, backend, chunk))


def largest_prefill(launch: Launch, layout: Layout, backend: str, chunk: int) -> int:
    """Most tokens a captured prefill holds: the chunk, within the limits of some launches."""
    largest = min(MLA_LARGEST, chunk) if launch.mla else chunk
    if layout.pp > 1 and backend == "breakable":
        largest = min(largest, PIPELINE_LARGEST)
    if launch.args.max_total_tokens is not None:
        largest = min(largest, launch.args.max_total_tokens)
    if "llama-2" in (launch.model.hf_id or launch.model.name).lower():
        largest = min(largest, LLAMA2_LARGEST)
    return largest


def count_sizes(largest: int) -> int:
    """Captured token counts up to the largest."""
    if largest > SMALL_LARGEST:
        return len(SMALL_SIZES) + (largest - SMALL_LARGEST) // LARGE_STEP
    return bisect_right(SMALL_SIZES, largest)


def decode_max_bs(launch: Launch, layout: Layout, settings: GraphPhase) -> tuple[int, Origin]:
    """Largest decode batch with a graph."""
    if settings.bs is not None:
        return max(settings.bs), GIVEN
    if settings.max_bs is not None:
        return settings.max_bs, GIVEN
    row, asked = memory_class(launch.gpu.memory_mib), launch.args.max_running_requests
    batch = row.decode_batch if layout.tp < LARGE_TP else row.decode_batch_large_tp
    if asked is not None and asked < batch:
        return asked, Origin("derived", "decode-batch", "max_running_requests {0}", (asked,))
    if asked is not None and asked <= RUNNING_LIMIT and covers_running(launch):
        return asked, Origin("derived", "decode-batch", "max_running_requests {0}", (asked,))
    operands = (launch.gpu.memory_mib, layout.tp)
    return batch, Origin("default", "decode-batch", "{0} MiB card, tp {1}", operands)


def covers_running(launch: Launch) -> bool:
    """Qwen3-VL on a large Hopper card captures up to max_running_requests."""
    return (
        launch.family == "sm90"
        and launch.gpu.memory_mib >= 60 * 1024
        and launch.multimodal
        and launch.model.architecture in RUNNING_LIMIT_ARCHITECTURES
    )

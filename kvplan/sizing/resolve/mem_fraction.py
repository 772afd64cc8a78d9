"""The share of the card that weights and pools may take, where the launch does not say."""

from __future__ import annotations

from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve.graphs import Graphs
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.parallel import Layout
from kvplan.spec.model import Vision

# MiB set aside; the engine's own heuristics
BASE_MIB = 512
ACTIVATION_MIB_PER_TOKEN = 1.5
LEAST_ACTIVATION_TOKENS = 2048
MIB_PER_EIGHT_RANKS = 1024
LARGE_CARD_MIB = 60 * 1024
LARGE_CARD_LEAST_MIB = 10 * 1024
DECODE_GRAPH_MIB = 2
DP_GRAPH_MIB = 3
DP_GRAPH_LARGE_MIB = 1.5
DP_GRAPH_LARGE_BATCH = 300
PREFILL_GRAPH_MIB = 8
PREFILL_GRAPH_MLA_MIB = 1.5 * 1024
DEEPEP_PREFILL_MIB = 1 * 1024
DEEPEP_MIB = 2 * 1024

# a vision tower takes 5 %, more or less by its size against ViT-L/14
VISION_FACTOR = 0.95
VISION_BASELINE = 24 * 1024**2
VISION_SENSITIVITY = 0.1
VISION_RANGE = (0.8, 1.05)

AITER_FACTOR = 0.85
AITER_LONG_CONTEXT = 8192


def mem_fraction_static(
    launch: Launch, layout: Layout, graphs: Graphs, chunk: int, max_prefill: int
) -> tuple[float, Origin]:
    """(memory - reserve) / memory, less a vision tower's share; rounded before that share."""
    if launch.args.mem_fraction_static is not None:
        return launch.args.mem_fraction_static, GIVEN
    memory = launch.gpu.memory_mib
    reserve = reserve_mib(
        launch, layout, graphs, activation_tokens(launch, graphs, chunk, max_prefill)
    )
    fraction = round((memory - reserve) / memory, 3)
    if not vision_counts(launch):
        formula = "round(({0} - {1:.0f}) / {0}, 3)"
        return fraction, Origin("default", "mem-fraction", formula, (memory, reserve))
    factor = vision_factor(launch.model.vision)
    formula = "round(({0} - {1:.0f}) / {0}, 3) × {2:.4f} for the vision tower"
    origin = Origin("default", "mem-fraction", formula, (memory, reserve, factor))
    return fraction * factor, origin


def activation_tokens(launch: Launch, graphs: Graphs, chunk: int, max_prefill: int) -> int:
    """Tokens of one step, which activations grow with."""
    args = launch.args
    if args.disaggregation_mode == "decode":
        running = args.max_running_requests or graphs.decode_max_bs or 1
        return max(running * (args.speculative_num_draft_tokens or 1), LEAST_ACTIVATION_TOKENS)
    return max(chunk if chunk > 0 else max_prefill, LEAST_ACTIVATION_TOKENS)


def reserve_mib(launch: Launch, layout: Layout, graphs: Graphs, tokens: int) -> float:
    """MiB left for activations, graphs and communication buffers."""
    reserve = BASE_MIB + tokens * ACTIVATION_MIB_PER_TOKEN
    reserve += layout.tp * layout.pp / 8 * MIB_PER_EIGHT_RANKS
    reserve += graph_mib(launch, layout, graphs)
    if launch.gpu.memory_mib > LARGE_CARD_MIB:
        reserve = max(reserve, LARGE_CARD_LEAST_MIB)
    decodes = launch.args.disaggregation_mode != "prefill"
    if decodes and graphs.decode_captured and launch.args.moe_a2a_backend == "deepep":
        reserve += DEEPEP_MIB
    return reserve


def graph_mib(launch: Launch, layout: Layout, graphs: Graphs) -> float:
    """MiB that captured graphs take beside the pools."""
    mode, batch, reserve = launch.args.disaggregation_mode, graphs.decode_max_bs, 0.0
    if mode != "prefill":
        if graphs.decode_captured:
            reserve += batch * DECODE_GRAPH_MIB
        if layout.asked_attn_dp > 1:
            reserve += batch * layout.asked_attn_dp * DP_GRAPH_MIB
            if batch > DP_GRAPH_LARGE_BATCH:
                reserve += batch * layout.asked_attn_dp * DP_GRAPH_LARGE_MIB
    if mode != "decode" and graphs.prefill_backend is not None:
        reserve += PREFILL_GRAPH_MLA_MIB if launch.mla else graphs.prefill_sizes * PREFILL_GRAPH_MIB
        if graphs.prefill_backend == "breakable" and launch.args.moe_a2a_backend == "deepep":
            reserve += DEEPEP_PREFILL_MIB
    return reserve


def vision_counts(launch: Launch) -> bool:
    """Whether images are encoded on this node."""
    args = launch.args
    return (
        launch.multimodal
        and launch.model.vision is not None
        and not args.language_only
        and not args.language_model_only
        and args.disaggregation_mode != "decode"
    )


def vision_factor(vision: Vision | None) -> float:
    """What a vision tower leaves of the fraction."""
    if vision is None:
        return 1.0
    size = vision.num_layers * vision.hidden_size**2 / VISION_BASELINE
    low, high = VISION_RANGE
    return VISION_FACTOR * max(low, min(high, 1.0 - VISION_SENSITIVITY * (size - 1.0)))


def after_backend(
    fraction: float, origin: Origin, backend: str | None, context_length: int
) -> tuple[float, Origin]:
    """aiter keeps a workspace for long contexts, out of a given fraction too."""
    if backend != "aiter" or context_length <= AITER_LONG_CONTEXT:
        return fraction, origin
    formula = "{0} × 0.85 for aiter's workspace"
    return fraction * AITER_FACTOR, Origin("derived", "aiter", formula, (fraction,), assumed=True)

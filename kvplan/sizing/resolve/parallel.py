"""Parallel widths: which ranks share attention, and which layouts the engine refuses."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.resolve.launch import Launch
from kvplan.spec.server import ServerArgs

# latent attention whose prefill context parallelism takes the whole attention group
PREFILL_CP_ARCHITECTURES = frozenset(
    {
        "DeepseekV3ForCausalLM",
        "DeepseekV32ForCausalLM",
        "KimiK25ForConditionalGeneration",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "GlmMoeDsaForCausalLM",
        "Glm5NextForConditionalGeneration",
        "HYV4ForCausalLM",
        "LongcatFlashForCausalLM",
        "Dots3NoteForCausalLM",
        "DeepseekV4ForCausalLM",
    }
)


class Layout(msgspec.Struct, frozen=True):
    """Ranks of each kind, and the two widths that the launch named before prefill CP moved them."""

    tp: int
    pp: int
    replicas: int  # whole engines; each has its own pools
    attn_dp: int
    attn_cp: int
    dcp: int
    asked_attn_dp: int
    asked_attn_cp: int

    @property
    def attn_tp(self) -> int:
        """What is left of a tensor parallel group after attention DP and CP."""
        return self.tp // self.attn_dp // self.attn_cp

    @property
    def dp_ranks(self) -> int:
        """Schedulers over all replicas."""
        return self.replicas * self.attn_dp


def parallel_layout(launch: Launch) -> Layout:
    """Widths of a launch; CombinationError where they do not fit together."""
    args = launch.args
    tp, attn_cp, dcp = args.tp_size or 1, args.attn_cp_size or 1, args.dcp_size or 1
    attn_dp, replicas = attention_dp(args, tp)
    asked_dp, asked_cp = attn_dp, attn_cp
    if attn_dp > 1 and replicas > 1:
        raise CombinationError(
            f"dp_size {replicas} with attn_dp_size {attn_dp}: replicas do not combine with DP attention",
            hint="use one of the two",
        )
    if args.enable_prefill_cp:
        check_prefill_cp(launch, dcp)
        if launch.model.architecture in PREFILL_CP_ARCHITECTURES:
            attn_dp, replicas = attn_dp * replicas, 1
            if not (launch.dsa and args.cp_strategy == "interleave" and attn_cp > 1):
                attn_cp = tp // attn_dp
    if attn_dp * attn_cp > 1 and (attn_cp == 0 or tp % (attn_dp * attn_cp)):
        raise CombinationError(
            f"tp_size {tp} is not divisible by attention DP {attn_dp} times attention CP {attn_cp}",
            hint="choose widths whose product divides tp_size",
        )
    if tp % dcp:
        raise CombinationError(
            f"dcp_size {dcp} does not divide tp_size {tp}", hint="choose a divisor of tp_size"
        )
    return Layout(tp, args.pp_size or 1, replicas, attn_dp, attn_cp, dcp, asked_dp, asked_cp)


def attention_dp(args: ServerArgs, tp: int) -> tuple[int, int]:
    """Attention DP groups and whole replicas; `enable_dp_attention` turns dp_size into the former."""
    attn_dp, replicas = args.attn_dp_size or 1, args.dp_size or 1
    if args.enable_dp_attention and attn_dp == 1:
        attn_dp, replicas = replicas, 1
    if args.dwdp_size is not None and args.dwdp_size > 1:
        if args.dwdp_size != tp:
            raise CombinationError(f"dwdp_size {args.dwdp_size} must equal tp_size {tp}")
        attn_dp, replicas = args.dwdp_size, 1
    return attn_dp, replicas


def check_prefill_cp(launch: Launch, dcp: int) -> None:
    """Refuse prefill context parallelism where the engine does."""
    args, architecture = launch.args, launch.model.architecture
    if dcp > 1:
        raise CombinationError("prefill context parallelism and dcp_size > 1 exclude each other")
    if args.cp_strategy is None:
        raise CombinationError(
            "enable_prefill_cp needs a cp_strategy", hint="set zigzag or interleave"
        )
    if launch.family == "hip" and architecture != "DeepseekV4ForCausalLM":
        raise CombinationError(
            f"prefill context parallelism on AMD serves DeepSeek-V4 only, not {architecture}"
        )
    if args.disaggregation_mode == "decode" and launch.dsa:
        raise CombinationError("prefill context parallelism has no place on a decode node")
    zigzag = {"DeepseekV32ForCausalLM": False, "DeepseekV4ForCausalLM": False}
    zigzag |= dict.fromkeys(("MiMoV2ForCausalLM", "MiMoV2FlashForCausalLM"), True)
    if zigzag.get(architecture, args.cp_strategy == "zigzag") != (args.cp_strategy == "zigzag"):
        wanted = "zigzag" if zigzag[architecture] else "interleave"
        raise CombinationError(
            f"{architecture} does not serve cp_strategy {args.cp_strategy}", hint=f"use {wanted}"
        )
    if launch.model.compressed is not None and (args.attn_dp_size or 1) * (args.dp_size or 1) > 1:
        raise CombinationError("DeepSeek-V4 prefill context parallelism takes no DP attention")

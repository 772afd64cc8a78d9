"""Drafts that propose a whole block at once, or that the target drafts itself."""

from __future__ import annotations

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve.backends import Backends
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.numbers import Numbers, Setting
from kvplan.sizing.resolve.trees import check_uno_tree
from kvplan.spec.model import Mha

DFLASH_BLOCK = 16
DSPARK_BLOCK = 7
DRAFT_BACKENDS = frozenset(
    {"flashinfer", "fa3", "fa4", "triton", "ascend", "trtllm_mha", "intel_xpu"}
)
DSPARK_A2A = frozenset({None, "none", "megamoe", "mori"})


def dflash(setting: Setting, algorithm: str) -> Numbers:
    """DFLASH verifies one block a step; the draft's config says how long it is."""
    launch, layout, args = setting.launch, setting.layout, setting.launch.args
    if layout.attn_dp > 1 and (not args.enable_dp_lm_head or layout.attn_cp != 1):
        raise CombinationError(
            "DFLASH with DP attention needs enable_dp_lm_head and no context parallelism"
        )
    if layout.pp != 1:
        raise CombinationError("DFLASH runs without pipeline parallelism", hint="set pp_size 1")
    if launch.draft is None and args.speculative_draft_model_path is None:
        raise CombinationError(f"{algorithm} needs a draft model", hint="name the draft")
    check_draft_heads(launch, algorithm)
    asked, block = args.speculative_num_draft_tokens, args.speculative_dflash_block_size
    if block is not None and asked not in (None, block):
        raise CombinationError(
            f"speculative_num_draft_tokens {asked} differs from speculative_dflash_block_size {block}"
        )
    if block is not None or asked is not None:
        return Numbers(1, 1, block or asked, GIVEN)
    found = launch.draft.block_size if launch.draft is not None else None
    origin = Origin("default", "speculative-block", "block size {0}", (found or DFLASH_BLOCK,))
    return Numbers(1, 1, found or DFLASH_BLOCK, origin)


def dspark(setting: Setting, algorithm: str) -> Numbers:
    """DSPARK verifies its block and one token more; some checkpoints bundle the draft."""
    launch, layout, args = setting.launch, setting.layout, setting.launch.args
    if layout.attn_dp > 1:
        if not args.enable_dp_lm_head or layout.attn_cp > 1:
            raise CombinationError(
                "DSPARK with DP attention needs enable_dp_lm_head and no context parallelism"
            )
        if args.moe_a2a_backend not in DSPARK_A2A:
            raise CombinationError(
                f"DSPARK with DP attention does not run over {args.moe_a2a_backend}",
                hint="one of: none, megamoe, mori",
            )
    if layout.pp != 1 and args.disaggregation_mode != "prefill":
        raise CombinationError("DSPARK takes pipeline parallelism on a prefill node only")
    own = launch.draft if launch.draft is not None else launch.model
    if (
        launch.draft is None
        and own.block_size is None
        and args.speculative_draft_model_path is None
    ):
        raise CombinationError(f"{algorithm} needs a draft model", hint="name the draft")
    check_draft_heads(launch, algorithm)
    asked, block, origin = (
        args.speculative_num_draft_tokens,
        args.speculative_dspark_block_size,
        GIVEN,
    )
    if block is None:
        block = own.block_size
        if block is None and asked is None:
            block = DSPARK_BLOCK
        if block is not None:
            origin = Origin("default", "speculative-block", "block size {0}, and one", (block,))
    if block is not None and asked not in (None, block + 1):
        raise CombinationError(
            f"speculative_num_draft_tokens {asked} is not the block size {block} and one",
            hint=f"use {block + 1}",
        )
    tokens = asked if block is None else block + 1
    if tokens is None or tokens < 2:
        raise CombinationError(f"DSPARK needs 2 draft tokens or more, got {tokens}")
    return Numbers(1, 1, tokens, origin)


def check_draft_heads(launch: Launch, algorithm: str) -> None:
    """Block drafts keep K and V by head; only DeepSeek-V4 brings one that compresses."""
    draft = launch.draft
    if draft is None or launch.model.compressed is not None or isinstance(draft.attention, Mha):
        return
    raise CombinationError(
        f"{algorithm} takes a block draft, and {draft.name} attends through latents",
        hint="name a draft that was trained for it",
    )


def uno(setting: Setting, algorithm: str) -> Numbers:
    """UNO drafts with the target itself: one rank, fa3, a chain or a tree that fits its width."""
    launch, layout, args = setting.launch, setting.layout, setting.launch.args
    del algorithm
    if launch.family == "hip":
        raise CombinationError("UNO serves NVIDIA cards only")
    if launch.draft is not None or args.speculative_draft_model_path is not None:
        raise CombinationError("UNO drafts with the target and takes no draft model")
    if args.uno_lora_path is None:
        raise CombinationError("UNO needs uno_lora_path")
    if args.enable_deterministic_inference:
        raise CombinationError("UNO does not go with deterministic inference")
    width, topk = args.speculative_num_draft_tokens, args.speculative_eagle_topk or 1
    if width is None:
        raise CombinationError("UNO needs speculative_num_draft_tokens")
    steps = 1
    if topk > 1:
        steps = check_uno_tree(width, topk, args.speculative_num_steps)
    if layout.tp * layout.pp * layout.attn_dp * layout.attn_cp != 1:
        raise CombinationError("UNO runs on one rank", hint="set tp_size and pp_size 1")
    if launch.model.linear is not None and args.max_running_requests is None:
        raise CombinationError(
            "UNO on a model with recurrent state needs max_running_requests",
            hint="its snapshots are sized by it",
        )
    if setting.backends.pair != ("fa3", "fa3"):
        raise CombinationError(
            f"UNO runs on fa3, not {' and '.join(map(str, setting.backends.pair))}"
        )
    return Numbers(steps, topk, width, GIVEN)


def draft_backend(launch: Launch, algorithm: str | None, backends: Backends) -> str | None:
    """Attention backend of a block draft: the target's prefill backend where the draft can run it."""
    if algorithm != "DFLASH":
        return backends.draft
    name = backends.draft or backends.pair[0]
    fallback = "triton" if launch.family == "hip" else "flashinfer"
    if name is None or name not in DRAFT_BACKENDS:
        return fallback
    if name == "trtllm_mha":  # it reads sliding or causal drafts only, which full ones are not
        return "fa4" if launch.family == "sm100" else fallback
    return name

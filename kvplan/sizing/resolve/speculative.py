"""Speculative decoding: the algorithm's own numbers of steps, branches and draft tokens."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.block_drafts import dflash, dspark, uno
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.numbers import Numbers, Setting
from kvplan.sizing.resolved import Speculation

RUNNING_REQUESTS = 48
COMPRESSED_RUNNING_REQUESTS = 256
TREE = (5, 4, 8)  # steps, branches, draft tokens
CHAIN = (3, 1, 4)
NGRAM_DRAFT_TOKENS = 12
NGRAM_BREADTH = 10
ADAPTIVE_STEPS = (0, 1, 3, 5, 7)  # what adaptive speculation moves between by default

FROZEN_DRAFTS = frozenset({"Gemma4AssistantForCausalLM", "Gemma4UnifiedAssistantForCausalLM"})
TREE_BACKENDS = ("flashinfer", "fa3", "triton")
OFF = Speculation()
OFF_ORIGINS = {"speculation": Origin("default", "speculation", "off")}
ALGORITHM = Origin("derived", "speculative-alias")


def speculation(setting: Setting) -> tuple[Speculation, dict[str, Origin]]:
    """Speculation of a launch; CombinationError where the engine refuses it."""
    args = setting.launch.args
    if args.speculative_algorithm is None:
        return OFF, OFF_ORIGINS
    algorithm = engine_algorithm(setting.launch)
    numbers = RULES[algorithm](setting, algorithm)
    check_pipeline(setting, algorithm)
    origins = {
        "speculation": numbers.origin,
        "speculation.algorithm": GIVEN if algorithm == args.speculative_algorithm else ALGORITHM,
    }
    most = numbers.draft_tokens
    if adapts(setting, algorithm):
        most = ADAPTIVE_STEPS[-1] + 1
    resolved = Speculation(
        algorithm=algorithm,
        num_steps=numbers.steps,
        eagle_topk=numbers.topk,
        num_draft_tokens=numbers.draft_tokens,
        max_draft_tokens=most,
    )
    return resolved, origins


def engine_algorithm(launch: Launch) -> str:
    """NEXTN is EAGLE over the checkpoint's own layers; a Gemma-4 assistant freezes the KV."""
    asked = launch.args.speculative_algorithm
    assert asked is not None
    frozen = launch.draft is not None and launch.draft.architecture in FROZEN_DRAFTS
    if frozen and asked == "EAGLE3":
        raise CombinationError(
            "a Gemma-4 assistant draft does not run as EAGLE3", hint="use NEXTN or EAGLE"
        )
    if asked in ("NEXTN", "EAGLE"):
        return "FROZEN_KV_MTP" if frozen else "EAGLE"
    return asked


def running_requests(launch: Launch) -> tuple[int | None, Origin]:
    """max_running_requests over all DP ranks; None leaves it to the size of the pool."""
    asked = launch.args.max_running_requests
    if asked is not None:
        return asked, GIVEN
    if launch.model.compressed is not None:
        return COMPRESSED_RUNNING_REQUESTS, Origin("default", "running-requests-by-model")
    if launch.args.speculative_algorithm in (None, "UNO"):
        return None, Origin("derived", "running-requests", "from the tokens of the pool")
    return RUNNING_REQUESTS, Origin("default", "running-requests-speculative")


def adapts(setting: Setting, algorithm: str) -> bool:
    """Whether adaptive speculation applies; elsewhere the engine drops it."""
    args = setting.launch.args
    return (
        bool(args.speculative_adaptive)
        and algorithm in ("EAGLE", "EAGLE3")
        and args.speculative_eagle_topk in (None, 1)
        and setting.layout.attn_dp == 1
        and not multi_layer(setting.launch)
        and not args.enable_two_batch_overlap
    )


def multi_layer(launch: Launch) -> bool:
    """Whether EAGLE runs one MTP layer after the other."""
    args = launch.args
    by_model = launch.model.architecture in arch.MULTI_LAYER_EAGLE
    return bool(args.enable_multi_layer_eagle) or (
        by_model and args.speculative_algorithm == "EAGLE"
    )


def eagle(setting: Setting, algorithm: str) -> Numbers:
    """EAGLE, EAGLE3 and STANDALONE: a chain, or a tree of topk branches a step."""
    args, model = setting.launch.args, setting.launch.model
    steps, topk = args.speculative_num_steps, args.speculative_eagle_topk
    tokens, origin = args.speculative_num_draft_tokens, GIVEN
    if algorithm == "STANDALONE" and setting.layout.attn_dp > 1:
        raise CombinationError("STANDALONE does not go with DP attention")
    if adapts(setting, algorithm):
        steps = ADAPTIVE_STEPS[len(ADAPTIVE_STEPS) // 2] if steps is None else steps
        if steps not in ADAPTIVE_STEPS:
            raise CombinationError(
                f"adaptive speculation moves between {ADAPTIVE_STEPS} steps, not {steps}"
            )
        topk, tokens = 1, steps + 1
        origin = Origin("default", "speculative-adaptive")
    elif steps is None:
        if topk is not None or tokens is not None:
            raise CombinationError(
                "speculative_num_steps is missing beside topk or draft tokens",
                hint="give steps, topk and draft tokens together, or none of them",
            )
        tree = algorithm != "STANDALONE" and model.architecture in arch.TREE_DEFAULTS
        steps, topk, tokens = TREE if tree else CHAIN
        origin = Origin("default", "speculative-numbers", "{0}", (model.architecture,))
    if topk is None or (topk > 1 and tokens is None):
        raise CombinationError(
            "speculative_num_steps needs topk and draft tokens beside it",
            hint="give steps, topk and draft tokens together, or none of them",
        )
    check_tree(setting, topk)
    if topk == 1 and tokens != steps + 1:
        tokens, origin = steps + 1, Origin("derived", "speculative-chain", "{0} + 1", (steps,))
    return Numbers(steps, topk, tokens, origin)


def check_tree(setting: Setting, topk: int) -> None:
    """Trees need page size 1 or a backend that copies branches page by page."""
    if topk <= 1:
        return
    if "trtllm_mha" in setting.backends.pair:
        raise CombinationError(
            f"trtllm_mha serves speculative_eagle_topk 1 only, not {topk}",
            hint="use topk 1 or another attention backend",
        )
    if setting.page > 1 and setting.backends.base not in TREE_BACKENDS:
        raise CombinationError(
            f"speculative_eagle_topk {topk} at page_size {setting.page} does not run on {setting.backends.base}",
            hint=f"use page_size 1, or one of: {', '.join(TREE_BACKENDS)}",
        )


def frozen(setting: Setting, algorithm: str) -> Numbers:
    """FROZEN_KV_MTP has no defaults: it takes the launch's numbers as they are."""
    args = setting.launch.args
    if args.speculative_num_draft_tokens is None:
        raise CombinationError(
            f"{algorithm} needs speculative_num_draft_tokens", hint="set it to steps + 1"
        )
    return Numbers(
        args.speculative_num_steps,
        args.speculative_eagle_topk,
        args.speculative_num_draft_tokens,
        GIVEN,
    )


def ngram(setting: Setting, algorithm: str) -> Numbers:
    """NGRAM looks drafts up: its breadth is topk, its depth follows from the draft tokens."""
    del algorithm
    args = setting.launch.args
    topk = args.speculative_ngram_max_bfs_breadth or NGRAM_BREADTH
    tokens, steps = args.speculative_num_draft_tokens, args.speculative_num_steps
    origin = GIVEN if tokens is not None else Origin("default", "speculative-ngram")
    tokens = NGRAM_DRAFT_TOKENS if tokens is None else tokens
    steps = tokens // topk if steps is None else steps
    if topk > 1 and setting.page > 1 and setting.backends.base != "flashinfer":
        raise CombinationError(
            f"NGRAM of breadth {topk} at page_size {setting.page} runs on flashinfer only, not {setting.backends.base}",
            hint="use page_size 1, speculative_ngram_max_bfs_breadth 1 or flashinfer",
        )
    if setting.layout.attn_dp > 1:
        raise CombinationError("NGRAM does not go with DP attention")
    return Numbers(steps, topk, tokens, origin)


RULES: dict[str, Callable[[Setting, str], Numbers]] = {
    "EAGLE": eagle,
    "EAGLE3": eagle,
    "STANDALONE": eagle,
    "FROZEN_KV_MTP": frozen,
    "NGRAM": ngram,
    "DFLASH": dflash,
    "DSPARK": dspark,
    "UNO": uno,
}


def check_pipeline(setting: Setting, algorithm: str) -> None:
    """Pipeline parallelism speculates with EAGLE on a prefill node only."""
    if setting.layout.pp == 1 or algorithm == "DSPARK":
        return
    if algorithm != "EAGLE" or multi_layer(setting.launch):
        raise CombinationError(
            f"pipeline parallelism does not speculate with {algorithm}",
            hint="only single-layer EAGLE works, on a prefill node",
        )
    if setting.launch.args.disaggregation_mode != "prefill":
        raise CombinationError(
            "pipeline parallelism speculates on a prefill node only",
            hint="set pp_size 1, or disaggregation_mode prefill",
        )

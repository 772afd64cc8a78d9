"""Unified memory: which launches take one buffer for all pools, and what refuses it."""

from __future__ import annotations

from kvplan.errors import CombinationError
from kvplan.sizing.resolve.backends import Backends
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolve.parallel import Layout
from kvplan.spec.model import Mha

FLAG = "enable_unified_memory"
PAGED_MHA = frozenset({"triton", "fa3", "fa4", "flashinfer", "trtllm_mha"})
PAGED_MLA = frozenset({"triton", "fa3", "trtllm_mla", "flashinfer", "cutedsl_mla", "flashmla"})
UNEQUAL_ROWS = frozenset({"triton", "fa3", "fa4"})  # read V rows narrower than K rows
STRIPED_MLA = frozenset({"flashinfer", "trtllm_mla", "cutedsl_mla"})
STATE_DECODE = frozenset({"triton", "flashinfer"})
STATE_PREFILL = STATE_DECODE | {"flashkda"}
KDA_ONLY = frozenset({"cutedsl", "helion"})
CHAINS = frozenset({None, "DSPARK", "EAGLE", "EAGLE3", "NEXTN", "DFLASH"})


def check_unified(launch: Launch, layout: Layout, backends: Backends) -> None:
    """CombinationError where the engine refuses unified memory before it sizes anything."""
    args = launch.args
    if args.speculative_algorithm not in CHAINS:
        raise CombinationError(f"{FLAG} does not speculate with {args.speculative_algorithm}")
    if args.speculative_algorithm is not None and args.speculative_eagle_topk not in (None, 1):
        raise CombinationError(f"{FLAG} speculates with speculative_eagle_topk 1 only")
    if args.enable_two_batch_overlap:
        raise CombinationError(f"{FLAG} does not go with enable_two_batch_overlap")
    if args.disaggregation_mode in ("prefill", "decode"):
        check_roles(launch, layout)
    check_backends(launch, backends)
    if launch.model.linear is not None:
        check_state_kernels(launch)
    if layout.dcp > 1:
        check_striped(launch, backends)


def check_roles(launch: Launch, layout: Layout) -> None:
    """A disaggregated pair moves whole pages of all layers, through mooncake alone."""
    args = launch.args
    if (args.disaggregation_transfer_backend or "mooncake") != "mooncake":
        raise CombinationError(f"{FLAG} transfers through mooncake only")
    if layout.pp > 1:
        raise CombinationError(f"{FLAG} with disaggregation takes no pipeline parallelism")
    if args.speculative_algorithm is not None or args.enable_hisparse:
        raise CombinationError(f"{FLAG} with disaggregation takes no speculation and no HiSparse")


def check_backends(launch: Launch, backends: Backends) -> None:
    """Kernels must take the strides of a buffer that all layers share."""
    attention = launch.model.attention
    if launch.mla:
        allowed = PAGED_MLA
    elif isinstance(attention, Mha) and attention.head_dim != attention.v_head_dim:
        allowed = UNEQUAL_ROWS
    else:
        allowed = PAGED_MHA
    refuse_others(backends, allowed)


def check_state_kernels(launch: Launch) -> None:
    """The kernels of recurrent state that take its strides."""
    args = launch.args
    more = KDA_ONLY if launch.mla else frozenset()
    base = args.linear_attn_backend
    for phase, named, allowed in (
        ("decode", args.linear_attn_decode_backend or base, STATE_DECODE | more),
        ("prefill", base, STATE_PREFILL | more),
    ):
        if named is not None and named not in allowed:
            raise CombinationError(
                f"{FLAG} does not {phase} states on {named}",
                hint=f"one of: {', '.join(sorted(allowed))}",
            )


def check_striped(launch: Launch, backends: Backends) -> None:
    """Decode context parallelism: latent attention on few kernels, and no sliding pool."""
    if not launch.mla or launch.model.sliding is not None:
        raise CombinationError(f"{FLAG} with dcp_size > 1 serves latent attention only")
    if launch.args.disaggregation_mode in ("prefill", "decode"):
        raise CombinationError(f"{FLAG} with dcp_size > 1 takes no disaggregation")
    refuse_others(backends, STRIPED_MLA)


def refuse_others(backends: Backends, allowed: frozenset[str]) -> None:
    for backend in backends.pair:
        if backend is not None and backend not in allowed:
            raise CombinationError(
                f"{FLAG} does not run on {backend}", hint=f"one of: {', '.join(sorted(allowed))}"
            )


def pool_problem(launch: Launch, two_pools: bool) -> str | None:
    """Why no unified pool can be built once its size is known; None if one can."""
    model = launch.model
    hybrid = model.linear is not None or (model.sliding is not None and two_pools)
    if model.compressed is None and hybrid:
        return None
    return f"{FLAG} serves models with sliding layers or recurrent state, not {model.architecture}"


def modelled(launch: Launch) -> bool:
    """Whether the plan follows the buffer: drafts inside it, host tiers and scales it does not."""
    args = launch.args
    return not (
        args.speculative_algorithm is not None
        or args.enable_hierarchical_cache
        or args.kv_cache_dtype == "mxfp8"
        or (launch.model.linear is not None and launch.model.sliding is not None)
    )

"""How a hybrid linear model caches its states for the radix cache."""

from __future__ import annotations

import msgspec

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import GIVEN, Origin
from kvplan.sizing.resolve import architectures as arch
from kvplan.sizing.resolve.backends import Backends, nemotron_chain
from kvplan.sizing.resolve.launch import Launch
from kvplan.sizing.resolved import MambaStrategy

DEFAULT_RATIO = 0.9
INKLING_RATIO = 0.1
DEFAULT_TRACK_INTERVAL = 256
STATE_CHUNK = 64  # tokens between two states that prefill can cache


class StateCache(msgspec.Struct, frozen=True):
    """Strategy (None: no recurrent state) and whether it forbids the overlapped schedule."""

    strategy: MambaStrategy | None
    origin: Origin
    disables_overlap: bool = False


def state_cache(
    launch: Launch, backends: Backends, page: int | None, radix: bool, overlap: bool
) -> StateCache:
    """The strategy asked for, or extra buffers where overlap or paging want and the model can."""
    args, model = launch.args, launch.model
    asked = args.mamba_radix_cache_strategy or "auto"
    if asked == "auto" and pins_extra_buffer(launch, backends):
        asked = "extra_buffer"
    if not radix:
        strategy: MambaStrategy | None = "no_buffer" if model.linear is not None else None
        return StateCache(strategy, Origin("derived", "state-strategy", "no radix cache"))
    if not caches_states(launch):
        if asked.startswith("extra_buffer"):
            raise CombinationError(
                f"mamba_radix_cache_strategy {asked} needs recurrent state that {model.architecture} has not",
                hint="leave mamba_radix_cache_strategy open",
            )
        strategy = "no_buffer" if model.linear is not None else None
        return StateCache(strategy, Origin("default", "state-strategy", "states are not cached"))
    origin, disables = GIVEN, False
    if asked == "auto":
        wanted = overlap or (page is not None and page > 1)
        extra = wanted and supports_extra_buffer(launch)
        asked, disables = ("extra_buffer", False) if extra else ("no_buffer", True)
        schedule = "overlapped" if overlap else "not overlapped"
        origin = Origin("default", "state-strategy", "{0}, page_size {1}", (schedule, page or 1))
    if asked == "no_buffer":
        check_no_buffer(backends, page, overlap and not disables)
        return StateCache("no_buffer", origin, disables)
    check_extra_buffer(launch, asked, page)
    lazy = asked == "extra_buffer_lazy"
    return StateCache("extra_buffer_lazy" if lazy else "extra_buffer", origin)


def pins_extra_buffer(launch: Launch, backends: Backends) -> bool:
    """Inkling needs extra buffers; Nemotron-H on trtllm_mha takes them to page."""
    name = launch.model.architecture
    if name in arch.NEMOTRON_H:
        unset = (
            launch.args.attention_backend is None and backends.prefill is backends.decode is None
        )
        return unset and nemotron_chain(launch)
    return name in arch.INKLING


def caches_states(launch: Launch) -> bool:
    """Whether the radix cache of this model keeps recurrent states."""
    name = launch.model.architecture
    return launch.model.linear is not None and (name in arch.STATE_CACHE or name in arch.INKLING)


def supports_extra_buffer(launch: Launch) -> bool:
    """Whether states can be tracked beside the running one; triton's kernels do."""
    triton = launch.args.linear_attn_backend in (None, "triton")
    return triton and launch.model.architecture in arch.EXTRA_BUFFER


def check_no_buffer(backends: Backends, page: int | None, overlap: bool) -> None:
    """Plain states are cached at page size 1 and without overlap only."""
    if page not in (1, None):
        raise CombinationError(
            f"mamba_radix_cache_strategy no_buffer serves page_size 1 only, not {page}",
            hint="set page_size 1 or disable_radix_cache",
        )
    if overlap:
        raise CombinationError(
            "mamba_radix_cache_strategy no_buffer does not go with the overlapped schedule",
            hint="set disable_overlap_schedule, or leave the strategy open",
        )
    if backends.base == "trtllm_mha":
        raise CombinationError("mamba_radix_cache_strategy no_buffer does not go with trtllm_mha")


def check_extra_buffer(launch: Launch, strategy: str, page: int | None) -> None:
    """Extra buffers need a model, a role and a tracking interval that fit them."""
    args = launch.args
    interval = args.mamba_track_interval or DEFAULT_TRACK_INTERVAL
    if not supports_extra_buffer(launch):
        raise CombinationError(
            f"mamba_radix_cache_strategy {strategy} is not served for {launch.model.architecture}",
            hint="use no_buffer",
        )
    if strategy == "extra_buffer_lazy" and args.disaggregation_mode in ("prefill", "decode"):
        raise CombinationError(
            "mamba_radix_cache_strategy extra_buffer_lazy does not go with disaggregation",
            hint="use extra_buffer",
        )
    if interval < (args.speculative_num_draft_tokens or 0):
        raise CombinationError(
            f"mamba_track_interval {interval} is below the {args.speculative_num_draft_tokens} draft tokens"
        )
    if page is None:
        return
    if interval % page:
        raise CombinationError(
            f"page_size {page} does not divide mamba_track_interval {interval}",
            hint="choose a page size that divides it",
        )
    if max(STATE_CHUNK, page) % min(STATE_CHUNK, page):
        raise CombinationError(f"page_size {page} and the state chunk {STATE_CHUNK} do not nest")


def memory_ratio(launch: Launch) -> tuple[float, Origin]:
    """State memory for one of KV memory."""
    asked = launch.args.mamba_full_memory_ratio
    if asked is not None:
        return asked, GIVEN
    if launch.model.architecture in arch.INKLING:
        return INKLING_RATIO, Origin("default", "state-ratio-by-model")
    return DEFAULT_RATIO, Origin("default", "state-ratio")

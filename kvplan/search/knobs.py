"""The table of what `kvplan fit` can turn: the values of each knob, what they change, and which is wanted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.planner import Launch
from kvplan.search.target import Target
from kvplan.sizing.plan import NoStart, Plan

Goal = Literal["smallest", "largest", "first", "best"]
Outcome = Plan | NoStart

MOST_RUNNING = 1 << 16
MOST_GPUS = 64
STAGES = (1, 2, 4, 8)
PAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CACHES = ("bf16", "fp8_e4m3", "mxfp8", "nvfp4", "fp4_mx_block16")  # from most to least precise
MOST_HOST_GB = 10_000


def nothing(*_: object) -> None:
    """No objection."""


def nowhere(*_: object) -> tuple[int, ...]:
    return ()


def always(*values: Any) -> Callable[[Launch, Outcome], Sequence[Any]]:
    """The same values whatever the launch."""
    return lambda _launch, _outcome: values


class Knob(msgspec.Struct, frozen=True, kw_only=True):
    """One server argument, or two that move together."""

    name: str
    """its flag without dashes"""
    goal: Goal
    """which of the values that hold is wanted"""
    values: Callable[[Launch, Outcome], Sequence[Any]]
    change: Callable[[Any], dict[str, Any]]
    unfit: Callable[[Launch, Target], str | None] = nothing
    """why the knob has no say in a launch"""
    unsettled: Callable[[Plan, Any], str | None] = nothing
    """what the engine makes of a value instead"""
    marks: Callable[[Outcome, Target], tuple[int, ...]] = nowhere
    """values at which a search looks besides"""
    shown: Callable[[Any], str] = str
    roomy_high: bool = True
    """whether higher values leave a workload more room"""
    per_running: bool = False
    """whether a length alone is meant for every running request, not for one"""

    def flags(self, value: Any) -> str:
        """The value as it goes on a command line."""
        return " ".join(
            f"--{field.replace('_', '-')}" + ("" if each is True else f" {plain(each)}")
            for field, each in self.change(value).items()
        )


def plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def field(name: str) -> Callable[[Any], dict[str, Any]]:
    """A change of one argument."""
    return lambda value: {name: value}


def commas(value: Any) -> str:
    return f"{value:,}"


def thousandths(_launch: Launch, _outcome: Outcome) -> Sequence[float]:
    return [step / 1000 for step in range(1, 1000)]


def shares(_launch: Launch, _outcome: Outcome) -> Sequence[float]:
    return [step / 1000 for step in range(1, 1001)]


def hundredths(_launch: Launch, _outcome: Outcome) -> Sequence[float]:
    return [step / 100 for step in range(1, 1001)]


def contexts(launch: Launch, _outcome: Outcome) -> Sequence[int]:
    """Every length up to the model's own, or to a longer one that the launch insists on."""
    return range(1, max(launch.model.context_length, launch.args.context_length or 0) + 1)


def running(_launch: Launch, outcome: Outcome) -> Sequence[int]:
    """Requests over all DP ranks, as many on each."""
    ranks = outcome.resolved.widths.attn_dp
    return range(ranks, MOST_RUNNING * ranks + 1, ranks)


def widths(launch: Launch, _outcome: Outcome) -> Sequence[int]:
    """Widths that the attention heads divide over."""
    heads = launch.model.num_attention_heads
    return [ranks for ranks in range(1, MOST_GPUS + 1) if heads % ranks == 0]


def gpus(launch: Launch, outcome: Outcome) -> Sequence[tuple[int, int]]:
    """Tensor and pipeline widths by the number of GPUs, flat pipelines first."""
    layers = launch.model.num_layers
    pairs = [(tp, pp) for tp in widths(launch, outcome) for pp in STAGES if pp <= layers]
    return sorted((pair for pair in pairs if pair[0] * pair[1] <= MOST_GPUS), key=by_gpus)


def by_gpus(pair: tuple[int, int]) -> tuple[int, int]:
    return pair[0] * pair[1], pair[1]


def measured_weights(launch: Launch, _target: Target) -> str | None:
    """Memory after loading is that of one width."""
    if launch.memory.free_after_gib is None and launch.memory.weights_gib is None:
        return None
    return "the weights are measured for one width: leave out --free-after and --weights-gib"


def given_stages(launch: Launch, target: Target) -> str | None:
    if launch.args.pp_layer_partition is not None:
        return "the launch names the layers of its stages"
    return measured_weights(launch, target)


def no_sliding_pool(launch: Launch, _target: Target) -> str | None:
    if launch.model.sliding is None and launch.model.compressed is None:
        return f"'{launch.model.name}' has no sliding pool"
    return None


def no_state_ratio(launch: Launch, _target: Target) -> str | None:
    if launch.model.linear is None:
        return f"'{launch.model.name}' keeps no recurrent state"
    if launch.args.max_mamba_cache_size is not None:
        return "--max-mamba-cache-size sets the state slots"
    return None


def no_host_target(launch: Launch, target: Target) -> str | None:
    if target.host_tokens is None:
        return "it needs a target on the host: --host-tokens"
    if launch.model.compressed is not None:
        return f"'{launch.model.name}' takes a host ratio only"
    return None


def capped(plan: Plan, asked: int) -> str | None:
    """Fewer requests than are asked for."""
    of_rank = asked // plan.resolved.widths.attn_dp
    if plan.max_running_requests == of_rank:
        return None
    requests = min((s.pool.requests for s in plan.stages), key=lambda each: each.max_running)
    return f"capped to {plan.max_running_requests:,} a rank ({requests.binding.name})"


def other_page(plan: Plan, asked: int) -> str | None:
    page = plan.resolved.page_size
    return None if page == asked else f"the engine makes it {page}"


def asked_requests(_outcome: Outcome, target: Target) -> tuple[int, ...]:
    """The fewest running requests that can meet the target, by their place among the values."""
    return (target.requests - 2, target.requests - 1) if target.requests else ()


def asked_context(_outcome: Outcome, target: Target) -> tuple[int, ...]:
    """The length of the target, by its place among the values."""
    return (target.context - 2, target.context - 1) if target.context else ()


def host_sizes(_launch: Launch, _outcome: Outcome) -> Sequence[int]:
    return range(1, MOST_HOST_GB + 1)


def pair_change(pair: tuple[int, int]) -> dict[str, Any]:
    return {"tp_size": pair[0], "pp_size": pair[1]}


def pair_shown(pair: tuple[int, int]) -> str:
    return f"{pair[0] * pair[1]} (tp {pair[0]} × pp {pair[1]})"


def hicache(size_gb: int) -> dict[str, Any]:
    return {"enable_hierarchical_cache": True, "hicache_size": size_gb}


KNOBS: tuple[Knob, ...] = (
    Knob(
        name="mem-fraction-static",
        goal="smallest",
        values=thousandths,
        change=field("mem_fraction_static"),
        shown=plain,
    ),
    Knob(
        name="context-length",
        goal="largest",
        values=contexts,
        change=field("context_length"),
        marks=asked_context,
        shown=commas,
    ),
    Knob(
        name="max-running-requests",
        goal="largest",
        roomy_high=False,
        per_running=True,
        values=running,
        change=field("max_running_requests"),
        unsettled=capped,
        marks=asked_requests,
        shown=commas,
    ),
    Knob(
        name="tp-size",
        goal="smallest",
        values=widths,
        change=field("tp_size"),
        unfit=measured_weights,
    ),
    Knob(
        name="gpus",
        goal="smallest",
        values=gpus,
        change=pair_change,
        unfit=given_stages,
        shown=pair_shown,
    ),
    Knob(
        name="page-size",
        goal="largest",
        values=always(*PAGES),
        roomy_high=False,
        change=field("page_size"),
        unsettled=other_page,
    ),
    Knob(
        name="kv-cache-dtype",
        goal="first",
        values=always(*CACHES),
        change=field("kv_cache_dtype"),
    ),
    Knob(
        name="swa-full-tokens-ratio",
        goal="best",
        values=shares,
        change=field("swa_full_tokens_ratio"),
        unfit=no_sliding_pool,
        shown=plain,
    ),
    Knob(
        name="mamba-full-memory-ratio",
        goal="best",
        values=hundredths,
        change=field("mamba_full_memory_ratio"),
        unfit=no_state_ratio,
        shown=plain,
    ),
    Knob(
        name="hicache-size",
        goal="smallest",
        values=host_sizes,
        change=hicache,
        unfit=no_host_target,
        shown=lambda size_gb: f"{size_gb:,} GB",
    ),
)
ALIASES = {
    "tp": "tp-size",
    "swa-ratio": "swa-full-tokens-ratio",
    "mamba-ratio": "mamba-full-memory-ratio",
}


def knob_named(name: str) -> Knob:
    """A knob by its flag, with or without dashes; InputError with the nearest name."""
    plain_name = name.strip().removeprefix("--").replace("_", "-").lower()
    plain_name = ALIASES.get(plain_name, plain_name)
    found = {knob.name: knob for knob in KNOBS}
    if plain_name not in found:
        raise InputError(f"no knob is named '{name}'", hint=did_you_mean(plain_name, found))
    return found[plain_name]

"""What differs between two plans: inputs with the effect of each alone, resolved values, figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kvplan import planner
from kvplan.errors import KvplanError
from kvplan.guard.figures import KINDS, Figures, figures
from kvplan.guard.record import Record
from kvplan.planner import Launch
from kvplan.sizing.plan import Plan
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import ServerArgs

UNSIZED_MODEL_FIELDS = frozenset({"hf_id", "aliases", "source", "confidence"})
UNSIZED_GPU_FIELDS = frozenset({"source"})
# arguments that mean little without each other, by the start of their names
GROUPS: dict[str, tuple[str, ...]] = {
    "speculation": ("speculative_",),
    "parallel": ("tp_", "pp_", "dp_", "ep_", "dcp_", "attn_dp_", "attn_cp_", "nnodes", "moe_a2a_",
                 "enable_dp_", "enable_prefill_cp"),
    "host tier": ("hicache_", "enable_hierarchical_cache"),
    "disaggregation": ("disaggregation_",),
}  # fmt: skip


class Difference(msgspec.Struct, frozen=True):
    """One field and its two values; None where a side leaves it open."""

    name: str
    before: Any
    after: Any


class Change(msgspec.Struct, frozen=True):
    """Inputs that changed together, and the figures when nothing else does.

    `alone` is None where the first plan's launch is not known or refuses the change by itself,
    which `problem` explains.
    """

    name: str
    differences: tuple[Difference, ...]
    alone: Figures | None = None
    problem: str | None = None


class Comparison(msgspec.Struct, frozen=True):
    """Everything that differs, each part with the largest effect first."""

    before: Record
    after: Record
    base: Figures  # of the first launch as this version plans it
    inputs: tuple[Change, ...]
    resolved: tuple[Difference, ...]
    figures: tuple[Difference, ...]

    @property
    def rules_changed(self) -> bool:
        """Whether this version plans the first launch otherwise than it was recorded."""
        return self.before.launch is not None and self.base != self.before.figures


class Part(msgspec.Struct, frozen=True):
    """Inputs that differ, and how to carry them over into the first launch."""

    name: str
    differences: tuple[Difference, ...]
    apply: Callable[[Launch], Launch]


def compare(before: Record, after: Record) -> Comparison:
    """The differences from one plan to another."""
    base, inputs = before.figures, list[Change]()
    if before.launch is not None and after.launch is not None:
        first = before.launch
        base = alone(first)[0] or {}
        for part in parts(first, after.launch):
            inputs.append(Change(part.name, part.differences, *applied(part, first)))
    return Comparison(
        before=before,
        after=after,
        base=base,
        inputs=tuple(sorted(inputs, key=lambda each: -effect(base, each.alone))),
        resolved=resolved_differences(before, after),
        figures=figure_differences(before.figures, after.figures),
    )


def applied(part: Part, launch: Launch) -> tuple[Figures | None, str | None]:
    """The figures of the launch with this part alone, or why it is refused."""
    try:
        changed = part.apply(launch)
    except ValueError as error:
        return None, str(error)
    return alone(changed)


def alone(launch: Launch) -> tuple[Figures | None, str | None]:
    """The figures of a launch, empty where it does not start; None and why where it is refused."""
    try:
        outcome = planner.plan(launch).outcome
    except KvplanError as error:
        return None, error.problem
    if isinstance(outcome, Plan):
        return figures(outcome), None
    return {}, f"does not start: {outcome.shortage.problem}"


def effect(base: Figures, changed: Figures | None) -> float:
    """How far a change moves the plan: the tokens first, then whatever moves most."""
    if changed is None:
        return 0.0
    moves = [relative(difference) for difference in figure_differences(base, changed)]
    tokens = relative(Difference("tokens", base.get("tokens", 0), changed.get("tokens", 0)))
    return 1e6 * tokens + max(moves, default=0.0)


def relative(difference: Difference) -> float:
    """The size of a change as a share of the value before."""
    before, after = difference.before or 0, difference.after or 0
    return abs(after - before) / abs(before) if before else float(before != after)


def figure_differences(before: Figures, after: Figures) -> tuple[Difference, ...]:
    """Figures that differ, the largest relative change first."""
    pairs = [Difference(name, before.get(name), after.get(name)) for name in KINDS]
    changed = [pair for pair in pairs if pair.before != pair.after]
    return tuple(sorted(changed, key=lambda each: -relative(each)))


def resolved_differences(before: Record, after: Record) -> tuple[Difference, ...]:
    """Resolved arguments that differ, by name; the values carry their origins."""
    names = sorted(before.resolved.keys() | after.resolved.keys())
    pairs = [
        Difference(name, before.resolved.get(name), after.resolved.get(name)) for name in names
    ]
    return tuple(pair for pair in pairs if value_of(pair.before) != value_of(pair.after))


def value_of(resolved: Any) -> Any:
    return None if resolved is None else resolved.value


def parts(a: Launch, b: Launch) -> Iterator[Part]:
    """Inputs in which two launches differ, in the units that can be carried over."""
    yield from model_parts(a.model, b.model)
    yield from whole(a, b, "gpu", UNSIZED_GPU_FIELDS)
    yield from whole(a, b, "memory", frozenset())
    yield from argument_parts(a, b)


def model_parts(a: ModelSpec, b: ModelSpec) -> Iterator[Part]:
    """The model as a whole where it is another one, else its fields."""
    if (a.name, a.architecture) != (b.name, b.architecture):
        yield Part(
            "model",
            (Difference("model", a.name, b.name),),
            lambda at: msgspec.structs.replace(at, model=b),
        )
        return
    for name in a.__struct_fields__:
        if name in UNSIZED_MODEL_FIELDS or getattr(a, name) == getattr(b, name):
            continue
        found = tuple(
            differing(f"model.{name}", builtin(getattr(a, name)), builtin(getattr(b, name)))
        )
        yield Part(f"model.{name}", found, model_field(name, getattr(b, name)))


def model_field(name: str, value: Any) -> Callable[[Launch], Launch]:
    """Carries one field of the model over."""

    def apply(launch: Launch) -> Launch:
        return msgspec.structs.replace(
            launch, model=msgspec.structs.replace(launch.model, **{name: value})
        )

    return apply


def whole(a: Launch, b: Launch, name: str, unsized: frozenset[str]) -> Iterator[Part]:
    """A part that is carried over as one value."""
    after = getattr(b, name)
    found = [
        difference
        for difference in differing(name, builtin(getattr(a, name)), builtin(after))
        if difference.name.partition(".")[2] not in unsized
    ]
    if found:
        yield Part(name, tuple(found), lambda at: msgspec.structs.replace(at, **{name: after}))


def argument_parts(a: Launch, b: Launch) -> Iterator[Part]:
    """Server arguments one by one, those that need each other together; the draft is one of them."""
    groups: dict[str, list[Difference]] = {}
    for name in ServerArgs.__struct_fields__:
        before, after = getattr(a.args, name), getattr(b.args, name)
        if before != after:
            pair = Difference(name, builtin(before), builtin(after))
            groups.setdefault(group_of(name), []).append(pair)
    if a.draft != b.draft:
        names = [launch.draft.name if launch.draft else None for launch in (a, b)]
        groups.setdefault("speculation", []).insert(0, Difference("draft", *names))
    for name, found in groups.items():
        yield Part(found[0].name if len(found) == 1 else name, tuple(found), carry(found, b))


def group_of(argument: str) -> str:
    """The group of an argument, or itself."""
    for group, starts in GROUPS.items():
        if argument.startswith(starts):
            return group
    return argument


def carry(found: list[Difference], source: Launch) -> Callable[[Launch], Launch]:
    """Carries the named arguments of another launch over."""
    names = [difference.name for difference in found if difference.name != "draft"]
    values = {name: getattr(source.args, name) for name in names}
    takes_draft = len(names) < len(found)

    def apply(launch: Launch) -> Launch:
        args = msgspec.structs.replace(launch.args, **values)
        draft = source.draft if takes_draft else launch.draft
        return msgspec.structs.replace(launch, args=args, draft=draft)

    return apply


def builtin(value: Any) -> Any:
    """A value without its types, None fields aside."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, dict):
        return {name: each for name, each in plain.items() if each is not None}
    return plain


def differing(name: str, before: Any, after: Any) -> Iterator[Difference]:
    """Leaves that differ below two values; names are joined with dots."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from differing(f"{name}.{key}", before.get(key), after.get(key))
    elif before != after:
        yield Difference(name, before, after)

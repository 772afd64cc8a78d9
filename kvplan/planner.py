"""From what a user names to a plan: presets, server arguments and memory in, plan out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from kvplan import catalog
from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.sizing.drafts import BLOCK_DRAFTS, PRICED_LIKE_EAGLE
from kvplan.sizing.memory import MemoryEstimate, MemoryInputs, check_measured, estimate_memory
from kvplan.sizing.plan import NoStart, Plan, plan_launch
from kvplan.sizing.resolve.resolve import resolve
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import ServerArgs, engine_name, server_args
from kvplan.units import GIB

if TYPE_CHECKING:
    from kvplan.overrides import Override

SECTIONS = ("model", "draft", "gpu", "server", "memory")


class PlanInputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A plan as it is asked for: presets by name or path, server arguments by field name."""

    model: str
    gpu: str
    parallel: str | None = None
    speculative: str | None = None
    draft: str | None = None
    server: dict[str, Any] = {}
    memory: MemoryInputs = MemoryInputs()


class Launch(msgspec.Struct, frozen=True):
    """Parsed inputs: everything that a sizing needs, without a file behind it."""

    model: ModelSpec
    draft: ModelSpec | None
    gpu: GpuSpec
    args: ServerArgs
    memory: MemoryInputs
    preset_fields: frozenset[str] = frozenset()


class Planned(msgspec.Struct, frozen=True):
    """The outcome, what it rests on, and what was asked for."""

    outcome: Plan | NoStart
    estimate: MemoryEstimate
    launch: Launch

    @property
    def starts(self) -> bool:
        """Whether the engine sizes its pools and the card holds them."""
        return isinstance(self.outcome, Plan) and not self.missing_bytes

    @property
    def missing_bytes(self) -> int:
        """What pools and tables of a plan take beyond the card."""
        if isinstance(self.outcome, NoStart):
            return 0
        from kvplan.sizing.overcommitted import missing_bytes

        return missing_bytes(self.outcome)


def read_inputs(
    inputs: PlanInputs, overrides: Collection[Override] = (), *, where: str = "the launch"
) -> Launch:
    """Presets into values; server arguments win over presets, overrides over all."""
    presets: dict[str, Any] = {}
    if inputs.parallel is not None:
        presets |= catalog.load_parallel(inputs.parallel)
    if inputs.speculative is not None:
        presets |= catalog.load_speculative(inputs.speculative)
    preset_draft = presets.pop("draft", None)
    draft_name = inputs.draft or preset_draft
    model = catalog.load_model(inputs.model)
    draft = catalog.load_model(draft_name) if draft_name else None
    gpu = catalog.load_gpu(inputs.gpu)
    server = presets | inputs.server
    launch = Launch(
        model=model,
        draft=draft,
        gpu=gpu,
        args=server_args(server, where=where),
        memory=inputs.memory,
        preset_fields=frozenset(presets.keys() - inputs.server.keys()),
    )
    if overrides:
        launch = overridden(launch, server, overrides)
    check_measured(launch.memory, launch.gpu)
    return launch


def overridden(launch: Launch, server: dict[str, Any], overrides: Iterable[Override]) -> Launch:
    """`--set` over everything: `model.…`, `draft.…`, `gpu.…`, `memory.…`, or a server argument."""
    from kvplan.overrides import apply

    data = {
        "model": msgspec.to_builtins(launch.model),
        "gpu": msgspec.to_builtins(launch.gpu),
        "server": server,
        "memory": msgspec.to_builtins(launch.memory),
    }
    if launch.draft is not None:
        data["draft"] = msgspec.to_builtins(launch.draft)
    document = Document(data, "--set", lambda path, _key: f"--set {'.'.join(map(str, path))}")
    changed = apply(document, [sectioned(override) for override in overrides])
    return msgspec.structs.replace(
        launch,
        model=changed.convert(ModelSpec, ("model",)),
        gpu=changed.convert(GpuSpec, ("gpu",)),
        args=changed.convert(ServerArgs, ("server",)),
        memory=changed.convert(MemoryInputs, ("memory",)),
        draft=changed.convert(ModelSpec, ("draft",)) if launch.draft is not None else None,
    )


def sectioned(override: Override) -> Override:
    """A bare key is a server argument: `page_size=16` is `server.page_size=16`."""
    if override.key.endswith("speculative_algorithm") and isinstance(override.value, str):
        name = engine_name(override.value, f"--set {override.text}")
        override = msgspec.structs.replace(override, value=name)
    first, *rest = override.key.split(".")
    if first in SECTIONS and rest:
        return override
    return msgspec.structs.replace(override, key=f"server.{override.key}")


def plan(launch: Launch) -> Planned:
    """Resolve and size a launch.

    CombinationError where the engine refuses the settings; InputError where the weights are not
    known.
    """
    check_draft(launch)
    resolved = resolve(
        launch.args, launch.model, launch.gpu, launch.draft, preset_fields=launch.preset_fields
    )
    if launch.memory.host_free_gib is not None:
        free = int(launch.memory.host_free_gib * GIB)
        hicache = msgspec.structs.replace(resolved.hicache, host_free_bytes=free)
        resolved = msgspec.structs.replace(resolved, hicache=hicache)
    algorithm = resolved.speculation.algorithm
    estimate = estimate_memory(
        launch.memory,
        launch.gpu,
        served(launch.model, launch.args),
        launch.draft,
        resolved.widths,
        loads_draft=algorithm in PRICED_LIKE_EAGLE | BLOCK_DRAFTS,
    )
    outcome = plan_launch(launch.model, launch.gpu, resolved, estimate.memory, launch.draft)
    return Planned(outcome, estimate, launch)


def served(model: ModelSpec, args: ServerArgs) -> ModelSpec:
    """The model with its weights as the launch loads them."""
    if args.quantization is None and args.dtype is None:
        return model
    from kvplan.sizing.served_weights import as_served

    return as_served(model, args)


def check_draft(launch: Launch) -> None:
    """A draft without an algorithm, or an algorithm that cannot do without one."""
    algorithm = launch.args.speculative_algorithm
    if launch.draft is not None and algorithm is None:
        raise InputError(
            f"the draft '{launch.draft.name}' has no speculative algorithm to serve",
            hint="add --speculative-algorithm, e.g. EAGLE3",
        )
    needs = algorithm == "STANDALONE" or (algorithm in BLOCK_DRAFTS and not launch.model.block_size)
    if needs and launch.draft is None:
        raise InputError(
            f"{algorithm} needs a draft model", hint="add --draft with a preset or a config.json"
        )

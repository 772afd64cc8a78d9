"""The options of `kvplan inspect`, and what they ask to look at."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from kvplan.errors import InputError
from kvplan.extras import require_torch
from kvplan.planner import plan
from kvplan.report.address import Spot, request_spot, slot_spot
from kvplan.report.inspect import Subject
from kvplan.sizing.memory import MemoryInputs
from kvplan.sizing.plan import NoStart, Plan
from kvplan.state.recorded import Recorded, load_state, read_launch
from kvplan.state.sizes import check_state_of, plan_sizes

from .launch_options import Asked, LaunchOptions, read_launch_options
from .render import check_output

State = Annotated[
    Path | None, typer.Option("--state", help="State that 'kvplan trace --record' wrote.")
]
Request = Annotated[
    str | None, typer.Option("--request", metavar="RID", help="Request of --state.")
]
Position = Annotated[
    int | None, typer.Option("--position", min=0, help="Token of --request, counted from 0.")
]
Slot = Annotated[int | None, typer.Option("--slot", min=0, help="Who has a slot, and its bytes.")]
Allocate = Annotated[
    bool, typer.Option("--allocate", help="Build the pools, compare them with the plan.")
]
Device = Annotated[
    str | None, typer.Option("--device", help="Of --allocate: cuda, cpu, meta or auto.")
]
KvScale = Annotated[
    bool, typer.Option("--kv-scale", help="Of --allocate: one small layer of each kind.")
]
PpRank = Annotated[
    int | None, typer.Option("--pp-rank", min=0, help="Pipeline stage; 0 if left out.")
]
AllRanks = Annotated[bool, typer.Option("--all-ranks", help="Every stage.")]
Output = Annotated[
    Path | None, typer.Option("--output", help="Write a .json file, or a picture as .svg.")
]
OUTPUTS = (".json", ".svg")
HOW = {
    "--state": "a file that 'kvplan trace --record FILE.json' wrote",
    "--position": "a token of the request, counted from 0",
    "--request": "a request of the state; 'kvplan inspect --state FILE' lists them",
    "--allocate": "which builds the pools",
}


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks of the launch and the state that it names."""

    state: Path | None
    request: str | None
    position: int | None
    slot: int | None
    allocate: bool
    device: str | None
    kv_scale: bool
    pp_rank: int | None
    all_ranks: bool
    output: Path | None


class Found(msgspec.Struct, frozen=True):
    """What is there to look at, or why the launch does not start."""

    subject: Subject | NoStart
    recorded: Recorded | None
    warnings: tuple[str, ...] = ()


def find(named: LaunchOptions, wanted: Wanted) -> Found:
    """Read the state, plan the launch, find the token, build the pools: as far as asked for."""
    check_options(wanted)
    keep_inputs(named, wanted)
    recorded = load_state(wanted.state) if wanted.state is not None else None
    asked = read_launch_of(named, recorded)
    if asked is None:
        warnings = without_launch(wanted)
        return Found(located(Subject(recorded=recorded), wanted), recorded, warnings)
    outcome = plan(asked.launch).outcome
    if isinstance(outcome, NoStart):
        return Found(outcome, recorded, asked.warnings)
    if recorded is not None:
        check_state_of(outcome, recorded, is_own=names_nothing(named))
    subject = Subject(outcome, pp_ranks(outcome, wanted), recorded)
    subject = allocated(located(subject, wanted), wanted)
    return Found(subject, recorded, asked.warnings)


def check_options(wanted: Wanted) -> None:
    """InputError for options that need another one, or exclude each other."""
    has_request, output = wanted.request is not None, wanted.output
    if has_request and wanted.slot is not None:
        raise InputError("--request and --slot exclude each other")
    if wanted.pp_rank is not None and wanted.all_ranks:
        raise InputError("--pp-rank and --all-ranks exclude each other")
    if output is not None:
        check_output(output, OUTPUTS)
    draws = output is not None and output.suffix == ".svg"
    for flag, given, needed, there in (
        ("--request", has_request, "--state", wanted.state is not None),
        ("--request", has_request, "--position", wanted.position is not None),
        ("--position", wanted.position is not None, "--request", has_request),
        ("--device", wanted.device is not None, "--allocate", wanted.allocate),
        ("--kv-scale", wanted.kv_scale, "--allocate", wanted.allocate),
        ("a picture", draws, "--state", wanted.state is not None),
    ):
        if given and not there:
            raise InputError(f"{flag} needs {needed}", hint=f"add {needed}, {HOW[needed]}")


def keep_inputs(named: LaunchOptions, wanted: Wanted) -> None:
    """InputError where --output would overwrite what is read."""
    if wanted.output is None:
        return
    words = [Path(each) for each in named.words or ()]
    inputs = [wanted.state, named.launch_file, *words, *(each / "config.json" for each in words)]
    for each in inputs:
        with suppress(OSError, ValueError):  # no such file: nothing to overwrite
            if each is not None and wanted.output.samefile(each):
                raise InputError(f"--output would overwrite '{each}', which is read")


def read_launch_of(named: LaunchOptions, recorded: Recorded | None) -> Asked | None:
    """The launch that the command line names, else the state's own; None where there is none."""
    if recorded is None or not names_nothing(named):
        return read_launch_options(named)
    if recorded.state.launch is None:
        return None
    return Asked(read_launch(recorded), (), ())


def names_nothing(named: LaunchOptions) -> bool:
    """Whether the command line says nothing of a launch."""
    fields = (field for field in named.__struct_fields__ if field != "memory")
    return named.memory == MemoryInputs() and not any(getattr(named, each) for each in fields)


def without_launch(wanted: Wanted) -> tuple[str, ...]:
    """What a state that names no launch cannot answer."""
    if wanted.allocate:
        raise InputError("the state names no launch to build", hint="name MODEL and --gpu too")
    if wanted.request is not None or wanted.slot is not None:
        return ("the state names no launch: name MODEL and --gpu too, for the bytes of each layer",)
    return ()


def pp_ranks(outcome: Plan, wanted: Wanted) -> tuple[int, ...]:
    """The stages that are looked at."""
    last = len(outcome.stages) - 1
    if wanted.all_ranks:
        return tuple(range(last + 1))
    rank = wanted.pp_rank or 0
    if rank > last:
        hint = f"the plan has stages 0 to {last}" if last else "the plan has stage 0 alone"
        raise InputError(f"there is no pipeline stage {rank}", hint=hint)
    return (rank,)


def located(subject: Subject, wanted: Wanted) -> Subject:
    """The subject with the token that was asked for, if one was."""
    if subject.recorded is not None and wanted.request is not None:
        assert wanted.position is not None
        spot = request_spot(subject.recorded, wanted.request, wanted.position)
    elif wanted.slot is None:
        return subject
    elif subject.recorded is not None:
        spot = slot_spot(subject.recorded, wanted.slot)
    else:
        assert subject.plan is not None
        spot = planned_spot(subject.plan, wanted.slot)
    return subject._replace(spot=spot)


def planned_spot(outcome: Plan, slot: int) -> Spot:
    """A slot of a plan, which nobody holds."""
    sizes = plan_sizes(outcome)
    padding = sizes.page_size * outcome.resolved.kv_shards
    last = sizes.tokens + padding - 1
    if slot > last:
        raise InputError(f"there is no slot {slot}", hint=f"slots are 0 to {last}")
    return Spot(slot)


def allocated(subject: Subject, wanted: Wanted) -> Subject:
    """The subject with the pools of its stages built and compared, one after the other."""
    if not wanted.allocate:
        return subject
    require_torch("--allocate")
    from kvplan.pools.allocation import allocate

    assert subject.plan is not None
    device = "auto" if wanted.device is None else wanted.device
    built = [
        allocate(subject.plan, device, pp_rank=rank, kv_scale=wanted.kv_scale)
        for rank in subject.pp_ranks
    ]
    return subject._replace(allocations=built)

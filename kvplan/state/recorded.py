"""A recorded state of the pools at one step of a replay: who holds which slots, written and read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.planner import Launch
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import ServerArgs
from kvplan.words import printable

if TYPE_CHECKING:
    from kvplan.state.ownership import Ownership

SCHEMA = "kvplan.state/1"
MAX_BYTES = 32 << 20
MAX_TOKENS = 1 << 27

Id = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Number = Annotated[int, Meta(ge=1, le=MAX_TOKENS)]
Run = tuple[Id, Number]  # the first of some ids that follow one by one, and how many
MappedRun = tuple[Id, Id, Number]  # first full slot, first sliding slot, how many


class RecordedLaunch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The launch that was replayed, with everything its plan is derived from."""

    model: ModelSpec
    gpu: GpuSpec
    server: ServerArgs
    memory: MemoryInputs = MemoryInputs()
    draft: ModelSpec | None = None
    preset_fields: tuple[str, ...] = ()


class PagedPool(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One pool of `tokens` slots: pages of its free list in order, then those staged behind it."""

    tokens: Number
    free_pages: tuple[Run, ...]
    staged_pages: tuple[Run, ...] = ()


class HeldRow(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One request: its row, and the slots of its positions (of the full side where there are two).

    The slots of the first `cached_len` positions belong to the prefix cache, the others to the
    request alone. `slots` may reach beyond `seq_len`: a reserve that is allocated and not written.
    """

    rid: str
    row: Number
    seq_len: Id
    slots: tuple[Run, ...]
    cached_len: Id = 0
    state_slot: Number | None = None
    tracking_slots: tuple[Number, ...] = ()

    @property
    def name(self) -> str:
        """The request's name as a message has it: in quotes, control characters spelled out."""
        return f"'{printable(self.rid)}'"


class StateSlots(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Slots of recurrent state, 1 to `slots`; `cached` are those that the prefix cache keeps."""

    slots: Number
    free: tuple[Run, ...]
    cached: tuple[Run, ...] = ()


class RecordedState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every row, page and slot of one replica between two steps.

    Page 0, row 0 and state slot 0 take padding and are in no list. `rows` and `row_width` are the
    shape of req_to_token, row 0 included. `page_size` is the allocator's: under decode context
    parallelism a page holds one page of every rank.
    """

    schema: str = SCHEMA
    step: Id | None = None
    launch: RecordedLaunch | None = None
    page_size: Number
    rows: Number
    row_width: Number
    kv: PagedPool  # the only pool, or the full side
    sliding: PagedPool | None = None
    full_to_swa: tuple[MappedRun, ...] = ()  # without the unmapped
    cached: tuple[Run, ...] = ()  # slots in the prefix tree, in the order of its nodes
    requests: tuple[HeldRow, ...] = ()
    state: StateSlots | None = None


class Recorded(NamedTuple):
    """A state that was read, who holds each of its slots, and the file it came from."""

    state: RecordedState
    owners: Ownership
    where: str


def recorded_launch(launch: Launch) -> RecordedLaunch:
    """A launch as it is written beside a state."""
    return RecordedLaunch(
        model=launch.model,
        draft=launch.draft,
        gpu=launch.gpu,
        server=launch.args,
        memory=launch.memory,
        preset_fields=tuple(sorted(launch.preset_fields)),
    )


def state_text(state: RecordedState) -> str:
    """The state as JSON, a field a line and a request a line; the same text for the same state."""
    lines = []
    for name in state.__struct_fields__:
        value = getattr(state, name)
        if name == "requests" and value:
            rows = ",\n".join(compact(each) for each in value)
            lines.append(f'"{name}": [\n{rows}\n]')
        elif value is not None:
            lines.append(f'"{name}": {compact(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def compact(value: Any) -> str:
    return msgspec.json.encode(given(msgspec.to_builtins(value)), order="sorted").decode()


def given(value: Any) -> Any:
    """A value without what is null in it: every such field is null by default."""
    if isinstance(value, dict):
        return {name: given(each) for name, each in value.items() if each is not None}
    return value


def load_state(path: Path) -> Recorded:
    """A recorded state; InputError with file and line for what is none or contradicts itself."""
    from kvplan.yamlfile import read_text

    return parse_state(read_text(path, MAX_BYTES), str(path))


def parse_state(text: str, where: str) -> Recorded:
    """The text of a recorded state; `where` is the file name for messages."""
    from kvplan.jsonfile import parse_json
    from kvplan.state.ownership import read_ownership

    document = parse_json(text, where)
    refuse_other_schemas(document)
    state = document.convert(RecordedState)
    return Recorded(state, read_ownership(state, document), where)


def refuse_other_schemas(document: Document) -> None:
    """A file of another kind or version is named as such, not by its first odd field."""
    from kvplan.refusals import shown

    data = document.data
    found = data.get("schema") if isinstance(data, dict) else None
    if found == SCHEMA:
        return
    hint = "record one with 'kvplan trace --record'"
    if found is not None:
        raise InputError(
            f"the schema is {shown(found)}, a recorded state has '{SCHEMA}'",
            where=document.where(("schema",)),
            hint=hint,
        )
    raise InputError("no recorded state: it has no 'schema'", where=document.where(), hint=hint)


def read_launch(recorded: Recorded) -> Launch:
    """The launch that a state was recorded from; InputError where it names none."""
    launch = recorded.state.launch
    if launch is None:
        raise InputError(
            "the state names no launch",
            where=recorded.where,
            hint="name MODEL and --gpu beside --state",
        )
    return Launch(
        model=launch.model,
        draft=launch.draft,
        gpu=launch.gpu,
        args=launch.server,
        memory=launch.memory,
        preset_fields=frozenset(launch.preset_fields),
    )

"""The sweep file: the values of each input, what must hold between them, what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta

from kvplan.search.kinds import kind_of
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.server import DRAFT_FIELD, Count, GraphConfig, ServerArgs

T = TypeVar("T")
Number = int | float


class Values(
    msgspec.Struct, Generic[T], frozen=True, kw_only=True, omit_defaults=True,
    forbid_unknown_fields=True,
):  # fmt: skip
    """The values of one input: listed, or from a start to an end by steps or by a factor."""

    values: Annotated[tuple[T, ...], Meta(min_length=1)] | None = None
    start: Number | None = msgspec.field(name="from", default=None)
    stop: Number | None = msgspec.field(name="to", default=None)
    step: Number | None = None
    factor: Number | None = None


def axis_type(plain: Any) -> Any:
    """What a sweep file may write for a field: one value, a list of them, or `Values`.

    A field that takes a list is listed as a list of lists.
    """
    if kind_of(plain) is not None:
        return plain | Annotated[tuple[plain, ...], Meta(min_length=1)] | Values[plain]
    if GraphConfig in getattr(plain, "__args__", ()):
        return plain | Annotated[tuple[plain, ...], Meta(min_length=1)]
    rows = tuple[Count | Annotated[tuple[Count, ...], Meta(min_length=1)] | None, ...]
    return None | Annotated[rows, Meta(min_length=1)] | Values[plain]


def axes_of(name: str, kind: type[msgspec.Struct]) -> Any:
    """A struct with the fields of `kind`, each of which may be swept."""
    fields = [
        (field.name, axis_type(field.type), msgspec.field(default=None))
        for field in msgspec.structs.fields(kind)
        if field.name != DRAFT_FIELD
    ]
    return msgspec.defstruct(
        name, fields, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
    )


if TYPE_CHECKING:
    ServerAxes = msgspec.Struct
    MemoryAxes = msgspec.Struct
else:
    ServerAxes = axes_of("ServerAxes", ServerArgs)
    MemoryAxes = axes_of("MemoryAxes", MemoryInputs)

Words = Annotated[tuple[str, ...], Meta(min_length=1, max_length=100)]
Names = str | Annotated[tuple[str, ...], Meta(min_length=1)] | Values[str]
MaybeNames = str | None | Annotated[tuple[str | None, ...], Meta(min_length=1)] | Values[str | None]
Free = (
    bool | int | float | str | None | Annotated[tuple[Any, ...], Meta(min_length=1)] | Values[Any]
)


class Pareto(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wanted more of, and what less of, by column."""

    maximise: str | Words = ()
    minimise: str | Words = ()


class SweepSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A grid of launches. Paths count from the file's own folder.

    Inputs stand as in a plan file, each with one value or several; `set` varies fields of
    `model.…`, `draft.…` and `gpu.…`. `where` keeps the combinations that hold its conditions.
    """

    model: Names | None = None
    gpu: Names
    parallel: MaybeNames = None
    speculative: MaybeNames = None
    draft: MaybeNames = None
    server: ServerAxes = ServerAxes()
    memory: MemoryAxes = MemoryAxes()
    set: dict[str, Free] = {}
    launch: str | None = None
    launch_file: str | None = None
    launch_name: str | None = None
    where: str | Words = ()
    columns: Words = ()
    pareto: Pareto | None = None
    note: str | None = None

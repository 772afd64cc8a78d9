"""A sweep file with its places, and the launch line or file that it stands on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from kvplan.document import Document
from kvplan.errors import KvplanError
from kvplan.guard.plan_file import PlanFile, written_launch
from kvplan.guard.server_arguments import notes_of
from kvplan.search.sweep_spec import SweepSpec
from kvplan.spec.server import DRAFT_FIELD, server_args

LAUNCH_FIELDS = ("launch", "launch_file", "launch_name")


class SweepReader(msgspec.Struct, frozen=True):
    """The file's values and where each stands."""

    spec: SweepSpec
    document: Document

    @property
    def folder(self) -> Path:
        return Path(self.document.file).parent

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Refusals that have no place of their own are about the value at path."""
        try:
            yield
        except KvplanError as error:
            if error.where is not None:
                raise
            where = self.document.where(path)
            raise type(error)(error.problem, where=where, hint=error.hint) from None


class Base(msgspec.Struct, frozen=True):
    """What the file's own launch says."""

    model: str | None = None
    draft: str | None = None
    server: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()


def read_base(reader: SweepReader) -> Base:
    """The launch that the file names; an empty one where it names none."""
    given = {name: getattr(reader.spec, name) for name in LAUNCH_FIELDS}
    named = next((name for name, value in given.items() if value is not None), None)
    if named is None:
        return Base()
    where = reader.document.where((named,))
    try:
        written = written_launch(PlanFile(**given), reader.folder)
    except KvplanError as error:
        inner = error.where if named == "launch_file" else None  # a place in another file
        raise type(error)(error.problem, where=inner or where, hint=error.hint) from None
    assert written is not None
    server = dict(written.args)
    draft = server.pop(DRAFT_FIELD, None)
    args = server_args(server, where=where)
    asked = {
        name: value for name in args.__struct_fields__ if (value := getattr(args, name)) is not None
    }
    return Base(written.model_path, draft, asked, notes_of(written))

"""Finished rows of a sweep on disk: what was planned before an interruption is not planned again."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

import msgspec

from kvplan.errors import InputError
from kvplan.search.kinds import Cell
from kvplan.search.sweep_plan import SweepPlan

SCHEMA = "kvplan.sweep-part/1"
DIGEST_BYTES = 12
START_ANEW = "delete it to start anew"


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the rows belong to: each part of the sweep by its digest."""

    schema: str
    version: str  # of kvplan
    combinations: int
    parts: dict[str, str]


class Chunk(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The rows of the combinations from start to before stop."""

    start: int
    stop: int
    rows: list[list[Cell]]


class Journal:
    """Chunks in the order of the grid, one a line. Without a path it lasts as long as the process."""

    def __init__(self, file: BinaryIO, path: Path | None, stop: int) -> None:
        self.file = file
        self.path = path
        self.stop = stop  # of the last chunk

    @classmethod
    def fresh(cls, path: Path | None, header: Header) -> Self:
        """An empty journal. InputError where an earlier one lies at the path, or it cannot be written."""
        if path is None:
            return cls(tempfile.TemporaryFile(), None, 0)
        try:
            file = path.open("xb+")
        except FileExistsError:
            raise InputError(
                "rows of an earlier run lie here",
                where=str(path),
                hint=f"--resume continues it; {START_ANEW}",
            ) from None
        except OSError as error:
            raise unwritable(path, error) from None
        file.write(msgspec.json.encode(header) + b"\n")
        file.flush()
        return cls(file, path, 0)

    @classmethod
    def continued(cls, path: Path, header: Header) -> Self:
        """The journal at the path, a cut last line dropped; a fresh one where there is none.

        InputError where it belongs to another sweep or is damaged.
        """
        if not path.exists():
            return cls.fresh(path, header)
        try:
            file = path.open("rb+")
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            stop = read_to_end(file, header, path)
        except InputError:
            file.close()
            raise
        return cls(file, path, stop)

    def append(self, line: bytes, stop: int) -> None:
        """Write one chunk as it came from a worker."""
        try:
            self.file.write(line + b"\n")
            self.file.flush()
        except OSError as error:
            raise unwritable(self.path or Path(tempfile.gettempdir()), error) from None
        self.stop = stop

    def chunks(self) -> Iterator[Chunk]:
        """All chunks so far, from the first."""
        self.file.seek(0)
        if self.path is not None:
            self.file.readline()
        for line in self.file:
            yield decode_chunk(line)
        self.file.seek(0, 2)

    def discard(self) -> None:
        """The rows are in a file of their own now."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.file.close()


def read_to_end(file: BinaryIO, header: Header, path: Path) -> int:
    """Check every line and cut a broken last one off; returns the stop of the last chunk."""
    check_header(file.readline(), header, path)
    end, stop = file.tell(), 0
    for number, line in enumerate(file, start=2):
        if not line.endswith(b"\n"):
            break
        chunk = read_chunk(line, f"{path}:{number}")
        if chunk.start != stop or not stop < chunk.stop <= header.combinations:
            raise damaged(f"{path}:{number}")
        end, stop = end + len(line), chunk.stop
    file.truncate(end)
    file.seek(end)
    return stop


encode_chunk = msgspec.json.Encoder().encode
decode_chunk = msgspec.json.Decoder(Chunk).decode


def part_file(output: Path) -> Path:
    """Where the rows of an unfinished result lie."""
    return output.with_name(f"{output.name}.part")


def header_of(sweep: SweepPlan, version: str) -> Header:
    """Digests of everything that decides a row."""
    parts: dict[str, Any] = {axis.name: axis.cells for axis in sweep.grid.axes}
    presets = sweep.presets
    parts |= {f"model {name}": spec for name, spec in presets.models.items()}
    parts |= {f"gpu {name}": spec for name, spec in presets.gpus.items()}
    parts |= {f"parallel {name}": fields for name, fields in presets.parallel.items()}
    parts |= {f"speculative {name}": fields for name, fields in presets.speculative.items()}
    parts |= {
        "the order of the inputs": [axis.name for axis in sweep.grid.axes],
        "launch": sweep.base,
        "where": sweep.where,
        "columns": [column.name for column in sweep.planned_columns],
        "pareto": sweep.objectives,
    }
    digests = {name: digest(value) for name, value in parts.items()}
    return Header(schema=SCHEMA, version=version, combinations=sweep.grid.count, parts=digests)


def digest(value: Any) -> str:
    encoded = msgspec.json.encode(value, order="deterministic")
    return hashlib.sha256(encoded).hexdigest()[: 2 * DIGEST_BYTES]


def check_header(line: bytes, header: Header, path: Path) -> None:
    """Refuse rows of another sweep, and say what differs."""
    try:
        found = msgspec.json.decode(line, type=Header)
    except msgspec.DecodeError:
        raise InputError(
            "not the rows of an unfinished sweep", where=f"{path}:1", hint=START_ANEW
        ) from None
    if found.schema != header.schema or found.version != header.version:
        raise InputError(
            f"kvplan {found.version} wrote these rows, this is {header.version}",
            where=str(path),
            hint=START_ANEW,
        )
    names = dict.fromkeys((*header.parts, *found.parts))
    changed = [name for name in names if header.parts.get(name) != found.parts.get(name)]
    if changed:
        listed = ", ".join(f"'{name}'" for name in changed[:3]) + (", …" if changed[3:] else "")
        raise InputError(
            f"the sweep changed since these rows were planned: {listed}",
            where=str(path),
            hint=f"restore the file, or {START_ANEW}",
        )


def read_chunk(line: bytes, where: str) -> Chunk:
    try:
        return decode_chunk(line)
    except msgspec.DecodeError:
        raise damaged(where) from None


def damaged(where: str) -> InputError:
    return InputError("the finished rows are damaged", where=where, hint=START_ANEW)


def unwritable(path: Path, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    return InputError(f"cannot write: {reason}", where=str(path))

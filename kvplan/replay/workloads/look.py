"""A first look at a workload file: its kind, its header or keys, its first row."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from stat import S_ISDIR
from typing import Any

import msgspec

from kvplan.errors import InputError, TraceError
from kvplan.replay.workloads.binary import refuse_binary
from kvplan.replay.workloads.compression import mode_of
from kvplan.replay.workloads.fitting import KEYS
from kvplan.replay.workloads.formats import CSV, JSON, YAML
from kvplan.replay.workloads.rows import shown
from kvplan.replay.workloads.sglang_log import request_event
from kvplan.replay.workloads.stream import (
    HEAD_BYTES,
    MAX_DOCUMENT_BYTES,
    Source,
    head,
    numbered_lines,
    open_source,
    whole,
    yaml_document,
)
from kvplan.replay.workloads.weka import folder_files

YAML_START = re.compile(rb"---|#|[A-Za-z_][\w-]*\s*:(?:\s|$)")
OPEN_ENDS = (b"{", b"[", b",", b":")
MAX_LISTED = 12
JSON_LINES = "workloads are JSON lines: one object a line"


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What a file's start shows: `keys` are a CSV header, or the keys of the first object.

    A `spread` object is a whole document on many lines.
    """

    kind: str
    line: int
    keys: tuple[str, ...]
    sample: Any
    spread: bool = False

    @property
    def noun(self) -> str:
        """What the keys are called in a message."""
        return "the header is" if self.kind == CSV else "the keys are"

    def listed(self) -> str:
        """The keys for a message, cut where there are many."""
        names = [name if len(name) <= 40 else f"{name[:39]}…" for name in self.keys[:MAX_LISTED]]
        return ", ".join(names) + (", …" if len(self.keys) > MAX_LISTED else "")


def look(path: Path) -> tuple[Source, Look]:
    """The file (or folder of session documents) and what its start shows; TraceError for no text."""
    if S_ISDIR(mode_of(path)):
        return look_into(path)
    source = open_source(path)
    data = head(source)
    refuse_binary(source, data)
    line, first = next(numbered_lines(source, MAX_DOCUMENT_BYTES), (0, b""))
    if not line:
        raise TraceError("the file is empty", where=str(path))
    if not first.lstrip().startswith(b"{"):
        logged = next(filter(None, map(request_event, data.splitlines())), None)
        if logged is not None:
            return source, json_look(source, line, logged)
    if first.lstrip().startswith((b"{", b"[")):
        return source, json_look(source, line, first)
    if YAML_START.match(first):
        return source, yaml_look(source, line)
    return source, csv_look(source, line, first)


def look_into(folder: Path) -> tuple[Source, Look]:
    """A folder is a set of session documents: the first one stands for all."""
    files = folder_files(folder)
    if not files:
        raise TraceError(
            "a folder without .json files", where=str(folder), hint="name one workload file"
        )
    _, seen = look(files[0])
    if not {"requests", "block_size"} <= set(seen.keys):
        raise TraceError(
            "a folder whose files are no agent sessions",
            where=str(files[0]),
            hint="only WEKA sessions are replayed by the folder: name one workload file",
        )
    return Source(folder, None), seen


def csv_look(source: Source, line: int, first: bytes) -> Look:
    """Header and first row of a CSV file; a line without a comma is none."""
    if b"," not in first:
        raise TraceError(
            f"neither CSV, JSON nor YAML: {shown(first[:60].decode(errors='replace'))}",
            where=source.where(line),
        )
    header = tuple(name.strip() for name in fields(first))
    rows = numbered_lines(source)
    next(rows)
    _, row = next(rows, (0, b""))
    return Look(kind=CSV, line=line, keys=header, sample=fields(row))


def fields(line: bytes) -> list[str]:
    try:
        return next(csv.reader([line.decode(errors="replace")]), [])
    except csv.Error:
        return []


def json_look(source: Source, line: int, first: bytes) -> Look:
    """Keys of the first object: the first line, or the whole document where it is spread out."""
    spread = False
    try:
        keys = tuple(KEYS.decode(first))
    except msgspec.ValidationError:
        raise no_object(source, line, first[:HEAD_BYTES].lstrip()) from None
    except RecursionError:
        raise TraceError("nested too deep", where=source.where(line)) from None
    except msgspec.MsgspecError:
        if not first.rstrip().endswith(OPEN_ENDS):
            raise not_json(source, line, first) from None
        keys, spread = document(source, line), True
    # values are not unpacked: a few bytes of them may stand for gigabytes
    return Look(kind=JSON, line=line, keys=keys, sample=None, spread=spread)


def document(source: Source, line: int) -> tuple[str, ...]:
    """Keys of a JSON document spread over many lines."""
    content = whole(source)
    try:
        return tuple(KEYS.decode(content))
    except msgspec.ValidationError:
        raise no_object(source, line, content[:HEAD_BYTES].lstrip()) from None
    except RecursionError:
        raise TraceError("nested too deep", where=source.where(line)) from None
    except msgspec.MsgspecError as error:
        offset = re.search(r"byte (\d+)", str(error))
        at = content.count(b"\n", 0, int(offset.group(1)) if offset else len(content)) + 1
        raise TraceError(
            "the JSON document ends early" if not offset else "not JSON",
            where=source.where(at),
            hint=JSON_LINES,
        ) from None


def no_object(source: Source, line: int, start: bytes) -> TraceError:
    """The refusal of JSON that is no object; an array's first object is named by its keys."""
    where = source.where(line)
    try:
        inner = start.removeprefix(b"[").decode(errors="replace").lstrip()
        value, _ = json.JSONDecoder().raw_decode(inner)
    except RecursionError:
        return TraceError("nested too deep", where=where)
    except ValueError:
        value = None
    if start.startswith(b"[") and isinstance(value, dict):
        seen = Look(kind=JSON, line=line, keys=tuple(value), sample=None)
        problem = f"a JSON array of objects with the keys {seen.listed()}"
        return TraceError(problem, where=where, hint=JSON_LINES)
    shown_start = shown(start[:60].decode(errors="replace"))
    return TraceError(f"the first row is no object: {shown_start}", where=where)


def not_json(source: Source, line: int, first: bytes) -> TraceError:
    return TraceError(
        f"not JSON: {shown(first[:80].decode(errors='replace'))}", where=source.where(line)
    )


def yaml_look(source: Source, line: int) -> Look:
    """Keys of a YAML document, which must be a mapping."""
    try:
        data = yaml_document(source).data
    except InputError as error:
        raise InputError(
            f"no workload that can be read: neither CSV nor JSON, and as YAML: {error.problem}",
            where=error.where,
            hint=error.hint,
        ) from None
    if not isinstance(data, dict):
        raise TraceError("the YAML document is no mapping", where=source.where(line))
    return Look(kind=YAML, line=line, keys=tuple(data), sample=data)

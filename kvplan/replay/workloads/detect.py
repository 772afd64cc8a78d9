"""Which format a workload file has, told by its header or keys and never by its name."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kvplan.errors import TraceError, did_you_mean
from kvplan.replay.workloads.fitting import most_specific, nearest_format
from kvplan.replay.workloads.formats import FORMATS, Format, Refused
from kvplan.replay.workloads.look import JSON_LINES, Look, look
from kvplan.replay.workloads.stream import Source


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about one file and what it rests on, for printing."""

    format: str
    title: str
    layout: str
    compression: str | None
    reasons: tuple[str, ...]

    def describe(self) -> str:
        """One line: `azure (Azure LLM inference), 2023: …, gzip; header TIMESTAMP,…`."""
        packed = f", {self.compression}" if self.compression else ""
        return f"{self.format} ({self.title}{packed}): {self.layout}; {'; '.join(self.reasons)}"


def detect(path: Path, *, format: str | None = None) -> Detected:
    """The format of a file; TraceError where it is unknown, unsupported or could be two.

    `format` overrides the decision; the file must still have what that format needs.
    """
    source, seen = look(path)
    chosen = named(format, source, seen) if format is not None else decided(source, seen)
    if seen.spread and not chosen.spread:
        raise TraceError(
            f"one JSON object over many lines, not a {chosen.title} file",
            where=source.where(seen.line),
            hint=JSON_LINES,
        )
    return Detected(
        format=chosen.name,
        title=chosen.title,
        layout=chosen.reader().layout(seen.keys, seen.sample),
        compression=source.compression,
        reasons=(f"{seen.noun} {seen.listed()}", *(["as asked"] if format is not None else [])),
    )


def decided(source: Source, seen: Look) -> Format:
    """The one format that fits best."""
    fitting = most_specific(seen.kind, seen.keys)
    where = source.where(seen.line)
    near = None if fitting else nearest_format(seen.kind, seen.keys)
    if near is not None:
        missing = ", ".join(sorted(near.required - set(seen.keys)))
        raise TraceError(
            f"not quite {near.title}, which also needs {missing}: {seen.noun} {seen.listed()}",
            where=where,
            hint=f"known formats: {', '.join(FORMATS)}",
        )
    if not fitting:
        raise TraceError(
            f"not a workload format that kvplan knows: {seen.noun} {seen.listed()}",
            where=where,
            hint=f"known formats: {', '.join(FORMATS)}",
        )
    if len(fitting) > 1:
        raise TraceError(
            f"could be {' or '.join(found.title for found in fitting)}",
            where=where,
            hint="say which with --format",
        )
    (found,) = fitting
    if isinstance(found, Refused):
        raise TraceError(
            f"recognised but not supported: {found.title}, since {found.reason}", where=where
        )
    return found


def named(name: str, source: Source, seen: Look) -> Format:
    """The format that the user names, if the file has what it needs."""
    if name not in FORMATS:
        raise TraceError(f"unknown workload format '{name}'", hint=did_you_mean(name, FORMATS))
    format = FORMATS[name]
    lacking = sorted(format.required - set(seen.keys))
    if seen.kind not in format.kinds or lacking:
        needs = f"{', '.join(lacking)}" if lacking else f"a {' or '.join(format.kinds)} file"
        raise TraceError(
            f"not readable as '{name}', which needs {needs}: {seen.noun} {seen.listed()}",
            where=source.where(seen.line),
        )
    return format

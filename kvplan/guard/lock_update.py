"""A check against a lock file, or its update."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvplan.guard.check import Checked
from kvplan.guard.lock import lock_text, read_lock, updated
from kvplan.guard.lock_check import lock_findings
from kvplan.guard.record import Record, record
from kvplan.words import printable


def hold_to_lock(results: Sequence[Checked], lock: Path) -> list[Checked]:
    """The outcome with a finding a plan about what the lock file records of it."""
    recorded = read_lock(lock)
    held = []
    for checked in results:
        now = recorded_now(checked, lock)
        if now is None or checked.entry is None:
            held.append(checked)
            continue
        found = lock_findings(checked.entry, recorded.get(now.name), now, lock)
        held.append(msgspec.structs.replace(checked, findings=(*checked.findings, *found)))
    return held


def updated_lock(results: Sequence[Checked], lock: Path) -> tuple[str, dict[str, Any]]:
    """The new text of a lock file, and what to say of it; InputError where the old one is none."""
    before = read_lock(lock) if lock.exists() else {}
    now = {each.name: each for each in every_record(results, lock)}
    after = updated(before, now, lock)
    changed = sorted(
        name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
    )
    noun = "plan" if len(after) == 1 else "plans"
    text = f"{lock.name}: {len(after)} {noun}, {len(changed)} changed"
    return lock_text(after), {"file": str(lock), "updated": True, "changed": changed, "text": text}


def untouched_lock(results: Sequence[Checked], lock: Path) -> dict[str, Any] | None:
    """What to say where a budget could not be read: a lock file without it would look complete."""
    bad = [checked.title for checked in results if checked.status == "bad"]
    if not bad:
        return None
    text = f"{lock.name} is left as it is: '{printable(bad[0])}' could not be read"
    return {"file": str(lock), "updated": False, "changed": [], "text": text}


def every_record(results: Iterable[Checked], lock: Path) -> list[Record]:
    """The plans of a check as they are recorded."""
    found = [recorded_now(checked, lock) for checked in results]
    return [each for each in found if each is not None]


def recorded_now(checked: Checked, lock: Path) -> Record | None:
    """One budget's plan under its name in the lock file; None where it could not be read."""
    if checked.entry is None or checked.launch is None or checked.planned is None:
        return None
    name = lock_name(checked.entry.document.file, checked.entry.name, lock)
    return record(name, checked.launch, checked.planned)


def lock_name(file: str, name: str, lock: Path) -> str:
    """A budget's name in a lock file: its path from there, and its name in the file."""
    path = Path(os.path.relpath(file, lock.parent)).as_posix()
    return printable(f"{path}#{name}" if name else path)

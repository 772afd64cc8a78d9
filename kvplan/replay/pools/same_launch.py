"""What all ranks of a replay have to have in common, as digests that they can exchange."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from kvplan.replay.trace import PoolOptions, Session
from kvplan.replay.workloads.workload import Workload

DIGEST_BYTES = 7  # positive in the int64 that ranks exchange


def common_ground(
    session: Session, workload: Workload, options: PoolOptions, device_kind: str
) -> dict[str, int]:
    """A digest of each part of what decides a replay; where files lie decides nothing."""
    launch, plan, chosen = session.launch, session.plan, session.options
    detected = workload.detected
    return {
        "model": digest(launch.model, launch.draft),
        "launch": digest(launch.gpu, launch.args, launch.memory, launch.preset_fields),
        "pools": digest(plan.tokens, plan.rows, plan.reserves.alloc_page_size),
        "scheduler": digest(chosen.choices),
        "assumptions": digest(chosen.assumptions),
        "workload": digest(
            content_digest(workload.source.path), detected.format, workload.options, chosen.limit
        ),
        "options": digest(device_kind, options.kv_scale, options.stamp, options.verify_every),
    }


def digest(*values: Any) -> int:
    """The same number for equal values, in whatever process."""
    content = msgspec.msgpack.encode(values, order="deterministic")
    return int.from_bytes(hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest())


def content_digest(path: Path) -> bytes:
    """Of a file, or of the files in a folder by their names."""
    if not path.is_dir():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").digest()
    found = hashlib.blake2b()
    for each in sorted(path.rglob("*")):
        if each.is_file():
            found.update(str(each.relative_to(path)).encode() + content_digest(each))
    return found.digest()

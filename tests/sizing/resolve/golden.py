"""The engine's recorded launches as inputs of a resolution."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kvplan.sizing.resolve.resolve import resolve
from kvplan.sizing.resolved import Resolved
from kvplan.spec.gpu import GpuSpec
from kvplan.spec.hf.read import Origin, model_from_config
from kvplan.spec.model import ModelSpec
from kvplan.spec.server import server_args

FILES = ("explicit", "defaults", "special", "lowbit", "host")


def records(shared: Path, name: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(case, answer) of every record of one file."""
    with (shared / "golden" / f"sizing-{name}.jsonl").open() as lines:
        for line in lines:
            record = json.loads(line)
            yield record["case"], record["answer"]


def resolve_case(case: dict[str, Any]) -> Resolved:
    """One recorded launch, resolved by kvplan."""
    draft = case.get("draft_config")
    return resolve(
        server_args(case["args"]),
        model_of(json.dumps(case["config"]), case["model"]),
        GpuSpec(**case["gpu"]),
        model_of(json.dumps(draft), case.get("draft") or "draft") if draft else None,
    )


@cache
def model_of(config: str, name: str) -> ModelSpec:
    """A recorded config, read once."""
    return model_from_config(json.loads(config), Origin(name=name))

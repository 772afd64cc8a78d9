"""The engine's recorded allocator traces, one JSON object a line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def load_traces(shared: Path) -> list[dict[str, Any]]:
    with gzip.open(shared / "golden" / "allocators.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]

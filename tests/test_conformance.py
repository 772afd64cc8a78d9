"""kvplan's sizings against the engine's own answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.conformance import answer
from kvplan.differences import differences

FILES = ("explicit", "special", "lowbit", "host", "defaults")


@pytest.mark.parametrize("name", FILES)
def test_every_recorded_sizing_is_reproduced(shared: Path, name: str):
    lines = (shared / "golden" / f"sizing-{name}.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]

    wrong = {}
    for record in records:
        case = record["case"]
        found = differences(case["id"], answer(case), record["answer"])
        if found:
            wrong[case["id"]] = found

    assert len(records) > 100
    assert not wrong, f"{len(wrong)} of {len(records)}: {dict(list(wrong.items())[:10])}"

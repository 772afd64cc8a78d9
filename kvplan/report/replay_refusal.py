"""The answer of `kvplan trace` for a launch that does not start: there is nothing to replay."""

from __future__ import annotations

from typing import Any

from kvplan.planner import Planned
from kvplan.report.plan import size_report
from kvplan.report.replay import SCHEMA


def refusal_report(planned: Planned) -> dict[str, Any]:
    """Verdict and cures in the words of `kvplan size`, under the keys of a replay's report."""
    size = size_report(planned)
    verdict = {"fits": False, "passes": False, "complete": False, "failed": ["start"]}
    return {
        "schema": SCHEMA,
        "verdict": verdict | {"text": size["verdict"]["text"]},
        "shortage": size.get("shortage", {}),
        "cures": size["cures"],
        "otherwise": size["otherwise"],
        "warnings": size["warnings"],
        "assumed": size["assumed"],
    }

"""A check as SARIF 2.1.0, which code scanning shows beside the budget's line."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from kvplan.guard.check_report import RULES, problems
from kvplan.guard.record import version

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(report: dict[str, Any]) -> dict[str, Any]:
    """One run with a result a problem."""
    found = problems(report)
    failed = {each["requirement"] for each in found}
    rules = [name for name in RULES if name in failed]
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "kvplan",
                        "version": version(),
                        "rules": [rule(name) for name in rules],
                    }
                },
                "invocations": [{"executionSuccessful": not report["counts"]["bad"]}],
                "columnKind": "unicodeCodePoints",
                "results": [result(each, rules) for each in found],
            }
        ],
    }


def rule(name: str) -> dict[str, Any]:
    return {
        "id": name,
        "shortDescription": {"text": RULES[name]},
        "defaultConfiguration": {"level": "error"},
    }


def result(found: dict[str, Any], rules: list[str]) -> dict[str, Any]:
    """One problem at its line; the fingerprint does not move with the line."""
    requirement, place = found["requirement"], found["place"]
    hint = f"\nhint: {found['hint']}" if found["hint"] else ""
    return {
        "ruleId": requirement,
        "ruleIndex": rules.index(requirement),
        "level": "error",
        "message": {"text": f"{found['text']}{hint}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": uri(place["file"])},
                    "region": {"startLine": place["line"], "startColumn": place["column"]},
                }
            }
        ],
        "partialFingerprints": {"budget/v1": found["id"]},
    }


def uri(file: str) -> str:
    """A relative reference, or a file: URI of an absolute path."""
    path = Path(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())

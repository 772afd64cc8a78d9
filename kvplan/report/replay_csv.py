"""A replay over time as CSV: a row a point of the timeline."""

from __future__ import annotations

import csv
import io
from typing import Any


def csv_text(report: dict[str, Any]) -> str:
    """Columns as in the report's timeline; times in seconds, the rest in tokens or requests."""
    columns = report["timeline"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue()

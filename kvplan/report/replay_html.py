"""A replay as one HTML page that carries its data, charts and scripts: nothing is fetched."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import msgspec

PLACE = "__REPORT__"


def html_text(report: dict[str, Any]) -> str:
    """The page of a report."""
    page = files("kvplan").joinpath("data", "replay.html").read_text(encoding="utf-8")
    data = msgspec.json.encode(report, order="sorted").decode()
    # inside a script element nothing but a closing tag or a comment has a meaning
    return page.replace(PLACE, data.replace("<", "\\u003c"), 1)

"""`--explain`: where each number of a plan comes from."""

from __future__ import annotations

from typing import Any

from kvplan.errors import InputError, did_you_mean

from .render import table


def show_origins(report: dict[str, Any], field: str, out: Any) -> None:
    """One value's origin, or all of them with FIELD 'all'."""
    rows = dict(origin_rows(report))
    if field != "all":
        if field not in rows:
            raise InputError(f"no value is named '{field}'", hint=did_you_mean(field, rows))
        value, origin = rows[field]
        out.print(f"{field} = {value}: {origin}")
        return
    grid = table(
        ("value", "", "comes from"),
        [(name, value, origin) for name, (value, origin) in rows.items()],
    )
    out.print(grid)


def origin_rows(report: dict[str, Any]) -> list[tuple[str, tuple[str, str]]]:
    """Every resolved argument, then the sizes with their formulas."""
    rows = [
        (name, (plain(entry["value"]), entry["from"])) for name, entry in report["resolved"].items()
    ]
    return rows + [
        (name, (plain(value), origin)) for name, value, origin in report.get("origins", ())
    ]


def plain(value: Any) -> str:
    """A value as the engine's log would print it; what is off or open is a dash."""
    if isinstance(value, dict):
        parts = [f"{key} {plain(each)}" for key, each in value.items() if each is not None]
        return ", ".join(parts) or "-"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and abs(value) >= 10_000:
        return f"{value:,}"
    return "-" if value is None else str(value)

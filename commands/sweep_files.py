"""Files that a sweep writes, by suffix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from kvplan.errors import InputError
from kvplan.report.sweep import write_csv, write_json
from kvplan.search.sweep import Swept

from .render import check_output, whole_file

SUFFIXES = (".csv", ".parquet", ".html", ".json")


def check_outputs(outputs: Sequence[Path]) -> None:
    """Refuse, before the first row, what could not be written after the last."""
    for index, path in enumerate(outputs):
        check_output(path, SUFFIXES)
        if path in outputs[:index]:
            raise InputError(f"--output {path} is given twice")
        if path.suffix == ".parquet":
            writer_of(path)


def write_outputs(swept: Swept, outputs: Sequence[Path]) -> None:
    """Every row into every file."""
    for path in outputs:
        with whole_file(path) as partial:
            writer_of(path)(swept, partial)


def writer_of(path: Path) -> Callable[[Swept, Path], None]:
    """The writer of a form; MissingExtra where it is not installed."""
    match path.suffix:
        case ".parquet":
            from kvplan.report.sweep_parquet import load_arro3, write_parquet

            load_arro3()
            return write_parquet
        case ".html":
            from kvplan.report.sweep_html import write_html

            return write_html
        case ".json":
            return write_json
    return write_csv

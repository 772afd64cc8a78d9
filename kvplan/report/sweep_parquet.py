"""A sweep's rows as a Parquet file, through arro3 (extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from kvplan.errors import MissingExtra
from kvplan.search.kinds import Cell, Column, Kind
from kvplan.search.sweep import Swept

BATCH_ROWS = 10_000
COMPRESSION = "zstd(3)"
TYPES: dict[Kind, str] = {
    "integer": "int64",
    "number": "float64",
    "text": "string",
    "flag": "bool",
}


def write_parquet(swept: Swept, path: Path) -> None:
    """Every row, in batches; the same bytes for the same sweep."""
    core, io = load_arro3()
    columns = swept.sweep.columns
    types = [getattr(core.DataType, TYPES[column.kind])() for column in columns]
    schema = core.Schema(
        [core.Field(column.name, kind) for column, kind in zip(columns, types, strict=True)]
    )

    def batches() -> Iterator[Any]:
        rows = swept.rows()
        while batch := list(islice(rows, BATCH_ROWS)):
            arrays = [
                core.Array(cells_of(column, cells), kind)
                for column, kind, cells in zip(
                    columns, types, zip(*batch, strict=True), strict=True
                )
            ]
            yield core.RecordBatch.from_arrays(arrays, schema=schema)

    reader = core.RecordBatchReader.from_batches(schema, batches())
    io.write_parquet(reader, path, compression=COMPRESSION)


def cells_of(column: Column, cells: tuple[Cell, ...]) -> list[Cell]:
    """A column's cells in its own type: a number may have been an integer."""
    if column.kind == "number":
        return [None if cell is None else float(cell) for cell in cells]
    return list(cells)


def load_arro3() -> tuple[Any, Any]:
    """arro3's arrays and its Parquet writer; MissingExtra where they are not installed."""
    try:
        import arro3.core
        import arro3.io
    except ImportError:
        raise MissingExtra(
            "writing Parquet needs the packages arro3-core and arro3-io",
            hint="pip install 'kvplan-pools[parquet]', or write a .csv file",
        ) from None
    return arro3.core, arro3.io

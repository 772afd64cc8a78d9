"""Every form holds the same rows, in the same order, in the same bytes each time."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kvplan.errors import MissingExtra
from kvplan.report import sweep_html
from kvplan.report.sweep import chosen_rows, write_csv, write_json
from kvplan.report.sweep_html import write_html
from kvplan.report.sweep_parquet import write_parquet
from kvplan.search.read_sweep import read_sweep
from kvplan.search.resume import Journal, header_of
from kvplan.search.sweep import run_sweep
from kvplan.search.workers import InProcess
from tests.conftest import REPOSITORY

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
SWEEPS = REPOSITORY / "tests" / "data" / "sweeps"
WRITERS = {
    ".csv": write_csv,
    ".json": write_json,
    ".html": write_html,
    ".parquet": write_parquet,
}


@pytest.fixture(scope="module", params=["widths", "presets", "variants"])
def swept(request):
    sweep = read_sweep(SWEEPS / f"{request.param}.yaml")
    with Journal.fresh(None, header_of(sweep, "1")) as journal:
        yield run_sweep(sweep, InProcess(), 1, journal, lambda _: None)


@pytest.fixture(scope="module")
def rows(swept):
    names = [column.name for column in swept.sweep.columns]
    return [dict(zip(names, row, strict=True)) for row in swept.rows()]


def page_report(page: str):
    data = re.search(r'<script type="application/json" id="report">(.*?)</script>', page, re.S)
    assert data is not None
    return json.loads(data[1])


def test_the_front_is_marked_as_its_definition_says(swept, rows):
    objectives = swept.sweep.objectives

    def at_least(one, other):
        return all(one[name] >= other[name] for name in objectives.maximise) and all(
            one[name] <= other[name] for name in objectives.minimise
        )

    started = [row for row in rows if row["status"] == "starts"]
    for row in started:
        beaten = any(at_least(each, row) and not at_least(row, each) for each in started)
        assert row["pareto"] is not beaten
    assert not any(row["pareto"] for row in rows if row["status"] != "starts")


def test_csv_has_every_row(tmp_path: Path, swept, rows):
    write_csv(swept, tmp_path / "x.csv")

    with (tmp_path / "x.csv").open(newline="") as file:
        read = list(csv.DictReader(file))

    kinds = {column.name: column.kind for column in swept.sweep.columns}
    assert len(read) == len(rows)
    for cells, row in zip(read, rows, strict=True):
        for name, value in row.items():
            if value is None:
                assert cells[name] == ""
            elif kinds[name] == "flag":
                assert cells[name] == str(value).lower()
            else:
                assert type(value)(cells[name]) == value


def test_json_has_every_row_and_is_sorted(tmp_path: Path, swept, rows):
    write_json(swept, tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text()
    read = json.loads(text)

    assert read["schema"] == "kvplan.sweep/1"
    assert read["rows"] == rows
    assert list(read) == sorted(read)
    assert sum(read["counts"].values()) == len(rows) == read["planned"] - read["ruled_out"]
    assert read["pareto"]["points"] == len(swept.tally.front)


def test_parquet_has_every_row_in_its_own_types(tmp_path: Path, swept, rows):
    arro3 = pytest.importorskip("arro3.io", reason="arro3 is not installed")
    write_parquet(swept, tmp_path / "x.parquet")
    read = arro3.read_parquet(tmp_path / "x.parquet").read_all()

    types = {"integer": "Int64", "number": "Float64", "text": "Utf8", "flag": "Boolean"}
    assert read.column_names == list(rows[0])
    for column in swept.sweep.columns:
        assert types[column.kind] in str(read.schema.field(column.name).type)
        assert read[column.name].to_pylist() == [row[column.name] for row in rows]


class Page(HTMLParser):
    """Tags that could fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.fetched += [
            f"{tag} {name}={value}" for name, value in attrs if name in ("src", "href")
        ]


def test_the_page_carries_every_row_and_fetches_nothing(tmp_path: Path, swept, rows):
    write_html(swept, tmp_path / "x.html")
    text = (tmp_path / "x.html").read_text()
    page = Page()
    page.feed(text)
    report = page_report(text)

    names = [column["name"] for column in report["columns"]]
    assert [dict(zip(names, row, strict=True)) for row in report["rows"]] == rows
    assert page.fetched == []
    assert "default-src 'none'" in text
    assert "://" not in text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium on the PATH")
def test_a_browser_draws_the_chart_and_the_table(tmp_path: Path, swept, rows):
    write_html(swept, tmp_path / "x.html")
    dumped = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update",
            "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom",
            (tmp_path / "x.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip

    started = [row for row in rows if row["status"] == "starts"]
    front = sum(row["pareto"] for row in started)
    assert re.search(r'<h1 id="verdict" class="good">[\d,]+ of [\d,]+ combinations start', dumped)
    assert f'data-points="{len(started)}" data-front="{front}"' in dumped
    assert dumped.count('<tr class="front">') == front
    assert dumped.count("<td>starts</td>") == len(started)


def test_a_large_page_has_the_front_and_evenly_spaced_rows(tmp_path: Path, swept, monkeypatch):
    monkeypatch.setattr(sweep_html, "MAX_ROWS", 20)
    monkeypatch.setattr(sweep_html, "MAX_FRONT_ROWS", 10)
    write_html(swept, tmp_path / "x.html")
    report = page_report((tmp_path / "x.html").read_text())

    rows = list(swept.rows())
    kept = report["rows"]
    assert report["num_rows"] == len(rows) > len(kept)
    assert len(kept) <= 20
    assert [row for row in rows if row in kept] == kept
    assert [row for row in rows if row[-2]][:10] == [row for row in kept if row[-2]][:10]


@pytest.mark.parametrize("suffix", WRITERS)
def test_the_bytes_do_not_change(tmp_path: Path, swept, suffix: str):
    if suffix == ".parquet":
        pytest.importorskip("arro3.io", reason="arro3 is not installed")
    for name in ("one", "two"):
        WRITERS[suffix](swept, tmp_path / f"{name}{suffix}")

    assert (tmp_path / f"one{suffix}").read_bytes() == (tmp_path / f"two{suffix}").read_bytes()


def test_without_arro3_the_extra_is_named(tmp_path: Path, swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "arro3", None)
    monkeypatch.setitem(sys.modules, "arro3.core", None)

    with pytest.raises(MissingExtra) as refusal:
        write_parquet(swept, tmp_path / "x.parquet")

    assert "pip install 'kvplan-pools[parquet]'" in (refusal.value.hint or "")


@pytest.mark.parametrize("limit", [0, 1, 3, 1000])
def test_no_more_rows_than_the_limit_are_chosen_and_those_of_the_front_first(swept, limit: int):
    rows = list(swept.rows())
    front = [row for row in rows if row[-2]]

    chosen = list(chosen_rows(swept, limit))

    assert chosen == (rows if len(rows) <= limit else front[:limit])

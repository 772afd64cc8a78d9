"""Rows that were finished before an interruption are kept, and never mixed with another sweep's."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.errors import InputError
from kvplan.search.read_sweep import read_sweep
from kvplan.search.resume import Journal, header_of, part_file
from kvplan.search.sweep import run_sweep
from kvplan.search.workers import InProcess
from tests.conftest import REPOSITORY

WIDTHS = REPOSITORY / "tests" / "data" / "sweeps" / "widths.yaml"
VERSION = "1.2.3"


def silent(_):
    pass


def complete(journal: Journal, sweep):
    """(rows, counts, front) of a sweep run to its end."""
    swept = run_sweep(sweep, InProcess(), 3, journal, silent)
    assert swept.complete
    return list(swept.rows()), swept.tally.counts, swept.tally.front


@pytest.fixture(scope="module")
def sweep():
    return read_sweep(WIDTHS)


@pytest.fixture(scope="module")
def whole(sweep):
    with Journal.fresh(None, header_of(sweep, VERSION)) as journal:
        return complete(journal, sweep)


@pytest.fixture
def part(tmp_path: Path, sweep) -> Path:
    """A whole journal on disk."""
    path = part_file(tmp_path / "result.csv")
    with Journal.fresh(path, header_of(sweep, VERSION)) as journal:
        complete(journal, sweep)
    return path


def test_a_journal_cut_anywhere_is_continued_to_the_same_rows(part: Path, sweep, whole):
    content = part.read_bytes()
    start = content.index(b"\n") + 1
    for cut in {*range(start, len(content), 97), start, len(content) - 1, len(content)}:
        part.write_bytes(content[:cut])
        with Journal.continued(part, header_of(sweep, VERSION)) as journal:
            assert complete(journal, sweep) == whole


def test_a_stopped_sweep_keeps_its_rows_and_says_that_it_is_not_complete(
    tmp_path: Path, sweep, whole
):
    path = part_file(tmp_path / "result.csv")
    with Journal.fresh(path, header_of(sweep, VERSION)) as journal:
        asked = iter([False, False, True])
        stopped = run_sweep(sweep, InProcess(), 3, journal, silent, lambda: next(asked))
        rows = [row[:-2] for row in stopped.rows()]

    assert not stopped.complete
    assert 0 < len(rows) < len(whole[0])
    assert rows == [row[:-2] for row in whole[0][: len(rows)]]
    with Journal.continued(path, header_of(sweep, VERSION)) as journal:
        assert journal.stop == stopped.tally.done
        assert complete(journal, sweep) == whole


def test_without_rows_a_continued_sweep_starts_at_the_first(tmp_path: Path, sweep, whole):
    with Journal.continued(part_file(tmp_path / "x.csv"), header_of(sweep, VERSION)) as journal:
        assert complete(journal, sweep) == whole


def test_rows_of_an_earlier_run_are_not_overwritten(part: Path, sweep):
    content = part.read_bytes()

    with pytest.raises(InputError, match="rows of an earlier run lie here") as refusal:
        Journal.fresh(part, header_of(sweep, VERSION))

    assert "--resume" in (refusal.value.hint or "")
    assert part.read_bytes() == content


CHANGES = {
    "tp_size: [1, 2, 4]": ("tp_size: [1, 2, 8]", "'tp_size'"),
    "model: [llama-3.1-8b, ": ("model: [llama-3.1-70b, ", "'model'"),
    "where: tp_size * page_size != 32": ("where: page_size != 32", "'where'"),
    "maximise: total_tokens": ("maximise: tokens", "'pareto'"),
    "  tp_size: [1, 2, 4]\n  page_size: {values: [1, 16]}": (
        "  page_size: {values: [1, 16]}\n  tp_size: [1, 2, 4]",
        "'the order of the inputs'",
    ),
}


@pytest.mark.parametrize("old", CHANGES)
def test_another_sweep_does_not_continue_these_rows(tmp_path: Path, part: Path, old: str):
    new, named = CHANGES[old]
    file = tmp_path / "changed.yaml"
    file.write_text(WIDTHS.read_text().replace(old, new))
    content = part.read_bytes()

    with pytest.raises(InputError, match=f"changed since these rows were planned: .*{named}"):
        Journal.continued(part, header_of(read_sweep(file), VERSION))

    assert part.read_bytes() == content


def test_a_changed_model_file_is_another_sweep(tmp_path: Path):
    model = tmp_path / "model.yaml"
    text = (REPOSITORY / "presets" / "models" / "qwen3-8b.yaml").read_text()
    model.write_text(text)
    file = tmp_path / "sweep.yaml"
    file.write_text("model: model.yaml\ngpu: [h100, h200]\n")
    path = part_file(tmp_path / "x.csv")
    Journal.fresh(path, header_of(read_sweep(file), VERSION)).file.close()

    model.write_text(text.replace("num_layers: 36", "num_layers: 35"))

    with pytest.raises(InputError, match=r"'model model\.yaml'"):
        Journal.continued(path, header_of(read_sweep(file), VERSION))


def test_a_note_or_another_layout_is_the_same_sweep(tmp_path: Path, part: Path, whole):
    file = tmp_path / "same.yaml"
    text = WIDTHS.read_text().replace("page_size: {values: [1, 16]}", "page_size: [1, 16]")
    file.write_text(f"# a comment\n{text}note: the same\n")
    same = read_sweep(file)

    with Journal.continued(part, header_of(same, VERSION)) as journal:
        assert complete(journal, same) == whole


def test_another_version_does_not_continue_these_rows(part: Path, sweep):
    with pytest.raises(InputError, match=r"kvplan 1\.2\.3 wrote these rows, this is 2\.0"):
        Journal.continued(part, header_of(sweep, "2.0"))


def damaged(content: bytes, what: str) -> bytes:
    lines = content.splitlines(keepends=True)
    match what:
        case "no journal":
            return b"model,gpu,tokens\n"
        case "nothing":
            return b""
        case "binary":
            return bytes(range(256)) * 20
        case "a missing chunk":
            return b"".join([*lines[:2], *lines[3:]])
        case "a repeated chunk":
            return b"".join([*lines[:3], *lines[2:]])
        case "a broken line":
            return b"".join([*lines[:2], lines[2][:20] + b"\n", *lines[3:]])
        case "a chunk beyond the end":
            return content + b"[60,70,[]]\n"
    raise AssertionError(what)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("no journal", ".part:1: not the rows of an unfinished sweep"),
        ("nothing", ".part:1: not the rows of an unfinished sweep"),
        ("binary", ".part:1: not the rows of an unfinished sweep"),
        ("a missing chunk", ".part:3: the finished rows are damaged"),
        ("a repeated chunk", ".part:4: the finished rows are damaged"),
        ("a broken line", ".part:3: the finished rows are damaged"),
        ("a chunk beyond the end", "the finished rows are damaged"),
    ],
)
def test_damaged_rows_are_refused(part: Path, sweep, what: str, problem: str):
    part.write_bytes(damaged(part.read_bytes(), what))

    with pytest.raises(InputError, match=problem):
        Journal.continued(part, header_of(sweep, VERSION))

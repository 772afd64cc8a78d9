"""`kvplan sweep` from its command line to its files and exit codes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvplan.commands.sweep import with_address
from kvplan.search import ray_cluster
from tests.conftest import REPOSITORY

Run = Callable[..., tuple[int, str, str]]
WIDTHS = REPOSITORY / "tests" / "data" / "sweeps" / "widths.yaml"
LAUNCH = REPOSITORY / "tests" / "data" / "sweeps" / "launch.yaml"


def test_the_verdict_comes_first_and_the_front_is_marked(kvplan: Run):
    code, out, err = kvplan("sweep", WIDTHS)

    lines = out.splitlines()
    assert code == 0
    assert err == ""
    assert lines[0].startswith("45 of 60 combinations start · 12 more ruled out by 'where' · 3 ")
    assert [line[0] for line in lines if "llama" in line or "qwen" in line] == ["*"] * 3
    assert lines[-1].startswith("  57 more rows")


def test_a_table_within_the_limit_has_all_rows(kvplan: Run):
    code, out, _ = kvplan("sweep", WIDTHS, "--limit", "60")

    rows = [line for line in out.splitlines() if "llama" in line or "qwen" in line]
    assert code == 0
    assert len(rows) == 60
    assert sum(row.startswith("*") for row in rows) == 3
    assert sum("no_memory" in row and "for state and KV" in row for row in rows) == 15


def test_json_is_printed_alone_and_quiet_prints_the_verdict_alone(kvplan: Run):
    code, out, _ = kvplan("sweep", LAUNCH, "--json", "--limit", "1")
    report = json.loads(out)
    quiet = kvplan("sweep", LAUNCH, "--quiet")

    assert code == 0
    assert len(report["rows"]) == 1
    assert report["complete"] is True
    assert report["inputs"]["max_running_requests"] == [64, 256, 1024]
    assert quiet == (0, report["verdict"]["text"] + "\n", "")


def test_every_row_goes_into_every_file(kvplan: Run, tmp_path: Path):
    files = [tmp_path / f"x{suffix}" for suffix in (".csv", ".json", ".html")]
    argv = [word for file in files for word in ("--output", str(file))]

    code, _, _ = kvplan("sweep", WIDTHS, *argv)

    assert code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.csv", "x.html", "x.json"]
    assert len(files[0].read_text().splitlines()) == 61


def test_nothing_that_starts_is_the_answer_no(kvplan: Run, tmp_path: Path):
    file = tmp_path / "sweep.yaml"
    file.write_text("model: deepseek-v3\ngpu: [t4, l4]\n")
    code, out, _ = kvplan("sweep", file)

    assert code == 1
    assert out.startswith("0 of 2 combinations start\n")
    assert "no_memory" in out


def test_conditions_that_nothing_holds_are_the_answer_no(kvplan: Run, tmp_path: Path):
    file = tmp_path / "sweep.yaml"
    file.write_text("model: qwen3-8b\ngpu: [h100, h200]\nwhere: tokens > 10000000\n")
    code, out, _ = kvplan("sweep", file)
    file.write_text("model: qwen3-8b\ngpu: [h100, h200]\nwhere: gpu == 'none'\n")
    empty, text, _ = kvplan("sweep", file)

    assert code == 1
    assert out.startswith("0 of 2 combinations start and hold 'where', 2 more start but do not\n")
    assert "not tokens > 10000000" in out
    assert empty == 1
    assert text == "0 of 0 combinations start · 2 more ruled out by 'where'\n"


@pytest.mark.parametrize(
    ("argv", "problem"),
    [
        (["--output", "x.xlsx"], "no form is written for 'x.xlsx'"),
        (["--output", "nowhere/x.csv"], "the folder 'nowhere' does not exist"),
        (["--output", "x.csv", "--output", "x.csv"], "--output x.csv is given twice"),
        (["--resume"], "--resume continues a file"),
        (["--jobs", "0"], "Invalid value for '--jobs'"),
        (["--limit", "-1"], "Invalid value for '--limit'"),
    ],
)
def test_bad_options_are_refused_before_any_work(
    kvplan: Run, tmp_path: Path, monkeypatch, argv: list[str], problem: str
):
    monkeypatch.chdir(tmp_path)
    code, out, err = kvplan("sweep", WIDTHS, *argv)

    assert code == 2
    assert out == ""
    assert problem in err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_extra_is_named_before_any_work(kvplan: Run, tmp_path: Path, monkeypatch):
    monkeypatch.setitem(sys.modules, "arro3", None)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setattr(ray_cluster, "check_reachable", lambda _: None)
    parquet = kvplan("sweep", WIDTHS, "--output", str(tmp_path / "x.parquet"))
    cluster = kvplan("sweep", WIDTHS, "--ray", "head:6379")

    assert parquet[0] == cluster[0] == 2
    assert "pip install 'kvplan-pools[parquet]'" in parquet[2]
    assert "pip install 'kvplan-pools[ray]'" in cluster[2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "understood"),
    [
        (["s.yaml", "--ray"], ["s.yaml", "--ray", "local"]),
        (["--ray", "s.yaml"], ["--ray", "local", "s.yaml"]),
        (["s.yaml", "--ray", "--json"], ["s.yaml", "--ray", "local", "--json"]),
        (["s.yaml", "--ray", "auto"], ["s.yaml", "--ray", "auto"]),
        (["s.yaml", "--ray=head:6379"], ["s.yaml", "--ray=head:6379"]),
        (["s.yaml", "--ray", "ray://head:10001", "-q"], ["s.yaml", "--ray", "ray://head:10001", "-q"]),
    ],
)  # fmt: skip
def test_ray_may_stand_without_an_address(argv: list[str], understood: list[str]):
    assert with_address(argv) == understood


def test_rows_of_an_earlier_run_are_continued_only_when_asked(kvplan: Run, tmp_path: Path):
    result, part = tmp_path / "x.csv", tmp_path / "x.csv.part"
    whole = tmp_path / "whole.csv"
    kvplan("sweep", WIDTHS, "--output", str(whole))
    part.write_text("left over")

    refused = kvplan("sweep", WIDTHS, "--output", str(result))

    assert refused[0] == 2
    assert f"error: {part}: rows of an earlier run lie here" in refused[2]
    assert part.read_text() == "left over"
    part.unlink()
    assert kvplan("sweep", WIDTHS, "--output", str(result), "--resume")[0] == 0
    assert result.read_bytes() == whole.read_bytes()
    assert not part.exists()


LARGE = """\
model: llama-3.1-8b
gpu: [h100, h200]
server:
  page_size: {from: 1, to: 64, factor: 2}
  max_running_requests: {from: 10, to: 4000, step: 20}
  kv_cache_dtype: [auto, fp8_e4m3]
"""


def test_an_interrupted_sweep_keeps_its_rows_and_goes_on_with_them(tmp_path: Path):
    spec, result, whole = (tmp_path / name for name in ("s.yaml", "x.csv", "whole.csv"))
    part = tmp_path / "x.csv.part"
    spec.write_text(LARGE)

    def command(*argv: str) -> list[str]:
        return [sys.executable, "-P", "-m", "kvplan", "sweep", str(spec), "--jobs", "2", *argv]

    running = subprocess.Popen(
        command("--output", str(result)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: part.exists() and part.stat().st_size > 20_000, running)
    os.killpg(running.pid, signal.SIGINT)  # as a terminal does: the workers get it too
    out, err = running.communicate(timeout=60)

    assert running.returncode == 130, err
    assert out.startswith("interrupted after ")
    assert err == f"finished rows are kept in '{part}': --resume continues\n"
    assert not result.exists()
    kept = part.stat().st_size
    for argv in (["--output", str(result), "--resume"], ["--output", str(whole)]):
        done = subprocess.run(command(*argv), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert kept > 20_000
    assert result.read_bytes() == whole.read_bytes()
    assert not part.exists()


def wait_until(true: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_progress_is_shown_on_a_terminal_and_only_on_stderr(tmp_path: Path):
    spec = tmp_path / "s.yaml"
    spec.write_text(LARGE.replace("to: 4000", "to: 400"))
    argv = [sys.executable, "-P", "-m", "kvplan", "sweep", str(spec), "--jobs", "1", "--limit", "0"]
    terminal, end = pty.openpty()
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=end, text=True, timeout=120)
        shown = os.read(terminal, 10_000).decode()
    finally:
        os.close(terminal)
        os.close(end)

    assert done.stdout.startswith("560 of 560 combinations start")
    assert "140 of 560 · 140 start" in shown
    assert shown.endswith("\r\x1b[K")


def test_a_killed_parent_takes_its_workers_along(tmp_path: Path):
    spec, result = tmp_path / "s.yaml", tmp_path / "x.csv"
    part = tmp_path / "x.csv.part"
    spec.write_text(LARGE)
    running = subprocess.Popen(
        [sys.executable, "-P", "-m", "kvplan", "sweep", str(spec), "--jobs", "2",
         "--output", str(result)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: part.exists() and part.stat().st_size > 20_000, running)

    running.kill()
    running.communicate(timeout=60)  # returns once the workers have closed the pipe too

    deadline = time.monotonic() + 20
    while group_lives(running.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True

"""Text output on any width, with and without colours."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kvplan.commands.render import check_output, gib, whole_file
from kvplan.errors import InputError

WIDTHS = (1, 10, 40, 79, 80, 200)
LAUNCH = ("size", "gpt-oss-120b", "--gpu", "h100", "--tp", "2")


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_number_is_cut_on_a_narrow_terminal(columns, kvplan, monkeypatch):
    _, plain, _ = kvplan(*LAUNCH, "--json")
    monkeypatch.setenv("COLUMNS", str(columns))
    _, text, _ = kvplan(*LAUNCH)

    report = json.loads(plain)
    words = text.split()
    for entry in report["ledger"]["entries"]:
        number = gib(entry["bytes"]).split()[0]
        assert not entry["bytes"] or number in words, (columns, entry)
    for limit in (*report["limits"]["tokens"], *report["limits"]["requests"]):
        assert f"{limit['value']:,}" in words, (columns, limit)


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_value_of_an_explanation_is_cut_on_a_narrow_terminal(columns, kvplan, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, text, _ = kvplan(*LAUNCH, "--explain", "all")

    for name, number in (("max_total_num_tokens", "1,149,847"), ("cell_size", "33,177.6")):
        assert any(name in line and number in line.split() for line in text.splitlines()), name


def on_a_terminal(*argv: str, **environment: str) -> str:
    """What a colour terminal of 100 columns is sent."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kvplan", *argv],
        stdout=follower,
        stderr=follower,
        env={key: os.environ[key] for key in os.environ if key not in ("NO_COLOR", "COLUMNS")}
        | {"TERM": "xterm-256color"}
        | environment,
    )
    os.close(follower)
    sent = b""
    while True:
        try:
            part = os.read(leader, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        sent += part
    process.wait(timeout=60)
    os.close(leader)
    return sent.decode()


def test_a_terminal_gets_colours():
    assert "\x1b[1;32m" in on_a_terminal(*LAUNCH)


def test_no_color_means_plain_text():
    assert "\x1b" not in on_a_terminal(*LAUNCH, "--no-color")


def test_the_environment_turns_colours_off():
    assert "\x1b[1;32m" not in on_a_terminal(*LAUNCH, NO_COLOR="1")


def test_a_folder_that_takes_no_files_is_refused_before_any_work(tmp_path, monkeypatch):
    check_output(tmp_path / "x.json", (".json",))
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)

    with pytest.raises(InputError, match="nothing can be written"):
        check_output(tmp_path / "x.json", (".json",))


@pytest.mark.parametrize(
    "argv",
    [
        ("trace", "llama-3.1-8b", "--gpu", "h100", "--workload", "chat", "--output"),
        ("trace", "llama-3.1-8b", "--gpu", "h100", "--workload", "chat", "--record"),
        ("inspect", "llama-3.1-8b", "--gpu", "h100", "--output"),
    ],
)
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_target_that_cannot_be_written_is_refused(kvplan, tmp_path: Path, argv):
    tmp_path.chmod(0o500)
    code, out, err = kvplan(*argv, str(tmp_path / "x.json"))

    assert (code, out) == (2, "")
    assert f"in the folder '{tmp_path}' nothing can be written" in err


@pytest.mark.parametrize("name", ["r.json", f"{'n' * 250}.json"])
def test_a_report_disturbs_nothing_beside_it(tmp_path: Path, name):
    workload = tmp_path / "workload.csv"
    workload.write_text("rows")
    beside = tmp_path / f".{name}.part"[:255]
    beside.symlink_to(workload)

    with whole_file(tmp_path / name) as partial:
        assert partial.parent.parent == tmp_path
        partial.write_text("report")

    assert (tmp_path / name).read_text() == "report"
    assert workload.read_text() == "rows"
    assert {path.name for path in tmp_path.iterdir()} == {workload.name, name, beside.name}


def test_a_report_has_the_permissions_of_a_new_file_or_of_the_one_it_replaces(tmp_path: Path):
    usual, target = tmp_path / "usual", tmp_path / "r.json"
    usual.touch()
    modes = []
    for _ in range(2):
        with whole_file(target) as partial:
            partial.write_text("report")
        modes.append(target.stat().st_mode & 0o777)
        target.chmod(0o640)

    assert modes == [usual.stat().st_mode & 0o777, 0o640]


def test_a_report_that_fails_leaves_nothing(tmp_path: Path):
    target = tmp_path / "r.json"
    target.write_text("before")

    with pytest.raises(InputError, match=r"r\.json: cannot write: is a directory"):  # noqa: SIM117
        with whole_file(target) as partial:
            partial.parent.write_text("half")

    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert target.read_text() == "before"

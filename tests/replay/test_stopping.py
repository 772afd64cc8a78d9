"""A replay that is stopped, wherever it stands, leaves a marked report or nothing, and no scraps."""

from __future__ import annotations

import json
import signal

import pytest

from kvplan.replay.pools import run as pools_run
from kvplan.replay.replay import Replay
from kvplan.replay.workloads.events import open_events
from kvplan.replay.workloads.workload import Workload
from tests.replay.test_recording import launch

ENDS = (signal.SIGINT, signal.SIGTERM)
TURNS = {"early": 1, "over counts": 40, "over pools": 900}


@pytest.fixture
def after_turns(monkeypatch):
    """Raise signals once so many turns of replays are over."""

    def arm(number, *signals):
        turns = 0
        original = Replay.__iter__

        def counted(self):
            nonlocal turns
            for turn in original(self):
                yield turn
                turns += 1
                if turns == number:
                    for each in signals:
                        signal.raise_signal(each)

        monkeypatch.setattr(Replay, "__iter__", counted)

    return arm


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("when", TURNS)
def test_a_signal_leaves_the_partial_report(kvplan, tmp_path, after_turns, when, end):
    after_turns(TURNS[when], end)
    before = [signal.getsignal(each) for each in ENDS]
    report, record = tmp_path / "r.json", tmp_path / "run.jsonl"
    argv = ("--workload", "chat", "--limit", "100", "--output", report, "--record", record, "-q")
    code, out, err = kvplan(*launch("pages"), *argv)

    assert code == 130, err
    assert out.startswith("partial, stopped at 00:")
    verdict = json.loads(report.read_text())["verdict"]
    assert not verdict["complete"]
    assert not verdict["passes"]
    assert verdict["text"] == out.strip()
    assert sorted(tmp_path.iterdir()) == [report, *([record] if record.exists() else [])]
    assert record.exists() == (when == "over pools")
    unwritten = f"'{record}' is not written: no replay over pools began\n"
    assert err == ("" if record.exists() else unwritten)
    found = json.loads(report.read_text())
    if record.exists():
        assert open_events(record).header["partial"] is True
        _, out, _ = kvplan(*launch("pages"), "--workload", record)
        assert "; of a replay that was stopped\n" in out
    else:
        assert (found["launch"]["engine"], found["launch"]["device"]) == ("accounting", None)
        assert f"'{record}' is not written: no replay over pools began" in found["warnings"]
    assert [signal.getsignal(each) for each in ENDS] == before


@pytest.mark.parametrize("end", ENDS)
def test_a_second_signal_stops_at_once_and_leaves_nothing(kvplan, tmp_path, after_turns, end):
    after_turns(TURNS["over pools"], end, signal.SIGINT)
    argv = ("--workload", "chat", "--limit", "100", "--record", tmp_path / "run.jsonl")
    code, out, err = kvplan(*launch("pages"), *argv)

    assert (code, out, err) == (130, "", "interrupted\n")
    assert not list(tmp_path.iterdir())


def test_pools_are_not_built_after_a_stop(kvplan, monkeypatch, after_turns):
    after_turns(1, signal.SIGINT)
    monkeypatch.setattr(pools_run, "build", None)
    code, out, err = kvplan(*launch("pages"), "--workload", "chat", "--json")

    assert code == 130, err
    checks = json.loads(out)["verification"]
    assert {each["state"] for each in checks} == {"not checked"}


def test_a_workload_that_is_still_being_read_ends_at_once(kvplan, tmp_path, monkeypatch):
    """Nothing was replayed yet, so there is nothing to report."""
    file = tmp_path / "long.yaml"
    file.write_text("requests: 70000\narrivals: {process: at_once}\ninput: 5\noutput: 5\n")
    original = Workload._rows

    def rows(self, tally):
        signal.raise_signal(signal.SIGINT)
        return original(self, tally)

    monkeypatch.setattr(Workload, "_rows", rows)
    code, out, err = kvplan("trace", "llama-3.1-8b", "--gpu", "h100", "--workload", file)

    assert (code, out, err) == (130, "", "interrupted\n")


def test_operations_stop_between_two_of_them(kvplan, tmp_path, monkeypatch):
    from kvplan.replay.pools.player import Player

    lines = [{"kvplan": "events", "version": 1}, {"op": "alloc", "requests": ["a"]}]
    lines.append({"op": "extend", "requests": ["a"], "prefix_lens": [0], "seq_lens": [9]})
    lines += [{"op": "decode", "requests": ["a"]}] * 50
    file = tmp_path / "own.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    played = []
    original = Player.play

    def play(self, operation):
        original(self, operation)
        played.append(operation)
        if len(played) == 20:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Player, "play", play)
    code, out, err = kvplan(*launch("pages"), "--workload", file, "-q")

    assert code == 130, err
    assert out.startswith("partial, stopped after 20 steps: ")
    assert len(played) == 20

"""Two ranks under torchrun with gloo: each builds its stage, and they agree step by step."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kvplan.errors import InputError
from kvplan.planner import PlanInputs, plan, read_inputs
from kvplan.replay.assumptions import Assumptions
from kvplan.replay.pools.ranks import Part, part_of
from kvplan.replay.pools.same_launch import common_ground
from kvplan.replay.run import ReplayOptions
from kvplan.replay.settings import Choices
from kvplan.replay.trace import PoolOptions, Session
from kvplan.replay.workloads.named import workload_path
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.workload import open_workload
from kvplan.sizing.plan import Plan
from tests.replay.plans import small_plan

LAUNCH = (
    "trace", "llama-3.1-8b", "--gpu", "h100", "--max-total-tokens", "16384",
    "--max-running-requests", "16", "--context-length", "8192", "--page-size", "16",
    "--workload", "chat", "--limit", "40", "--device", "cpu", "--kv-scale",
)  # fmt: skip


def torchrun(folder, program, *argv):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [
            sys.executable, "-P", "-m", "torch.distributed.run", "--nproc-per-node", "2",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *program, *argv,
        ],
        capture_output=True, text=True, timeout=240, check=False, cwd=folder, env=environment,
    )  # fmt: skip


def test_two_stages_replay_together(tmp_path):
    done = torchrun(tmp_path, ("-m", "kvplan"), *LAUNCH, "--pp-size", "2", "--stamp", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)

    checks = {each["name"]: each for each in report["verification"]}
    assert {each["state"] for each in checks.values()} == {"held"}
    assert checks["ranks agree step by step"]["text"] == (
        f"{report['steps']['total']:,} steps of 2 ranks, each with 16,384 tokens"
    )
    assert report["launch"]["ranks"] == 2


def test_a_rank_that_goes_astray_is_told(tmp_path):
    """The second rank's allocator hands its pages out in another order."""
    program = tmp_path / "astray.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, sys
            from kvplan.allocators.paged import PagedAllocator
            from kvplan.commands.app import main
            from kvplan.replay.pools import build

            class Reversed(PagedAllocator):
                def put_back(self, pages):
                    super().put_back(pages.flip(0))

            if os.environ["RANK"] == "1":
                build.PagedAllocator = Reversed
            sys.exit(main(sys.argv[1:]))
            """
        )
    )
    done = torchrun(tmp_path, (str(program),), *LAUNCH, "--pp-size", "2", "--json")
    assert done.returncode == 1, done.stderr
    report = json.loads(done.stdout)

    assert report["violation"]["check"] == "ranks agree step by step"
    assert "rank 1 took other slots than rank 0" in report["violation"]["text"]
    assert "rank 1: ranks agree step by step" in done.stderr


ENDING = """
import os, signal, sys
from kvplan.commands.app import main
from kvplan.errors import DeviceError
from kvplan.replay.pools.ranks import Agreement

class Ending(Agreement):
    def see(self, turn):
        super().see(turn)
        if self.num_compared:
            {act}

if os.environ["RANK"] == "1":
    import kvplan.replay.pools.assembly as assembly
    assembly.Agreement = Ending
sys.exit(main(sys.argv[1:]))
"""


def test_a_rank_that_is_refused_midway_ends_the_launch(tmp_path):
    program = tmp_path / "refused.py"
    program.write_text(ENDING.format(act="raise DeviceError('no room')"))
    done = torchrun(tmp_path, (str(program),), *LAUNCH, "--pp-size", "2", "--quiet")

    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "error: no room" in done.stderr
    assert "[rank0]" not in done.stderr  # the mark of a traceback


def test_a_rank_that_is_killed_midway_holds_nobody_up(tmp_path):
    """The other one says so in a sentence; without torchrun, which would end it before it can."""
    program = tmp_path / "killed.py"
    program.write_text(ENDING.format(act="os.kill(os.getpid(), signal.SIGKILL)"))
    ranks = both_ranks(program, *LAUNCH, "--pp-size", "2", "--quiet")
    try:
        out, err = ranks[0].communicate(timeout=240)
        ranks[1].communicate(timeout=240)
    finally:
        for each in ranks:
            each.kill()

    assert ranks[1].returncode == -signal.SIGKILL
    assert ranks[0].returncode == 2, err
    assert out == ""
    assert "error: another rank cannot be reached: " in err
    assert "Traceback" not in err


def both_ranks(program, *argv):
    """Two ranks as torchrun starts them, with nobody who watches over them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [
        subprocess.Popen(
            [sys.executable, "-P", program, *argv],
            env={**os.environ, **shared, "OMP_NUM_THREADS": "1", "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]


def test_ranks_with_another_launch_are_refused_by_what_differs(tmp_path):
    program = tmp_path / "other.py"
    program.write_text(
        textwrap.dedent(
            """
            import os, sys
            from kvplan.commands.app import main

            more = ["--kv-cache-dtype", "fp8_e4m3", "--stamp", "--tpot", "21"]
            sys.exit(main(sys.argv[1:] + more * int(os.environ["RANK"])))
            """
        )
    )
    ranks = both_ranks(program, *LAUNCH, "--pp-size", "2", "--quiet")
    try:
        said = [each.communicate(timeout=60) for each in ranks]
    finally:
        for each in ranks:
            each.kill()

    for out, err in said:
        assert out == ""
        assert "error: rank 1 differs from rank 0 in: launch, assumptions, options\n" in err
    assert [each.returncode for each in ranks] == [2, 2]


def ground(
    model="llama-3.1-8b", gpu="h100", name="chat", reading=None, pools=None, assumed=None,
    choices=None, limit=None, **server,
):  # fmt: skip
    launch = read_inputs(PlanInputs(model=model, gpu=gpu, server=server))
    options = ReplayOptions(
        assumptions=Assumptions(**assumed or {}), choices=Choices(**choices or {}), limit=limit
    )
    path = name if isinstance(name, Path) else workload_path(name)
    workload = open_workload(path, options=ReadOptions(**reading or {}))
    planned = plan(launch).outcome
    assert isinstance(planned, Plan)
    session = Session(launch, planned, options)
    return common_ground(session, workload, PoolOptions(**pools or {}), "cpu")


@pytest.mark.parametrize(
    ("other", "differing"),
    [
        ({"model": "qwen3-8b"}, {"model", "pools"}),
        ({"gpu": "h200"}, {"launch", "pools"}),
        ({"kv_cache_dtype": "fp8_e4m3"}, {"launch", "pools"}),
        ({"context_length": 8000}, {"launch", "pools"}),
        ({"choices": {"schedule_policy": "lpm"}}, {"scheduler"}),
        ({"choices": {"conservativeness": 0.5}}, {"scheduler"}),
        ({"assumed": {"decode_ns": 21_000_000}}, {"assumptions"}),
        ({"assumed": {"max_new": "context"}}, {"assumptions"}),
        ({"name": "documents"}, {"workload"}),
        ({"reading": {"skip_bad_rows": True}}, {"workload"}),
        ({"limit": 41}, {"workload"}),
        ({"pools": {"stamp": True}}, {"options"}),
        ({"pools": {"verify_every": 7}}, {"options"}),
        ({"pools": {"kv_scale": True}}, {"options"}),
        ({"pools": {"record": Path("a.jsonl"), "shrink": True}}, set()),
    ],
)
def test_whatever_decides_a_replay_is_compared_over_the_ranks(other, differing):
    mine, theirs = ground(), ground(**other)

    assert {name for name in mine if mine[name] != theirs[name]} == differing


def test_where_a_workload_lies_is_no_difference(tmp_path):
    copy = tmp_path / "elsewhere.yaml"
    copy.write_bytes(workload_path("chat").read_bytes())

    assert ground(name=copy) == ground()


@pytest.mark.parametrize(
    ("rank", "size", "server", "part"),
    [
        ("3", "4", {"pp_size": 2, "tp_size": 2}, (1, 0)),
        ("1", "2", {"pp_size": 2, "tp_size": 2}, (1, 0)),
        ("3", "4", {"tp_size": 8, "dcp_size": 4, "page_size": 64}, (0, 3)),
    ],
)
def test_a_rank_finds_its_part_of_the_launch(monkeypatch, rank, size, server, part):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    monkeypatch.setenv("LOCAL_RANK", rank)
    model = "deepseek-v3" if "dcp_size" in server else "llama-3.1-8b"
    found = part_of(small_plan(model, "b200", **server))

    assert (found.pp_rank, found.dcp_rank) == part
    assert (found.rank, found.num_ranks) == (int(rank), int(size))


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({"WORLD_SIZE": "x"}, "WORLD_SIZE is 'x', not a number from 1 to"),
        ({"WORLD_SIZE": "0"}, "WORLD_SIZE is '0', not a number from 1 to"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "RANK is '2', not a number from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK is '-1', not a number from 0 to 1"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "LOCAL_RANK is not set"),
        ({"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}, "MASTER_ADDR is not set"),
        (
            {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost"},
            "MASTER_PORT is not set",
        ),
        (
            {
                "WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0",
                "MASTER_ADDR": "localhost", "MASTER_PORT": "x",
            },
            "MASTER_PORT is 'x', not a number from 1 to 65,535",
        ),
    ],
)  # fmt: skip
def test_ranks_that_nobody_launched_are_refused(kvplan, monkeypatch, environment, problem):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    code, out, err = kvplan(*LAUNCH, "--pp-size", "2", "--quiet")

    assert (code, out) == (2, "")
    assert problem in err
    assert "hint: start it with torchrun" in err


def test_a_process_alone_is_the_first_rank():
    assert part_of(small_plan()) == Part()


def test_ranks_that_the_launch_does_not_have_are_refused(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")

    with pytest.raises(InputError, match="3 ranks do not go with 2 pipeline stages of 1 ranks"):
        part_of(small_plan(pp_size=2))

"""The command line in front of full disks, closed streams, broken pipes and old encodings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
EXAMPLE_LOG = Path(__file__).resolve().parent.parent / "docs" / "examples" / "server.log"
COMMANDS = {
    "size": ["size", "llama-3.1-8b", "--gpu", "h100"],
    "size --json": ["size", "llama-3.1-8b", "--gpu", "h100", "--json"],
    "size --quiet": ["size", "llama-3.1-8b", "--gpu", "h100", "--quiet"],
    "presets list": ["presets", "list"],
    "--help": ["--help"],
    "--version": ["--version"],
}
REFUSED = ["size", "no-such-model", "--gpu", "h100"]


def kvplan(argv: list[str], redirect: str = "", **environment: str) -> subprocess.CompletedProcess:
    """One process of its own, its streams redirected by the shell."""
    command = f'exec "$0" -P -m kvplan "$@" {redirect}'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, *argv],
        env=os.environ | environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_is_told_and_is_no_answer(name):
    done = kvplan(COMMANDS[name], f">{FULL}")

    assert done.returncode == 2
    assert done.stderr.decode() == "error: cannot write the output: no space left on device\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_nobody_behind_stdout_changes_no_exit_code(name):
    done = kvplan(COMMANDS[name], ">&-")

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_reader_that_goes_away_leaves_no_traceback(name):
    done = kvplan(COMMANDS[name], "| true")

    assert done.stderr == b""


@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full"])
def test_a_refusal_that_cannot_be_told_keeps_its_exit_code(redirect):
    done = kvplan(REFUSED, redirect)

    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8"])
def test_files_and_pipes_take_utf_8_whatever_the_locale(encoding):
    text = kvplan(COMMANDS["size"], PYTHONIOENCODING=encoding)
    plain = kvplan(COMMANDS["size --json"], PYTHONIOENCODING=encoding)

    assert (text.returncode, text.stderr) == (0, b"")
    assert "·" in text.stdout.decode()
    assert "·" in json.loads(plain.stdout)["verdict"]["text"]


def test_control_characters_of_an_input_are_spelled_out():
    done = kvplan(["size", "llama\x1b[31m\x9b", "--gpu", "h100"])

    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert "'llama\\x1b[31m\\x9b'" in done.stderr.decode()


@pytest.mark.parametrize("length", [251, 300, 5000])
def test_a_name_too_long_for_the_file_system_is_refused(length, tmp_path):
    for argv in (
        [*COMMANDS["size"], "--output", str(tmp_path / f"{'a' * length}.json")],
        ["presets", "show", f"{'a' * length}.yaml"],
        ["log", f"{'a' * length}.log"],
    ):
        done = kvplan(argv)

        assert done.returncode == 2, argv[0]
        assert done.stderr.startswith(b"error: "), argv[0]
        assert b"Traceback" not in done.stderr, argv[0]
    assert not list(tmp_path.iterdir())


def test_an_unknown_command_names_the_nearest():
    done = kvplan(["sizee", "llama-3.1-8b"])

    assert done.returncode == 2
    assert done.stderr.decode() == "error: unknown command 'sizee'\n  hint: did you mean 'size'?\n"


def test_a_log_can_come_through_a_pipe():
    piped, read = (
        kvplan(["log", name, "--json"], f"<{EXAMPLE_LOG}") for name in ("-", str(EXAMPLE_LOG))
    )
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert json.loads(piped.stdout.replace(b"standard input", str(EXAMPLE_LOG).encode())) == (
        json.loads(read.stdout)
    )

    closed = kvplan(["log", "-"], "<&-")
    assert closed.returncode == 2
    assert closed.stderr.startswith(b"error: standard input: it is closed")
    empty = kvplan(["log", "-"], "</dev/null")
    assert empty.returncode == 2
    assert empty.stderr.startswith(b"error: standard input: no line of an SGLang start-up")

"""Ctrl-C while modules load: the process ends without a traceback, unless it heeds none."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

INTERRUPTED = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.{handler})
sys.meta_path.insert(0, Interrupt())
sys.argv = ["kvplan", "presets", "list"]
from kvplan.__main__ import main
sys.exit(main())
"""


def run(module, handler):
    code = INTERRUPTED.format(module=module, handler=handler)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("module", ["typer", "kvplan.errors", "kvplan.commands.streams"])
def test_an_interrupt_while_modules_load_ends_the_process_at_once(module):
    ended = run(module, "default_int_handler")

    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""


def test_an_interrupt_of_a_command_is_told():
    ended = run("kvplan.commands.presets", "default_int_handler")

    assert ended.returncode == 130
    assert ended.stderr == "interrupted\n"


def test_a_process_that_heeds_no_interrupts_goes_on():
    ended = run("typer", "SIG_IGN")

    assert ended.returncode == 0
    assert "h100" in ended.stdout

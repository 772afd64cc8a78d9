"""Standard streams, whatever stands behind them: a file, a pipe, an old terminal, a full disk, nothing."""

from __future__ import annotations

import contextlib
import io
import os
import sys

OUTPUTS = ("stdout", "stderr")


def open_streams() -> None:
    """Give every output a stream that takes all letters: UTF-8 in files and pipes, `?` on old terminals."""
    for name in OUTPUTS:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif isinstance(stream, io.TextIOWrapper) and "utf" not in stream.encoding.lower():
            if stream.isatty():
                stream.reconfigure(errors="replace")
            else:
                stream.reconfigure(encoding="utf-8")


def drop_output() -> None:
    """What could not be written is lost: the interpreter shall not try once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

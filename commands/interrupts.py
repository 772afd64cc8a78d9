"""Ctrl-C between two steps: the first asks to stop and report, the second stops at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stoppable(*more: signal.Signals) -> Iterator[Callable[[], bool]]:
    """A question whether Ctrl-C was pressed, or one of `more` signals came.

    The handlers before come back at the end.
    """
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def press(signum: int, frame: FrameType | None) -> None:
        if pressed.is_set():
            signal.default_int_handler(signum, frame)
        pressed.set()

    before = {each: signal.signal(each, press) for each in (signal.SIGINT, *more)}
    try:
        yield pressed.is_set
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

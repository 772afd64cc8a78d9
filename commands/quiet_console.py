"""A console whose reader may go away."""

import os

from rich.console import Console


class QuietConsole(Console):
    """What nobody reads any more is dropped; the answer stays the exit code."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())

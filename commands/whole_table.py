"""A table that never cuts a value: on a narrow terminal it is wider than the terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table


class WholeTable(Table):
    """A rich table at no less than `least_width`; what the terminal wraps can still be read."""

    least_width = 0

    def __rich_console__(self, console: Any, options: Any) -> Any:
        """Render at the console's width, or at the least that shows every value."""
        wide = options.update_width(max(options.max_width, self.least_width))
        return super().__rich_console__(console, wide)

"""`kvplan schema`: JSON Schemas of kvplan's files, for editors and CI."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kvplan.schemas import KINDS

from .render import json_text, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.command()
def schema(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="File kind; without one they are listed.",
            autocompletion=lambda: list(KINDS),
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="List the kinds as JSON.")] = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write a .json file.")] = None,
) -> None:
    """Print the JSON Schema of a file kind."""
    if name is None:
        listed = {kind: found.title for kind, found in KINDS.items()}
        if json:
            write_json(listed)
        else:
            print("\n".join(f"{kind:12} {title}" for kind, title in listed.items()))
        return
    from kvplan.schemas import schema as schema_of

    text = json_text(schema_of(name))
    if output is not None:
        write_file(output, text, suffixes=(".json",))
    else:
        print(text, end="")

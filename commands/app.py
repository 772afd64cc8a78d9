"""The command tree and the one place that prints a refusal."""

import importlib
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from kvplan.errors import InputError, KvplanError, did_you_mean

from .streams import drop_output, open_streams

# command -> (module beside this one, one line of help); imported only when it runs
COMMANDS: dict[str, tuple[str, str]] = {
    "size": ("size", "Derive the plan of a launch: tokens, requests, where every GiB goes."),
    "inspect": ("inspect", "Pools: layout, a token's bytes, a recorded state's map; build them."),
    "log": ("log", "Compare a server's start-up log with the plan of its launch."),
    "trace": ("trace", "Replay a workload through the pools: peaks, shortages, invariants."),
    "fit": ("fit", "Find the value of an argument that gives so many tokens or requests."),
    "sweep": ("sweep", "Plan a grid of launches: table, files, and the Pareto front."),
    "presets": ("presets", "Shipped presets: list, show, import a config.json, validate files."),
    "check": ("check", "Hold launches against their budgets, in CI: tokens, requests, memory."),
    "diff": ("diff", "Compare two plans: what changed, why, and how much."),
    "schema": ("schema", "JSON Schemas of kvplan's files, for editors and CI."),
    "selftest": ("selftest", "Compare kvplan with recorded answers of the engine."),
}


# control characters of an input never reach the terminal as such
SPELLED_OUT = {code: f"\\x{code:02x}" for code in (*range(10), *range(11, 32), *range(127, 160))}


@cache
def load_command(name: str) -> Any:
    """A command's parser, from the module that holds it."""
    module = importlib.import_module(f"kvplan.commands.{COMMANDS[name][0]}")
    command = typer.main.get_command(module.app)
    command.name = name
    return command


class LazyGroup(TyperGroup):
    """A command's module is imported when the command is called, not to list it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            raise InputError(f"unknown command '{name}'", hint=did_you_mean(name, COMMANDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_line) for name, (_, help_line) in COMMANDS.items()])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KvplanError as error:
            print_refusal(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=LazyGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        print(f"kvplan {version('kvplan-pools')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Capacity planner and pool inspector for LLM serving."""


def print_refusal(error: KvplanError) -> None:
    """`error: file:line: problem`, then `hint:` with the next step, on stderr."""
    hint = f"\n  hint: {error.hint}" if error.hint else ""
    with suppress(OSError):  # where it cannot be told, the exit code still says it
        print(f"error: {error}{hint}".translate(SPELLED_OUT), file=sys.stderr)


@cache
def command_tree() -> Any:
    """The parser of the whole command line."""
    return typer.main.get_command(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code (0 yes, 1 the answer is no, 2 bad input)."""
    open_streams()
    try:
        command_tree()(args=None if argv is None else list(argv), prog_name="kvplan")
        return flushed(0)
    except SystemExit as stop:
        return flushed(stop.code if isinstance(stop.code, int) else int(stop.code is not None))
    except OSError as error:
        return unwritten(error)


def flushed(code: int) -> int:
    """The exit code of an answer that has reached its reader."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return unwritten(error)
    return code


def unwritten(error: OSError) -> int:
    """The refusal where the answer cannot be written; files are opened behind refusals of their own."""
    drop_output()
    reason = (error.strerror or str(error)).lower()
    print_refusal(InputError(f"cannot write the output: {reason}"))
    return InputError.exit_code

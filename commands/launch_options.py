"""The options that name a launch, shared by every command that plans one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
import typer

from kvplan.errors import InputError
from kvplan.planner import Launch, PlanInputs, read_inputs
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.server import DRAFT_FIELD

# unknown options of these commands are SGLang's own flags, read by the launch parser
SERVER_FLAGS = {"allow_extra_args": True, "ignore_unknown_options": True}

Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL] [SERVER FLAGS]...",
        help="Preset, YAML, config.json or its folder; then any SGLang server flags.",
        show_default=False,
    ),
]
Gpu = Annotated[str | None, typer.Option("--gpu", help="GPU preset or YAML.")]
Parallel = Annotated[str | None, typer.Option("--parallel", help="Parallel preset or YAML.")]
Speculative = Annotated[
    str | None, typer.Option("--speculative", help="Speculative preset or YAML.")
]
Draft = Annotated[str | None, typer.Option("--draft", help="Draft model, named like MODEL.")]
LaunchLine = Annotated[
    str | None, typer.Option("--launch", help="A server's command line; nothing is run.")
]
LaunchFile = Annotated[
    Path | None,
    typer.Option(
        "--launch-file", help="Shell script, Dockerfile, compose, Kubernetes or server config."
    ),
]
LaunchName = Annotated[
    str | None, typer.Option("--launch-name", help="Which server of --launch-file.")
]
Sets = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override anything, e.g. model.num_layers=32."),
]
FreeBefore = Annotated[
    float | None, typer.Option("--free-before", help="Free GiB before the weights, from a log.")
]
FreeAfter = Annotated[
    float | None, typer.Option("--free-after", help="Free GiB after the weights, from a log.")
]
WeightsGib = Annotated[float | None, typer.Option("--weights-gib", help="Weights of one rank.")]
HostFreeGib = Annotated[
    float | None, typer.Option("--host-free-gib", help="Free host memory, for HiCache.")
]


class Written(msgspec.Struct, frozen=True):
    """What a launch line or file says."""

    model: str | None = None
    draft: str | None = None
    server: Mapping[str, Any] = MappingProxyType({})
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    scheduling: Mapping[str, Any] = MappingProxyType({})  # what decides a replay but no size


class LaunchOptions(msgspec.Struct, frozen=True):
    """What the command line says of a launch."""

    words: Sequence[str] | None
    gpu: str | None
    parallel: str | None
    speculative: str | None
    draft: str | None
    launch: str | None
    launch_file: Path | None
    launch_name: str | None
    sets: Sequence[str] | None
    memory: MemoryInputs
    base: Written | None = None  # what is known without a written launch


class Asked(msgspec.Struct, frozen=True):
    """A launch that was read, and the notes about words that have no say in it."""

    launch: Launch
    ignored: tuple[str, ...]
    warnings: tuple[str, ...]
    scheduling: Mapping[str, Any] = MappingProxyType({})


def memory_inputs(
    free_before: float | None,
    free_after: float | None,
    weights: float | None,
    host_free: float | None = None,
) -> MemoryInputs:
    """Memory options as a value; negative or absurd figures are refused."""
    flags = {
        "--free-before": free_before,
        "--free-after": free_after,
        "--weights-gib": weights,
        "--host-free-gib": host_free,
    }
    for flag, value in flags.items():
        if value is not None and not 0 <= value <= 1 << 20:
            raise InputError(f"{flag} {value:g} is no memory size in GiB")
    return MemoryInputs(
        free_before_gib=free_before,
        free_after_gib=free_after,
        weights_gib=weights,
        host_free_gib=host_free,
    )


def read_launch_options(options: LaunchOptions) -> Asked:
    """Presets, a written launch, server flags and overrides, each over the one before."""
    written = written_launch(options)
    model, flags = split_words(options.words)
    direct = direct_flags(flags)
    model = model or direct.model or written.model
    if model is None:
        raise InputError("no model is named", hint="give a preset name, see 'kvplan presets list'")
    if options.gpu is None:
        raise InputError("no GPU is named", hint="add --gpu, see 'kvplan presets list'")
    draft = options.draft or direct.draft or written.draft
    inputs = PlanInputs(
        model=model,
        gpu=options.gpu,
        parallel=options.parallel,
        speculative=options.speculative,
        draft=draft,
        server={**written.server, **direct.server},
        memory=options.memory,
    )
    overrides = read_overrides(options.sets)
    launch = read_inputs(inputs, overrides)
    return Asked(
        launch,
        (*written.ignored, *direct.ignored),
        (*written.warnings, *direct.warnings),
        {**written.scheduling, **direct.scheduling},
    )


def read_overrides(sets: Sequence[str] | None) -> list[Any]:
    """The `--set` options; their reader is imported only where there are any."""
    if not sets:
        return []
    from kvplan.overrides import parse_override

    return [parse_override(text) for text in sets]


def split_words(words: Sequence[str] | None) -> tuple[str | None, list[str]]:
    """MODEL stands first; what follows are server flags."""
    words = list(words or ())
    if not words or words[0].startswith("-"):
        return None, words
    return words[0], words[1:]


def direct_flags(flags: Sequence[str]) -> Written:
    """Server flags of this command line; an unknown one is refused, not passed over."""
    if not flags:
        return Written()
    from kvplan.guard.server_arguments import notes_of, read_arguments
    from kvplan.guard.shell_values import Word

    read = read_arguments([Word(flag, "the command line") for flag in flags])
    if read.warnings:
        first = read.warnings[0]
        raise InputError(first.text, hint=first.hint)
    server = dict(read.sizing)
    model, draft = server.pop("model_path", None), server.pop(DRAFT_FIELD, None)
    return Written(model, draft, server, read.ignored, notes_of(read), read.scheduling)


def written_launch(options: LaunchOptions) -> Written:
    """The launch of `--launch` or `--launch-file`, if there is one."""
    if options.launch is None and options.launch_file is None:
        return options.base or Written()
    from kvplan.guard.launch import parse_launch, read_launch
    from kvplan.guard.server_arguments import notes_of

    if options.launch is not None and options.launch_file is not None:
        raise InputError("--launch and --launch-file exclude each other")
    if options.launch_file is not None:
        launch = read_launch(options.launch_file, options.launch_name)
    else:
        assert options.launch is not None
        launch = parse_launch(options.launch)
    server = dict(launch.args)
    draft = server.pop(DRAFT_FIELD, None)
    return Written(
        launch.model_path, draft, server, launch.ignored, notes_of(launch), launch.scheduling
    )

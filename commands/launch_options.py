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
from kvplan.spec.server import ServerArgs

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
    unmodelled: tuple[str, ...] = ()
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
    model = model or written.model
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
        (*written.warnings, *direct.warnings, *unmodelled_notes(written, direct)),
        {**written.scheduling, **direct.scheduling},
    )


def read_overrides(sets: Sequence[str] | None) -> list[Any]:
    """The `--set` options; their reader is imported only where there are any."""
    if not sets:
        return []
    from kvplan.overrides import parse_override

    return [parse_override(text) for text in sets]


def unmodelled_notes(*parts: Written) -> tuple[str, ...]:
    return tuple(
        f"'{field}' takes memory that the plan does not model"
        for part in parts
        for field in part.unmodelled
    )


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
    from kvplan.guard.server_arguments import read_arguments
    from kvplan.guard.shell_values import Word

    read = read_arguments([Word(flag, "the command line") for flag in flags])
    if read.warnings:
        first = read.warnings[0]
        raise InputError(first.text, hint=first.hint)
    direct = from_fields(read.sizing, read.ignored, tuple(read.unmodelled), ())
    return msgspec.structs.replace(direct, scheduling=read.scheduling)


def written_launch(options: LaunchOptions) -> Written:
    """The launch of `--launch` or `--launch-file`, if there is one."""
    if options.launch is None and options.launch_file is None:
        return options.base or Written()
    from kvplan.guard.launch import parse_launch, read_launch

    if options.launch is not None and options.launch_file is not None:
        raise InputError("--launch and --launch-file exclude each other")
    if options.launch_file is not None:
        launch = read_launch(options.launch_file, options.launch_name)
    else:
        assert options.launch is not None
        launch = parse_launch(options.launch)
    warnings = tuple(f"{remark.where}: {remark.text}" for remark in launch.warnings)
    unknown = tuple(f"'{name}' is known only when it runs" for name in launch.unresolved)
    written = from_fields(launch.args, launch.ignored, tuple(launch.unmodelled), warnings + unknown)
    return msgspec.structs.replace(written, model=launch.model_path, scheduling=launch.scheduling)


def from_fields(
    fields: dict[str, Any],
    ignored: tuple[str, ...],
    unmodelled: tuple[str, ...],
    warnings: tuple[str, ...],
) -> Written:
    """Server arguments without the two that name models, and without those that no plan follows."""
    modelled = frozenset(ServerArgs.__struct_fields__)
    server = {name: value for name, value in fields.items() if name in modelled}
    draft = server.pop("speculative_draft_model_path", None)
    others = tuple(name for name in fields if name not in modelled | {"model_path", "device"})
    notes = tuple(
        f"'{name}' may change sizes in ways that the plan does not model" for name in others
    )
    ignored = (*ignored, "device") if "device" in fields else ignored
    return Written(fields.get("model_path"), draft, server, ignored, unmodelled, warnings + notes)

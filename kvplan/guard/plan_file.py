"""A launch as a YAML file: presets and server arguments, or a server's own launch line or file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvplan import catalog, planner
from kvplan.document import Document, FieldPath
from kvplan.errors import InputError, KvplanError
from kvplan.overrides import Override
from kvplan.planner import PlanInputs
from kvplan.sizing.memory import MemoryInputs
from kvplan.spec.server import DRAFT_FIELD, ServerArgs

if TYPE_CHECKING:
    from kvplan.guard.launch import Launch as Written

FILE_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
LOADERS: dict[str, Callable[[str], Any]] = {
    "model": catalog.load_model,
    "draft": catalog.load_model,
    "gpu": catalog.load_gpu,
    "parallel": catalog.load_parallel,
    "speculative": catalog.load_speculative,
}


class PlanFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a plan is made from. Paths count from the file's own folder.

    `launch` (a command line) or `launch_file` says what the server is told; the other fields stand
    above it.
    """

    model: str | None = None
    gpu: str | None = None
    parallel: str | None = None
    speculative: str | None = None
    draft: str | None = None
    server: ServerArgs = ServerArgs()
    memory: MemoryInputs = MemoryInputs()
    launch: str | None = None
    launch_file: str | None = None
    launch_name: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A launch that was read, and what of it has no say in the plan though it takes memory."""

    launch: planner.Launch
    warnings: tuple[str, ...] = ()
    scheduling: dict[str, Any] = {}  # arguments that decide a replay but no size


def read_plan_file(
    file: PlanFile,
    document: Document,
    path: FieldPath = (),
    *,
    overrides: Sequence[Override] = (),
    folder: Path | None = None,
) -> Asked:
    """The launch of a plan file whose mapping stands at path in the document.

    Its paths count from `folder`, by default the document's. InputError with the line of the field
    that cannot be read.
    """
    folder = Path(document.file).parent if folder is None else folder
    try:
        written = written_launch(file, folder)
        inputs = plan_inputs(file, folder, written)
        launch = planner.read_inputs(inputs, overrides, where=document.file)
    except KvplanError as error:
        raise located(error, file, document, path) from None
    if written is None:
        return Asked(launch)
    from kvplan.guard.server_arguments import notes_of

    return Asked(launch, notes_of(written), written.scheduling)


def plan_inputs(file: PlanFile, folder: Path, written: Written | None = None) -> PlanInputs:
    """The file's fields over those of its written launch; InputError where model or card is missing."""
    server = dict(written.args) if written else {}
    draft = server.pop(DRAFT_FIELD, None)
    model = beside(folder, file.model) or (written.model_path if written else None)
    if model is None:
        raise InputError(
            "no model is named", hint="add 'model: NAME', see 'kvplan presets list', or a launch"
        )
    if file.gpu is None:
        raise InputError("no GPU is named", hint="add 'gpu: NAME', see 'kvplan presets list'")
    return PlanInputs(
        model=model,
        gpu=beside(folder, file.gpu) or file.gpu,
        parallel=beside(folder, file.parallel),
        speculative=beside(folder, file.speculative),
        draft=beside(folder, file.draft) or draft,
        server=server | given_arguments(file.server),
        memory=file.memory,
    )


def given_arguments(args: ServerArgs) -> dict[str, Any]:
    """The arguments that have a value."""
    values = msgspec.to_builtins(args)
    return {name: value for name, value in values.items() if value is not None}


def written_launch(file: PlanFile, folder: Path) -> Written | None:
    """The launch line or file that is named, None where the plan has none."""
    if file.launch is None and file.launch_file is None:
        if file.launch_name is not None:
            raise InputError("'launch_name' chooses a server of 'launch_file', which is not given")
        return None
    from kvplan.guard.launch import parse_launch, read_launch

    if file.launch_file is None:
        assert file.launch is not None
        return parse_launch(file.launch, "launch")
    if file.launch is not None:
        raise InputError("'launch' and 'launch_file' exclude each other", hint="keep one of them")
    return read_launch(folder / file.launch_file, file.launch_name)


def beside(folder: Path, name: str | None) -> str | None:
    """A path from the folder; the names of presets and HF ids stay as they are."""
    if name is None:
        return None
    is_path = Path(name).suffix in FILE_SUFFIXES or name.startswith(("./", "../"))
    if is_path or ("/" in name and catalog.is_folder(folder / name)):
        return joined(folder, name)
    return name


def joined(folder: Path, name: str) -> str:
    """A path from the folder, as it is written: `./` keeps its meaning."""
    return name if Path(name).is_absolute() or folder == Path() else f"{folder}/{name}"


def located(
    error: KvplanError, file: PlanFile, document: Document, path: FieldPath = ()
) -> KvplanError:
    """The refusal with the line of the field that it is about."""
    if error.where is not None and error.where != document.file:
        return error
    field = guilty(error, file, Path(document.file).parent)
    where = document.where((*path, field) if field else path)
    return type(error)(error.problem, where=where, hint=error.hint)


def guilty(error: KvplanError, file: PlanFile, folder: Path) -> str | None:
    """The field whose preset alone gives the same refusal."""
    for field, load in LOADERS.items():
        name = getattr(file, field)
        if name is None:
            continue
        try:
            load(beside(folder, name) or name)
        except KvplanError as again:
            if again.problem == error.problem:
                return field
    return None

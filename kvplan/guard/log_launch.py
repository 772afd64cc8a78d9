"""The launch that a start-up log itself tells: its printed server arguments, its model, its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from kvplan import catalog
from kvplan.errors import InputError
from kvplan.guard.log_arguments import sizing_arguments
from kvplan.guard.server_flags import OLDER_CHOICES, VERSION
from kvplan.guard.server_log import ServerLog
from kvplan.sizing.resolve.mem_fraction import AITER_FACTOR, AITER_LONG_CONTEXT
from kvplan.spec.server import DRAFT_FIELD, ServerArgs, server_args

HELD_BY_CONTEXT_GIB = 5.0  # more than that is not the driver's


class LogLaunch(msgspec.Struct, frozen=True):
    """What the log says of its launch; empty where it prints no server arguments."""

    model: str | None = None
    draft: str | None = None
    server: dict[str, Any] = {}
    notes: tuple[str, ...] = ()


def log_launch(log: ServerLog) -> LogLaunch:
    """The printed arguments as a launch of today's engine; what it no longer takes is noted."""
    read = sizing_arguments(log.arguments)
    path, notes = read.pop("model_path", None), []
    draft_path = read.pop(DRAFT_FIELD, None)
    server: dict[str, Any] = {}
    for name, value in read.items():
        if name not in ServerArgs.__struct_fields__:
            continue
        renamed = OLDER_CHOICES.get(name, {}).get(value, value) if isinstance(value, str) else value
        if renamed is not None and takes(name, renamed):
            server[name] = renamed
        else:
            notes.append(f"the log's {name} {value!r} is none of SGLang {VERSION}: left out")
    model = shipped(path) if isinstance(path, str) else None
    if isinstance(path, str) and model is not None and model != path:
        notes.append(f"'{path}' is taken for {model}")
    draft = shipped(draft_path) if isinstance(draft_path, str) and draft_path != path else None
    return LogLaunch(model, draft, as_asked(server), tuple(notes))


def takes(name: str, value: Any) -> bool:
    """Whether the engine of today takes a value."""
    try:
        server_args({name: value}, where="the log")
    except InputError:
        return False
    return True


def as_asked(server: dict[str, Any]) -> dict[str, Any]:
    """Printed values are resolved ones: undo what the engine would do to them once more."""
    asked = dict(server)
    chunk, shares = asked.get("chunked_prefill_size"), asked.get("dp_size") or 1
    if asked.get("enable_dp_attention") and chunk is not None and chunk > 0:
        asked["chunked_prefill_size"] = chunk * shares
    context, fraction = asked.get("context_length"), asked.get("mem_fraction_static")
    if context is not None:
        asked["allow_longer_context"] = True
    long = context is None or context > AITER_LONG_CONTEXT
    if asked.get("attention_backend") == "aiter" and long and fraction is not None:
        asked["mem_fraction_static"] = min(1.0, fraction / AITER_FACTOR)
    return asked


def shipped(path: str) -> str | None:
    """What the catalog calls a model path: an HF id, a folder with a config, or a known last name."""
    if catalog.find_model(path) is not None:
        return path
    folder = Path(path)
    if catalog.is_folder(folder) and (folder / "config.json").is_file():
        return path
    last = folder.name.lower()
    known = catalog.hf_ids()
    return next(
        (name for hf_id, name in known.items() if hf_id.rpartition("/")[2].lower() == last), None
    )


def nearest_card(free_gib: float) -> str | None:
    """The smallest shipped card on which so much can be free; None where none is near."""
    memory = {name: catalog.load_gpu(name).memory_mib / 1024 for name in catalog.names("gpu")}
    large = {name: gib for name, gib in memory.items() if gib >= free_gib}
    name = min(large, key=lambda each: (large[each], each), default=None)
    return name if name and large[name] - free_gib <= HELD_BY_CONTEXT_GIB else None

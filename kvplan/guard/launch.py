"""Launches of an SGLang server: command lines, shell scripts, container files, server configs. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kvplan.errors import InputError, did_you_mean
from kvplan.guard.dockerfile import read_dockerfile
from kvplan.guard.server_arguments import Remark, ServerArguments, is_flag, read_arguments
from kvplan.guard.server_environment import read_environment
from kvplan.guard.servers import (
    Server,
    config_path,
    config_words,
    container_servers,
    is_server_config,
    script_servers,
)
from kvplan.guard.shell_values import Shell, Word
from kvplan.guard.shell_words import read_commands
from kvplan.yamlfile import load, read_text

MAX_BYTES = 1 << 20
MAX_SCRIPT = 128 << 10
MAX_SERVERS = 1000


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One server as it is launched."""

    name: str
    """service, container or line that launches it"""
    where: str
    """`file:line:column` of the command"""
    model_path: str | None
    """None where it is known only when the command runs"""
    args: dict[str, Any]
    """arguments that decide a plan, by SGLang's field names; what is absent is the engine's default"""
    scheduling: dict[str, Any]
    """arguments that decide a replay but no size"""
    unmodelled: dict[str, Any]
    """arguments that take memory which a plan does not model"""
    beside: dict[str, Any]
    """arguments that may change sizes in ways that a plan does not model"""
    ignored: tuple[str, ...]
    """fields that are accepted and have no say"""
    unresolved: dict[str, str]
    """fields whose value is known only when the command runs, as it is written"""
    places: dict[str, str]
    """`file:line:column` of each field"""
    warnings: tuple[Remark, ...]


def parse_launch(text: str, where: str = "--launch") -> Launch:
    """The one launch of a command line; InputError where there is none or more than one."""
    servers = script_servers(text, where, Shell())
    if not servers and text.lstrip().startswith("-"):
        words = [word for command in read_commands(text, where) for word in command]
        servers = [Server(where, f"{where}:1:1", words, False)]
    return only([launch(server, Path()) for server in servers], where, None)


def read_launch(path: Path, name: str | None = None) -> Launch:
    """The launch of a file: the only one, or the one of a name."""
    return only(read_launches(path), str(path), name)


def read_launches(path: Path) -> list[Launch]:
    """All launches of a shell script, Dockerfile, compose file, manifest or server config."""
    text = read_text(path, MAX_BYTES)
    kind = file_kind(path, text)
    if kind != "yaml" and len(text) > MAX_SCRIPT:
        raise InputError(f"larger than {MAX_SCRIPT >> 10} KiB", where=str(path))
    if kind == "shell":
        servers = script_servers(text, str(path), Shell())
    elif kind == "dockerfile":
        servers = container_servers([read_dockerfile(text, str(path))])
    else:
        from kvplan.guard.containers import container_commands
        from kvplan.guard.foreign_yaml import parse_foreign

        documents = parse_foreign(text, str(path))
        if len(documents) == 1 and is_server_config(documents[0]):
            config = load(path)
            servers = [Server(path.name, config.where(), config_words(config), False)]
        else:
            servers = container_servers(container_commands(documents))
    if len(servers) > MAX_SERVERS:
        raise InputError(f"more than {MAX_SERVERS} servers are launched", where=str(path))
    return [launch(server, path.parent) for server in servers]


def only(launches: Sequence[Launch], where: str, name: str | None) -> Launch:
    """The launch of a name, or the one that there is; ranks that launch alike are one."""
    if not launches:
        raise InputError(
            "no SGLang server is launched here",
            where=where,
            hint="it takes 'python -m sglang.launch_server …' or 'sglang serve …'",
        )
    if name is not None:
        named = [launch for launch in launches if launch.name == name]
        if not named:
            hint = did_you_mean(name, [launch.name for launch in launches])
            raise InputError(f"no launch is named {name!r}", where=where, hint=hint)
        launches = named
    first = launches[0]
    if all((each.model_path, each.args) == (first.model_path, first.args) for each in launches):
        return first
    names = ", ".join(dict.fromkeys(each.name for each in launches))
    raise InputError(f"{len(launches)} servers are launched", where=where, hint=f"choose: {names}")


def file_kind(path: Path, text: str) -> str:
    """shell, dockerfile or yaml, by name and content."""
    name = path.name.lower()
    if name.startswith(("dockerfile", "containerfile")) or name.endswith(".dockerfile"):
        return "dockerfile"
    if path.suffix.lower() in {".yaml", ".yml", ".json"}:
        return "yaml"
    if path.suffix.lower() in {".sh", ".bash"} or text.startswith("#!"):
        return "shell"
    return "dockerfile" if re.search(r"^FROM\s+\S+", text, re.MULTILINE) else "shell"


def launch(server: Server, folder: Path) -> Launch:
    """The launch of a server's words; a config file that can be found comes first, as in the engine."""
    words, remarks = list(server.words), []
    if server.positional_model and words and not is_flag(words[0]):
        words.insert(0, Word("--model-path", words[0].place))
    config = config_path(words)
    if config is not None:
        path = folder / config.text
        if config.unknown or not path.is_file():
            text = f"the config file '{config.text}' is not here: its arguments are not known"
            remarks.append(Remark(text=text, where=config.place))
        else:
            words = config_words(load(path)) + words
    read = read_arguments(words)
    if not remarks and "model_path" not in {*read.sizing, *read.unresolved}:
        raise InputError(
            "the launch names no model", where=server.place, hint="add --model-path MODEL"
        )
    return from_arguments(server, read, remarks)


def from_arguments(server: Server, read: ServerArguments, remarks: list[Remark]) -> Launch:
    """The launch value of the arguments of one server; a flag counts before a variable."""
    around = read_environment(server.environment)
    args = {**around.args, **read.sizing}
    return Launch(
        name=server.name,
        where=server.place,
        model_path=args.pop("model_path", None),
        args=args,
        scheduling={**read.scheduling, **around.scheduling},
        unmodelled=read.unmodelled,
        beside={**read.beside, **around.beside},
        ignored=read.ignored,
        unresolved={**around.unresolved, **read.unresolved},
        places={**around.places, **read.places},
        warnings=(*remarks, *around.warnings, *read.warnings),
    )

"""Where a command, script, container or config launches an SGLang server, whatever wraps it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.guard.dockerfile import ContainerCommand
from kvplan.guard.server_environment import assignments, container_assignments
from kvplan.guard.server_flags import Found, arguments, find
from kvplan.guard.shell_values import NAME, Shell, Word
from kvplan.guard.shell_words import read_commands

MAX_NESTING = 3
MODULES = frozenset({"sglang.launch_server", "sglang_router.launch_server", "dynamo.sglang"})
LAUNCH = re.compile(r"sglang[\w.]*\.launch_server|\bsglang\s+serve|dynamo\.sglang")
MODEL_FLAGS = ("--model-path", "--model")


class Server(NamedTuple):
    """The words behind `launch_server` before they are read as arguments."""

    name: str
    place: str
    words: list[Word]
    positional_model: bool
    environment: tuple[Word, ...] = ()
    """NAME=value of what is set for it"""


def script_servers(text: str, where: str, shell: Shell) -> list[Server]:
    """Servers that the commands of a script launch."""
    commands = read_commands(text, where, shell)
    variables = {name: values[0] for name, values in shell.variables.items() if values}
    return [server for command in commands for server in servers_in(command, variables)]


def container_servers(commands: list[ContainerCommand]) -> list[Server]:
    """Servers that containers launch; bare flags with a model belong to the image's entrypoint."""
    servers: list[Server] = []
    for command in commands:
        place = command.words[0].place if command.words else ""
        outer = container_assignments(command.variables, place)
        found = list(servers_in(command.words, command.variables, outer=outer))
        flags = [word.text.partition("=")[0] for word in command.words]
        if not found and flags and flags[0].startswith("-") and set(flags) & set(MODEL_FLAGS):
            found = [Server("", place, list(command.words), False, outer)]
        servers += [server._replace(name=command.name) for server in found]
    return servers


def servers_in(
    words: Sequence[Word],
    variables: dict[str, str],
    depth: int = 0,
    outer: tuple[Word, ...] = (),
) -> Iterator[Server]:
    """The server that a command launches, whatever wraps it; a script given as one word is read.

    `outer` are the assignments that hold around the command.
    """
    for index, word in enumerate(words):
        following = words[index + 1].text if index + 1 < len(words) else ""
        program = word.text.rpartition("/")[2]
        module = word.text == "-m" and following in MODULES
        serve = program == "sglang" and following == "serve"
        if module or serve or word.text.endswith("sglang/launch_server.py"):
            behind = list(words[index + (2 if module or serve else 1) :])
            line = word.place.rsplit(":", 2)[1]
            environment = (*outer, *assignments(words[:index]))
            yield Server(f"line {line}", word.place, behind, serve, environment)
            return
    if depth < MAX_NESTING:
        outer = (*outer, *assignments(words))
        for word in words:
            if LAUNCH.search(word.text) and re.search(r"\s", word.text):
                yield from nested(word, variables, depth, outer)


def nested(
    word: Word, variables: dict[str, str], depth: int, outer: tuple[Word, ...]
) -> Iterator[Server]:
    """Servers of a script that is one word of a command, as in `bash -c "…"`."""
    unknown = {name for raw in word.unknown for name in NAME.findall(raw)}
    shell = Shell({name: value for name, value in variables.items() if name not in unknown})
    file, line, column = word.place.rsplit(":", 2)
    for command in read_commands(word.text, file, shell, line=int(line), column=int(column)):
        yield from servers_in(command, variables, depth + 1, outer)


def config_path(words: Sequence[Word]) -> Word | None:
    """The value of `--config`."""
    for index, word in enumerate(words):
        spelling, equals, value = word.text.partition("=")
        if spelling == "--config" and equals:
            return word._replace(text=value)
        if spelling == "--config" and index + 1 < len(words):
            return words[index + 1]
    return None


def is_server_config(document: Document) -> bool:
    """Whether a YAML file holds server arguments at its top level."""
    data = document.data
    if not isinstance(data, dict) or {"services", "kind", "apiVersion"} & data.keys():
        return False
    known = {key.replace("-", "_") for key in data} & {
        *arguments(),
        "model",
        "tensor_parallel_size",
    }
    return bool(known)


def config_words(document: Document) -> list[Word]:
    """The command line that a server config stands for."""
    if not isinstance(document.data, dict):
        raise InputError("a server config must be a mapping", where=document.where())
    words: list[Word] = []
    for key, value in document.data.items():
        place = document.where((key,), key=True)
        flag = "--" + key.replace("_", "-")
        found = find(flag)
        switch = isinstance(found, Found) and found.argument.kind == "switch"
        if value is True or (value is False and switch):
            words.append(Word(flag if value else f"--no-{flag[2:]}", place))
        elif value is not False and value != []:
            items = value if isinstance(value, list) else [value]
            words += [Word(flag, place), *(Word(config_text(item), place) for item in items)]
    return words


def config_text(value: Any) -> str:
    """A config value as a word; mappings become JSON."""
    if isinstance(value, dict | list):
        return msgspec.json.encode(value).decode()
    return str(value)

"""The commands that a docker-compose file or Kubernetes manifests start."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kvplan.document import Document, FieldPath
from kvplan.guard.dockerfile import ContainerCommand
from kvplan.guard.shell_values import Shell, Word
from kvplan.guard.shell_words import read_commands

COMPOSE_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|\{(?P<name>\w+)(?:(?P<operator>:?[-?+])(?P<other>[^{}]*))?\}|(?P<bare>\w+))"
)
CLUSTER_VARIABLE = re.compile(r"\$\$\(|\$\(([A-Za-z_][\w.-]*)\)")


def container_commands(documents: list[Document]) -> list[ContainerCommand]:
    """Commands of all compose services or containers in the documents."""
    return [
        found
        for document in documents
        for found in (services(document) if is_compose(document) else containers(document))
    ]


def is_compose(document: Document) -> bool:
    """Whether a document is a compose file."""
    return isinstance(document.data, dict) and isinstance(document.data.get("services"), dict)


def services(document: Document) -> Iterator[ContainerCommand]:
    """Each compose service: entrypoint and command, compose's own variables filled in."""
    for name, service in document.data["services"].items():
        if not isinstance(service, dict):
            continue
        shell = Shell()
        words: list[Word] = []
        for key in ("entrypoint", "command"):
            value = service.get(key)
            path = ("services", name, key)
            if isinstance(value, list):
                words += [
                    shell.word(interpolate(text(part), shell), document.where((*path, index)))
                    for index, part in enumerate(value)
                ]
            elif isinstance(value, str):
                file, line, column = document.where(path).rsplit(":", 2)
                filled = interpolate(value, shell)
                commands = read_commands(filled, file, shell, line=int(line), column=int(column))
                words += commands[0] if commands else []
        if words:
            yield ContainerCommand(name, words, environment(service.get("environment")))


def interpolate(value: str, shell: Shell) -> str:
    """Compose's `${NAME:-default}`: defaults are taken with a remark, the rest stays unknown."""

    def fill(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        if match["operator"] in {":-", "-"}:
            name, other = match["name"], match["other"]
            return shell.remark(f"'${name}' is not set here: taken as '{other}'") + other
        return shell.placeholder(match[0])

    return COMPOSE_VARIABLE.sub(fill, value)


def environment(value: Any) -> dict[str, str]:
    """A compose service's environment, written as a mapping or as a list of NAME=VALUE."""
    if isinstance(value, dict):
        return {name: text(item) for name, item in value.items() if item is not None}
    items = [item.partition("=") for item in value or [] if isinstance(item, str)]
    return {name: item for name, equals, item in items if equals}


def containers(document: Document) -> Iterator[ContainerCommand]:
    """Each mapping of a manifest that has a command or args, with its `env` filled in."""
    root = document.data if isinstance(document.data, dict) else {}
    metadata = root.get("metadata")
    owner = text(metadata.get("name")) if isinstance(metadata, dict) else text(root.get("kind"))
    for path, container in mappings(document.data, ()):
        lists = [key for key in ("command", "args") if container.get(key)]
        if not lists:
            continue
        variables = cluster_environment(container.get("env"))
        words = [
            word
            for key in lists
            for word in cluster_words(document, (*path, key), container[key], variables)
        ]
        name = "/".join(part for part in (owner, text(container.get("name"))) if part)
        yield ContainerCommand(name or "container", words, variables)


def mappings(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, dict[str, Any]]]:
    """All mappings inside a value with their paths."""
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from mappings(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from mappings(inner, (*path, index))


def cluster_environment(value: Any) -> dict[str, str]:
    """`env` entries that have a literal value."""
    items = value if isinstance(value, list) else []
    return {
        item["name"]: text(item["value"])
        for item in items
        if isinstance(item, dict) and isinstance(item.get("name"), str) and "value" in item
    }


def cluster_words(
    document: Document, path: FieldPath, value: Any, variables: dict[str, str]
) -> Iterator[Word]:
    """Words of `command` or `args`, `$(NAME)` filled in from the container's env."""
    shell = Shell()

    def fill(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$("
        known = variables.get(match[1])
        return shell.placeholder(match[0]) if known is None else known

    for index, part in enumerate(value if isinstance(value, list) else [value]):
        if not isinstance(part, dict | list):
            filled = CLUSTER_VARIABLE.sub(fill, text(part))
            place = document.where((*path, index) if isinstance(value, list) else path)
            yield shell.word(filled, place)


def text(value: Any) -> str:
    """A YAML scalar as the words of a command have it."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)

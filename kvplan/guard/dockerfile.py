"""The command that a Dockerfile's last stage starts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from kvplan.errors import InputError
from kvplan.guard.shell_values import Shell, Word
from kvplan.guard.shell_words import read_commands

INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?:[ \t]+|$)")
HEREDOC = re.compile(r"<<-?[ \t]*['\"]?(\w+)")
STAGE = re.compile(r"(?:--\S+[ \t]+)*(\S+)(?:[ \t]+as[ \t]+(\S+))?", re.IGNORECASE)


class ContainerCommand(NamedTuple):
    """What a container runs: its words, and the variables that a shell in it would know."""

    name: str
    words: list[Word]
    variables: dict[str, str]


class Stage(NamedTuple):
    """What a build stage has set so far; a command in shell form is kept as an `sh -c` script."""

    entrypoint: list[Word]
    command: list[Word]
    own_command: bool
    variables: dict[str, str]


EMPTY = Stage([], [], False, {})


def read_dockerfile(text: str, where: str) -> ContainerCommand:
    """ENTRYPOINT and CMD of the last stage, ENV and ARG values as variables."""
    stages: dict[str, Stage] = {}
    name, stage = "", EMPTY
    for line, keyword, rest in instructions(text):
        match keyword:
            case "FROM":
                found = STAGE.match(rest)
                base, name = (found[1], found[2] or "") if found else ("", "")
                stage = stages.get(base, EMPTY)._replace(own_command=False)
            case "ENV" | "ARG":
                stage = stage._replace(variables={**stage.variables, **variables(rest, stage)})
            case "CMD":
                stage = stage._replace(command=command(rest, where, line), own_command=True)
            case "ENTRYPOINT":
                # an entrypoint drops a command that came from the base
                kept = stage.command if stage.own_command else []
                stage = stage._replace(entrypoint=command(rest, where, line), command=kept)
        stages[name] = stage
    return ContainerCommand(name or "image", stage.entrypoint + stage.command, stage.variables)


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number, keyword, rest with its continuation lines) of each instruction."""
    lines = text.replace("\r\n", "\n").split("\n")
    at = 0
    while at < len(lines):
        start = at
        found = INSTRUCTION.match(lines[at])
        if not found:
            at += 1
            continue
        parts = [lines[at][found.end() :]]
        while lines[at].rstrip().endswith("\\") and at + 1 < len(lines):
            at += 1
            comment = lines[at].lstrip().startswith("#")
            parts.append("\\" if comment else lines[at])
            if comment:
                lines[at] = "\\"
        at += 1
        keyword, rest = found[1].upper(), "\n".join(part.rstrip() for part in parts)
        heredoc = HEREDOC.search(rest) if keyword in {"RUN", "COPY", "ADD"} else None
        if heredoc:
            while at < len(lines) and lines[at].strip() != heredoc[1]:
                at += 1
            at += 1
        yield start + 1, keyword, rest


def variables(rest: str, stage: Stage) -> dict[str, str]:
    """Names and values of one ENV or ARG instruction."""
    if "=" not in rest:
        name, _, value = rest.strip().partition(" ")
        return {name: value.strip()} if value else {}
    shell = Shell(stage.variables)
    try:
        read_commands(rest, "", shell)
    except InputError:
        return {}
    return {name: values[0] for name, values in shell.variables.items() if values}


def command(rest: str, where: str, line: int) -> list[Word]:
    """The words of CMD or ENTRYPOINT: a JSON list as it stands, else a script for `sh -c`."""
    place = f"{where}:{line}:1"
    if not rest.lstrip().startswith("["):
        return [Word("sh", place), Word("-c", place), Word(rest, place)]
    from kvplan.jsonfile import parse_json

    joined = rest.replace("\\\n", "\n")
    try:
        words = parse_json(joined, where).data
    except InputError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(
            "not a JSON list of texts", where=place, hint='write it as ["python3", "-m", …]'
        )
    return [Word(word, place) for word in words]

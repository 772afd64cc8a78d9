"""Strict reading of YAML and JSON files: what YAML readers disagree about is refused, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kvplan.document import Document, FieldPath
from kvplan.errors import InputError
from kvplan.scalars import Scalar, ScalarTrap, read_scalar

MAX_BYTES = 8 << 20
MAX_JSON_BYTES = 64 << 20  # the safetensors index of a large model has about 10 MB
MAX_DEPTH = 60
UNWANTED = frozenset("\t\x85\u2028\u2029")  # a tab, and line breaks that only some readers know
PLAIN, QUOTED, COLLECTION = "plain", "quoted", "collection"


def load(path: Path) -> Document:
    """Read one YAML file of kvplan's own kinds."""
    return parse(read_text(path), str(path))


def load_json(path: Path) -> Document:
    """Read one JSON file, such as a config.json; NaN and Infinity are floats there."""
    from kvplan.jsonfile import parse_json

    return parse_json(read_text(path, MAX_JSON_BYTES), str(path))


def parse(text: str, where: str) -> Document:
    """YAML text as a Document; `where` is the file name for messages."""
    if not UNWANTED.isdisjoint(text):
        offset = next(index for index, letter in enumerate(text) if letter in UNWANTED)
        what = (
            "tab character" if text[offset] == "\t" else "a line break that only some readers know"
        )
        spot = at(where, *line_column(text, offset))
        raise InputError(what, where=spot, hint="use spaces and plain line ends")
    documents = compose(text, where)
    if len(documents) > 1:
        raise InputError(
            "more than one YAML document",
            where=place(where, documents[1]),
            hint="remove '---' and what follows, or split the file",
        )
    if not documents:
        raise InputError("the file is empty", where=where)
    return document(documents[0], where, Reader(where, aliases="&" in text))


def read_text(path: Path, max_bytes: int = MAX_BYTES) -> str:
    """Text of a UTF-8 file; InputError for what is missing, too large or no text."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot read: {reason.lower()}", where=str(path)) from None
    if len(content) > max_bytes:
        raise InputError(f"larger than {max_bytes >> 20} MiB", where=str(path))
    if b"\0" in content:
        raise InputError("not a text file (it holds NUL bytes)", where=str(path))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"not UTF-8 text (byte 0x{content[error.start]:02x})",
            where=f"{path}:{line}",
            hint="save the file as UTF-8",
        ) from None


class Loader(yaml.CSafeLoader):
    """libyaml's parser; it only composes nodes, scalars keep their spelling and how they were quoted."""

    depth = 0

    def resolve(self, kind: Any, _value: Any, implicit: Any) -> str:
        if kind is not yaml.ScalarNode:
            return COLLECTION
        return PLAIN if implicit[0] else QUOTED

    def descend_resolver(self, parent: Any, _index: Any) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels",
                problem_mark=parent.start_mark,
            )

    def ascend_resolver(self) -> None:
        self.depth -= 1


def compose(text: str, where: str) -> list[yaml.Node]:
    """Root nodes of all documents; syntax errors become InputError with their place."""
    try:
        loader = Loader(text)
        roots: list[yaml.Node] = []
        try:
            while loader.check_node() and (root := loader.get_node()):
                roots.append(root)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        spot = at(where, mark.line, mark.column) if mark else where
        raise InputError(syntax_problem(error), where=spot) from None
    except yaml.reader.ReaderError as error:
        before = text.encode()[: error.position].decode(errors="ignore")
        spot = at(where, *line_column(text, len(before)))
        raise InputError("a character that YAML does not allow", where=spot) from None
    except (yaml.YAMLError, UnicodeEncodeError):
        raise InputError("not readable as YAML", where=where) from None
    return roots


def syntax_problem(error: yaml.MarkedYAMLError) -> str:
    """libyaml's words for a syntax error, with what it was reading."""
    context = f" {error.context}" if error.context else ""
    return f"{error.problem or 'syntax error'}{context}"


def document(root: yaml.Node, where: str, reader: Reader) -> Document:
    """Values of one composed document, with a locator over its nodes."""
    return Document(reader.value(root), where, lambda path, key: find(root, where, path, key))


class Reader:
    """Turns composed nodes into values and refuses whatever kvplan's own files may not hold."""

    def __init__(self, where: str, *, aliases: bool) -> None:
        self.where = where
        self.aliases = aliases
        self.seen: set[int] = set()

    def value(self, node: yaml.Node) -> Any:
        """dict, list or scalar of a node."""
        if self.aliases:
            self.note(node)
        if node.tag == PLAIN:
            return self.plain(node)
        if node.tag == QUOTED:
            return node.value
        if node.tag != COLLECTION:
            return self.tagged(node)
        return self.collection(node)

    def collection(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node)
        return [self.value(item) for item in node.value]

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.key(key_node)
            if key in values:
                first = find(node, self.where, (key,), True).rsplit(":", 2)[1]
                raise self.refuse(key_node, f"{key!r} is given twice (first in line {first})", None)
            values[key] = self.value(value_node)
        return values

    def key(self, node: yaml.Node) -> str:
        if node.tag == PLAIN and node.value == "<<":
            raise self.refuse(node, "merge keys are not supported", "write the fields out")
        key = self.value(node)
        if not isinstance(key, str):
            raise self.refuse(
                node, f"the key {spelling(node)} is not text", "quote it if it is meant"
            )
        return key

    def plain(self, node: yaml.Node) -> Scalar:
        try:
            return read_scalar(node.value)
        except ScalarTrap as trap:
            raise self.refuse(node, trap.problem, trap.hint) from None

    def tagged(self, node: yaml.Node) -> Any:
        raise self.refuse(node, f"the tag {node.tag!r} is not supported", "write the plain value")

    def note(self, node: yaml.Node) -> None:
        """Refuse the second sight of a node, which is an alias."""
        if id(node) in self.seen:
            raise self.refuse(node, "an alias repeats this value", "write the value out")
        self.seen.add(id(node))

    def refuse(self, node: yaml.Node, problem: str, hint: str | None) -> InputError:
        return InputError(problem, where=place(self.where, node), hint=hint)


def find(root: yaml.Node, where: str, path: FieldPath, key: bool) -> str:
    """Place of the value (or key) at path; of the deepest part that exists where it does not."""
    node = root
    for position, step in enumerate(path):
        pair = child(node, step)
        if pair is None:
            break
        if key and position == len(path) - 1:
            return place(where, pair[0])
        node = pair[1]
    return place(where, node)


def child(node: yaml.Node, step: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """(key node, value node) of one step down, None where there is none."""
    if isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            if key_node.value == step:
                return key_node, value_node
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        return node.value[step], node.value[step]
    return None


def spelling(node: yaml.Node) -> str:
    """A key as it was written, or its kind."""
    return repr(node.value) if isinstance(node, yaml.ScalarNode) else "(a collection)"


def place(where: str, node: yaml.Node) -> str:
    """`file:line:column` of a node."""
    return at(where, node.start_mark.line, node.start_mark.column)


def at(where: str, line: int, column: int) -> str:
    """`file:line:column` of zero-based line and column."""
    return f"{where}:{line + 1}:{column + 1}"


def line_column(text: str, offset: int) -> tuple[int, int]:
    """Zero-based line and column of an offset."""
    return text.count("\n", 0, offset), offset - (text.rfind("\n", 0, offset) + 1)

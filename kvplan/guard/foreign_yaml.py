"""YAML of container tools: several documents, tags, aliases and merges are read, within bounds."""

from __future__ import annotations

from typing import Any

import yaml

from kvplan.document import Document
from kvplan.errors import InputError
from kvplan.scalars import Scalar, ScalarTrap, read_scalar
from kvplan.yamlfile import PLAIN, Reader, compose, document, spelling

MAX_VALUES = 50_000


def parse_foreign(text: str, where: str) -> list[Document]:
    """All documents of a file that another tool owns; an ambiguous scalar stays the text it is."""
    reader = ForeignReader(where, aliases="&" in text)
    try:
        return [document(root, where, reader) for root in compose(text, where)]
    except InputError as error:
        if "{{" in text and error.hint is None:
            raise InputError(
                error.problem, where=error.where, hint="render the template first"
            ) from None
        raise


class ForeignReader(Reader):
    """Reads leniently; counts values, so that aliases cannot explode."""

    def __init__(self, where: str, *, aliases: bool) -> None:
        super().__init__(where, aliases=aliases)
        self.count = 0
        self.open: set[int] = set()

    def note(self, node: yaml.Node) -> None:
        self.count += 1
        if self.count > MAX_VALUES:
            raise self.refuse(node, f"aliases expand to more than {MAX_VALUES} values", None)

    def collection(self, node: yaml.Node) -> Any:
        if id(node) in self.open:
            raise self.refuse(node, "an alias contains itself", None)
        self.open.add(id(node))
        try:
            return super().collection(node)
        finally:
            self.open.discard(id(node))

    def mapping(self, node: yaml.MappingNode) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, value_node in node.value:
            value = self.value(value_node)
            if key_node.tag == PLAIN and key_node.value == "<<":
                for part in value if isinstance(value, list) else [value]:
                    merged = {**part, **merged} if isinstance(part, dict) else merged
            else:
                own[self.key(key_node)] = value
        return {**merged, **own}

    def key(self, node: yaml.Node) -> str:
        return str(node.value) if isinstance(node, yaml.ScalarNode) else spelling(node)

    def plain(self, node: yaml.Node) -> Scalar:
        try:
            return read_scalar(node.value)
        except ScalarTrap:
            return str(node.value)

    def tagged(self, node: yaml.Node) -> Any:
        return node.value if isinstance(node, yaml.ScalarNode) else self.collection(node)

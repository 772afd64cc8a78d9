"""Readers of the report formats, strict about their grammars: JUnit XML and GitHub's workflow commands."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import NamedTuple

# element: (children, attributes it must have, attributes it may have), as Jenkins and GitLab read it
JUNIT: dict[str, tuple[frozenset[str], frozenset[str], frozenset[str]]] = {
    "testsuites": (
        frozenset({"testsuite"}),
        frozenset(),
        frozenset({"name", "time", "tests", "failures", "errors"}),
    ),
    "testsuite": (
        frozenset({"testsuite", "properties", "testcase", "system-out", "system-err"}),
        frozenset({"name", "tests", "failures", "errors"}),
        frozenset({"time", "skipped", "timestamp", "hostname", "id", "package", "file"}),
    ),
    "testcase": (
        frozenset({"skipped", "error", "failure", "system-out", "system-err"}),
        frozenset({"name"}),
        frozenset({"time", "classname", "group"}),
    ),
    "failure": (frozenset(), frozenset(), frozenset({"type", "message"})),
    "error": (frozenset(), frozenset(), frozenset({"type", "message"})),
    "system-out": (frozenset(), frozenset(), frozenset()),
}
COMMAND = re.compile(r"::(error|warning|notice|debug)(?: ([^:\r\n]*))?::([^\r\n]*)")
PROPERTY = re.compile(r"(file|line|endLine|col|endColumn|title)=([^,:\r\n]*)")
CODES = {"%25": "%", "%0D": "\r", "%0A": "\n", "%3A": ":", "%2C": ","}


class Annotation(NamedTuple):
    """One workflow command."""

    level: str
    properties: dict[str, str]
    message: str


def read_junit(text: str) -> ElementTree.Element:
    """The document; AssertionError where it is not what a JUnit reader takes, or its sums are wrong."""
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for element in root.iter():
        children, needed, optional = JUNIT[element.tag]
        assert {child.tag for child in element} <= children, element.tag
        assert needed <= set(element.attrib) <= needed | optional, element.attrib
        if "time" in element.attrib:
            assert re.fullmatch(r"\d+(\.\d+)?", element.attrib["time"])
    for outer in (root, *root.findall("testsuite")):
        cases = list(outer.iter("testcase"))
        assert int(outer.attrib["tests"]) == len(cases)
        assert int(outer.attrib["failures"]) == len(list(outer.iter("failure")))
        assert int(outer.attrib["errors"]) == len(list(outer.iter("error")))
    return root


def read_github(text: str) -> list[Annotation]:
    """The commands of a log, in order; every line must be one."""
    assert text.endswith("\n")
    return [read_command(line) for line in text[:-1].split("\n")]


def read_command(line: str) -> Annotation:
    """One `::level key=value,…::message` line with its escapes undone."""
    match = COMMAND.fullmatch(line)
    assert match is not None, line
    level, listed, message = match.groups()
    properties = {}
    for part in (listed or "").split(","):
        pair = PROPERTY.fullmatch(part)
        assert pair is not None, part
        properties[pair[1]] = decoded(pair[2])
    return Annotation(level, properties, decoded(message))


def decoded(text: str) -> str:
    """The text behind the percent codes; every percent sign must begin one."""
    assert re.fullmatch(r"(?:[^%]|%25|%0D|%0A|%3A|%2C)*", text), text
    return re.sub("%..", lambda code: CODES[code[0]], text)

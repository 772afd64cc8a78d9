"""JSON files behave as YAML ones: refused with their line, converted with their places."""

from __future__ import annotations

import json
import math
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError
from kvplan.jsonfile import parse_json
from kvplan.yamlfile import load_json


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layers: list[dict[str, int]] = []
    size: int = 0


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("", "c.json:1:1", "the file is empty"),
        ('{"a": 1,}', "c.json:1:9", "not JSON"),
        ('{"a": 1\n "b": 2}', "c.json:2:2", "not JSON: expecting ',' delimiter"),
        ("{'a': 1}", "c.json:1:2", "not JSON"),
        ('{"a": 1, "b": {"c": 1,\n "c": 2}}', "c.json:2:2", "'c' is given twice (first in line 1)"),
        ('{"a": {"a": 1}, "a": 2}', "c.json:1:17", "'a' is given twice"),
        ('{"a": "\\ud800"}', "c.json", "half of a Unicode pair"),
        ('{"\\udfff": 1}', "c.json", "half of a Unicode pair"),
        ('{"a": ' + "1" * 5000 + "}", "c.json", "too many digits"),
        ("[" * 80 + "]" * 80, "c.json", "nested deeper"),
        ("[" * 100_000, "c.json", "nested deeper"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(text, where, problem):
    with pytest.raises(InputError) as caught:
        parse_json(text, "c.json")

    assert caught.value.where == where
    assert problem in caught.value.problem


def test_a_wrong_value_names_its_line():
    text = '{\n "size": 1,\n "layers": [{"a": 1}, {"a": 2,\n  "b": "x"}]\n}'

    with pytest.raises(InputError) as caught:
        parse_json(text, "c.json").convert(Config)

    assert str(caught.value) == "c.json:4:8: 'b' must be an integer, got 'x'"


def test_an_unknown_key_names_its_line_and_the_nearest():
    with pytest.raises(InputError) as caught:
        parse_json('{\n  "sizes": 1}', "c.json").convert(Config)

    assert str(caught.value) == "c.json:2:3: unknown field 'sizes'"
    assert caught.value.hint == "did you mean 'size'?"


def test_infinity_and_nan_are_floats_as_python_writes_them():
    data = parse_json('{"limit": [0.0, Infinity], "x": NaN}', "c.json").data

    assert data["limit"] == [0.0, math.inf]
    assert math.isnan(data["x"])


def test_every_published_config_reads(shared):
    for path in sorted((shared / "facts" / "models").glob("*.json")):
        assert isinstance(load_json(path).data, dict)


def test_a_hundred_thousand_members_are_searched_in_time():
    text = "{" + ",".join(f'"k{n}": [{n}]' for n in range(100_000)) + ', "last": "x"}'
    document = parse_json(text, "c.json")
    started = time.process_time()

    place = document.where(("last",))

    assert place == f"c.json:1:{text.index('x')}"
    assert time.process_time() - started < 5


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def paths(value, path=()):
    yield path, value
    steps = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for step in steps:
        yield from paths(value[step], (*path, step))


@given(values)
def test_each_value_stands_where_its_place_says(value):
    text = json.dumps(value, ensure_ascii=True)
    document = parse_json(text, "c.json")

    for path, inner in paths(value):
        column = int(document.where(path).rsplit(":", 1)[1])
        assert json.JSONDecoder().raw_decode(text, column - 1)[0] == inner

"""Strict YAML: what readers disagree about is refused, and every refusal names its line."""

from __future__ import annotations

import contextlib
import enum
import time
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError, KvplanError
from kvplan.yamlfile import MAX_BYTES, load, parse


class Kind(enum.StrEnum):
    FULL = "full"
    SLIDING = "sliding"


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Kind
    num_heads: int
    ratio: float | None = None


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    num_layers: int = 1
    tied: bool = False
    dtype: Literal["bfloat16", "float16"] = "bfloat16"
    layers: list[Layer] = []
    groups: dict[str, Layer] = {}


class Dense(msgspec.Struct, frozen=True, tag="dense", tag_field="form", forbid_unknown_fields=True):
    heads: int


class Latent(
    msgspec.Struct, frozen=True, tag="latent", tag_field="form", forbid_unknown_fields=True
):
    rank: int


class Holder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kv: Dense | Latent


def refusal(text: str, kind: type | None = None) -> InputError:
    with pytest.raises(InputError) as caught:
        read(text, kind)
    return caught.value


def read(text: str, kind: type | None) -> object:
    document = parse(text, "m.yaml")
    return document.data if kind is None else document.convert(kind)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-3", -3),
        ("+7", 7),
        ("0", 0),
        ("0.9", 0.9),
        ("1.0e+9", 1e9),
        ("2.5e-3", 0.0025),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("bf16", "bf16"),
        ("'1e9'", "1e9"),
        ('"yes"', "yes"),
        ("2024-01-31", "2024-01-31"),
        ("1.2.3", "1.2.3"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("[1, a, 0.5]", [1, "a", 0.5]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("|\n  two\n  lines\n", "two\nlines\n"),
    ],
)
def test_plain_values_mean_what_they_seem_to(text, value):
    found = parse(f"key: {text}", "m.yaml").data["key"]

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("1e9", "'1e9' is text to YAML readers", "write 1000000000 or 1.0e+9"),
        ("1e-5", "'1e-5' is text", "write 1.0e-5"),
        ("1.5E3", "'1.5E3' is text", "write 1500 or 1.5e+3"),
        ("1e999999999999", "is text", "ordinary size"),
        ("yes", "'yes' is a boolean to some", "write true"),
        ("Off", "'Off' is a boolean to some", "write false"),
        ("012", "'012' has a leading zero", "write 12"),
        ("0o17", "leading zero", "quote it"),
        ("0x1F", "another base", "decimal"),
        ("1_000", "is a number to some", "write 1000"),
        ("1:30", "base-60", "quote it"),
        (".inf", "no finite number", "finite"),
        ("-.NaN", "no finite number", "finite"),
        ("1.0e+999", "too large", "finite"),
        ("9" * 5000, "too many digits", "finite"),
        ("!!int 3", "the tag 'tag:yaml.org,2002:int'", "plain value"),
        ("!!python/object:os.system x", "the tag", "plain value"),
        ("!local {a: 1}", "the tag '!local'", "plain value"),
    ],
)
def test_a_spelling_that_readers_disagree_about_is_refused(text, problem, hint):
    error = refusal(f"a: 1\nkey: {text}")

    assert error.where == "m.yaml:2:6"
    assert problem in error.problem
    assert hint in str(error.hint)


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "m.yaml:3:1", "'a' is given twice (first in line 1)"),
        ("a:\n  b: 1\n  'b': 2", "m.yaml:3:3", "'b' is given twice (first in line 2)"),
        ("1: x", "m.yaml:1:1", "the key '1' is not text"),
        ("null: x", "m.yaml:1:1", "the key 'null' is not text"),
        ("on: x", "m.yaml:1:1", "'on' is a boolean"),
        ("? [a, b]\n: x", "m.yaml:1:3", "is not text"),
        ("a: &x [1]\nb: *x", "m.yaml:1:4", "an alias repeats this value"),
        ("a: &x [*x]", "m.yaml:1:4", "an alias repeats this value"),
        ("a: &x {c: 1}\nb: {<<: *x}", "m.yaml:2:5", "merge keys"),
        ("a: 1\n---\nb: 2", "m.yaml:3:1", "more than one YAML document"),
        ("a: 1\n\tb: 2", "m.yaml:2:1", "tab character"),
        ("a: 'x\u2028y'", "m.yaml:1:6", "a line break that only some readers know"),
        ("", "m.yaml", "the file is empty"),
        ("# only a comment\n", "m.yaml", "the file is empty"),
        ("a: [1, 2", "m.yaml:2:1", "did not find expected ',' or ']'"),
        ("a: b: c", "m.yaml:1:5", "mapping values are not allowed"),
        ("a: *nowhere", "m.yaml:1:4", "undefined alias"),
        ("a: @x", "m.yaml:1:4", "cannot start any token"),
        ("a: \x07", "m.yaml:1:4", "a character that YAML does not allow"),
        ("ä: \x07", "m.yaml:1:4", "a character that YAML does not allow"),
        ("a: '\ud800'", "m.yaml", "not readable as YAML"),
    ],
)
def test_a_file_that_cannot_be_meant_so_is_refused_with_its_place(text, where, problem):
    error = refusal(text)

    assert error.where == where
    assert problem in error.problem


@pytest.mark.parametrize("nested", ["[" * 5000, "a: " + "{b: " * 5000, "- " * 5000 + "x"])
def test_deep_nesting_is_refused(nested):
    error = refusal(nested)

    assert "nested deeper" in error.problem or "depth" in error.problem.lower()


def test_aliases_that_explode_are_refused_at_once():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    started = time.process_time()

    refusal("\n".join(lines))

    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("text", "where", "problem", "hint"),
    [
        ("name: a\nnum_layer: 2", "2:1", "unknown field 'num_layer'", "did you mean 'num_layers'?"),
        ("num_layers: 2", "1:1", "missing field 'name'", "add 'name: <str>'"),
        (
            "name: a\nnum_layers: many",
            "2:13",
            "'num_layers' must be an integer, got 'many'",
            None,
        ),
        ("name: a\nnum_layers: '8'", "2:13", "got '8'", "remove the quotes"),
        ("name: a\nnum_layers: true", "2:13", "must be an integer, got true", None),
        ("name: a\nnum_layers: 2.0", "2:13", "must be an integer, got 2.0", None),
        ("name: 8", "1:7", "'name' must be text, got 8", None),
        ("name: a\ntied: 1", "2:7", "'tied' must be true or false, got 1", None),
        ("name: a\ndtype: bfloat", "2:8", "unknown value 'bfloat' of 'dtype'", "'bfloat16'"),
        ("name: a\nlayers: 3", "2:9", "'layers' must be a list, got 3", None),
        (
            "name: a\nlayers:\n- {kind: full, num_heads: 1}\n- {kind: ful, num_heads: 1}",
            "4:10",
            "unknown value 'ful' of 'kind'",
            "did you mean 'full'?",
        ),
        (
            "name: a\nlayers:\n- kind: full\n",
            "3:3",
            "missing field 'num_heads'",
            "add 'num_heads: <int>'",
        ),
        (
            "name: a\nlayers:\n- num_heads: 1\n",
            "3:3",
            "missing field 'kind'",
            "add 'kind: full|sliding'",
        ),
        (
            "name: a\ngroups:\n  x: {kind: full, num_heads: 1}\n  y: {kind: full, heads: 1}",
            "4:19",
            "unknown field 'heads'",
            "did you mean 'num_heads'?",
        ),
        (
            "name: a\ngroups:\n  x: {kind: full, num_heads: 1, ratio: high}",
            "3:40",
            "'ratio' must be a number or null, got 'high'",
            None,
        ),
        ("name: a\nlayers:\n- 7", "3:3", "'layers[0]' must be a mapping, got 7", None),
        ("- a", "1:1", "the value must be a mapping, got a list", None),
    ],
)
def test_a_value_that_does_not_fit_names_the_line_and_what_is_allowed(text, where, problem, hint):
    error = refusal(text, Model)

    assert error.where == f"m.yaml:{where}"
    assert problem in error.problem
    assert hint is None or hint in str(error.hint)


def test_a_choice_of_forms_names_the_known_ones():
    unknown = refusal("kv: {form: laten, rank: 1}", Holder)
    wrong = refusal("kv: {form: latent, rang: 1}", Holder)

    assert (unknown.where, unknown.hint) == ("m.yaml:1:12", "did you mean 'latent'?")
    assert (wrong.where, wrong.hint) == ("m.yaml:1:20", "did you mean 'rank'?")


def test_a_good_file_converts_and_knows_its_places():
    document = parse("name: a\nlayers:\n- kind: sliding\n  num_heads: 4\n", "m.yaml")

    model = document.convert(Model)

    assert model == Model(name="a", layers=[Layer(kind=Kind.SLIDING, num_heads=4)])
    assert document.where(("layers", 0, "num_heads")) == "m.yaml:4:14"
    assert document.where(("layers", 0, "num_heads"), key=True) == "m.yaml:4:3"
    assert document.where(("layers", 7, "x")) == "m.yaml:3:1"
    assert document.convert(Layer, ("layers", 0)).num_heads == 4


class Even(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    count: int

    def __post_init__(self) -> None:
        if self.count % 2:
            raise KvplanError(f"'count' must be even, got {self.count}", hint="add one")


def test_a_refusal_of_the_type_itself_gets_the_file_as_its_place():
    with pytest.raises(KvplanError) as caught:
        parse("count: 3", "m.yaml").convert(Even)

    assert str(caught.value) == "m.yaml:1:1: 'count' must be even, got 3"
    assert caught.value.hint == "add one"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"a: \0", "NUL"),
        (b"a: 1\nb: \xff\xfe", "not UTF-8"),
        (b"# " + b"x" * MAX_BYTES, "larger than"),
    ],
)
def test_files_that_are_no_text_are_refused(tmp_path, content, problem):
    path = tmp_path / "m.yaml"
    path.write_bytes(content)

    with pytest.raises(InputError, match=problem):
        load(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is a directory"):
        load(tmp_path)


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "m.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\n")

    assert load(path).data == {"name": "a"}


def test_a_small_preset_loads_in_two_milliseconds():
    text = "\n".join(f"field_{n}: {n * 1000}\nname_{n}: some-text" for n in range(20))
    times = []
    for _ in range(20):
        started = time.process_time()
        parse(text, "m.yaml")
        times.append(time.process_time() - started)

    assert min(times) < 0.002


@given(st.text(max_size=80))
def test_no_text_ever_ends_in_anything_but_a_refusal(text):
    with contextlib.suppress(InputError):
        assert isinstance(read(text, Model), Model)


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1), inner),
    max_leaves=8,
)


@given(plain_values)
def test_what_json_writes_reads_back_unless_it_is_refused(value):
    text = msgspec.json.encode({"key": value}).decode()

    with contextlib.suppress(InputError):
        assert read(text, None) == {"key": value}


@given(st.dictionaries(st.text("abc_", min_size=1), st.text("abc 1.:#'") | st.integers(0, 10**18)))
def test_what_json_writes_with_plain_text_is_never_refused(value):
    assert read(msgspec.json.encode(value).decode(), None) == value

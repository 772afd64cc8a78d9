"""Conditions mean what they say, run nothing, and refuse what cannot be meant."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.errors import InputError, KvplanError
from kvplan.search.where import read_condition

KINDS = {"a": "integer", "b": "number", "s": "text", "f": "flag", "model.num_layers": "integer"}
ROW = {"a": 4, "b": 0.5, "s": "auto", "f": True, "model.num_layers": 32}
EMPTY = dict.fromkeys(ROW)


def kind_of(name: str):
    if name not in KINDS:
        raise InputError(f"unknown column '{name}'")
    return KINDS[name]


@pytest.mark.parametrize(
    ("text", "on_row", "on_nulls"),
    [
        ("a * 2 <= 8", True, False),
        ("a * 2 < 8 or b == 0.5", True, False),
        ("1 < a < 4", False, False),
        ("a // 3 == 1 and a % 3 == 1", True, False),
        ("a / 0 > 1", False, False),
        ("-a < 0", True, False),
        ("a != 4", False, True),
        ("not a > 3", False, True),
        ("s == 'auto'", True, False),
        ("s in ['auto', 'bf16']", True, False),
        ("a not in (1, 2)", True, True),
        ("a in [1, null]", False, True),
        ("s == null", False, True),
        ("f", True, False),
        ("f == false or a == 4", True, False),
        ("model.num_layers >= 32", True, False),
        ("s in []", False, False),
        ("999999999999999999 * 999999999999999999 * b > a", True, False),
    ],
)
def test_conditions_hold_where_they_are_true(text: str, on_row: bool, on_nulls: bool):
    condition = read_condition(text, kind_of)

    assert condition.holds(ROW) is on_row
    assert condition.holds(EMPTY) is on_nulls


def test_a_condition_knows_the_columns_it_reads():
    assert read_condition("a > 1 and s != 'x'", kind_of).names == {"a", "s"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot be read"),
        ("a >", "cannot be read"),
        ("(" * 400, "cannot be read"),
        ("a" * 501, "at most 500"),
        ("c > 1", "unknown column 'c'"),
        ("a", "neither true nor false"),
        ("a + 1", "neither true nor false"),
        ("s > 'a'", "only numbers have an order"),
        ("a == 'x'", "a number never equals a text"),
        ("s + 'x' == 'y'", "arithmetic needs numbers"),
        ("a and f", "join comparisons"),
        ("a in 3", "'in' needs a list"),
        ("a is 4", "'is' has no place"),
        ("a ** 2 > 3", "has no place"),
        ("1e999 > a", "has no place"),
        ("10000000000000000000 > a", "has no place"),
        ("__import__('os').system('true')", "has no place"),
        ("(lambda: f)()", "has no place"),
        ("[x for x in (1,)] == a", "has no place"),
        ("f'{a}' == s", "has no place"),
        ("(a := 3) > 1", "has no place"),
        ("b'x' == s", "has no place"),
    ],
)
def test_what_is_no_condition_is_refused(text: str, problem: str):
    with pytest.raises(InputError, match=problem.replace("'", ".")):
        read_condition(text, kind_of)


WORDS = st.sampled_from(
    ["a", "b", "s", "f", "1", "0", "2.5", "'auto'", "null", "true", "<", "==", "!=", ">=", "+", "*",
     "/", "//", "%", "and", "or", "not", "in", "(", ")", "[", "]", ",", "is", "if", "else", "."]
)  # fmt: skip


@given(st.lists(WORDS, max_size=12).map(" ".join) | st.text(max_size=30))
def test_any_text_is_a_condition_or_refused(text: str):
    try:
        condition = read_condition(text, kind_of)
    except KvplanError:
        return

    assert condition.holds(ROW) in (True, False)
    assert condition.holds(EMPTY) in (True, False)

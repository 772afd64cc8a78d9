"""Conditions of a sweep: comparisons and arithmetic over columns, read without ever running text.

A null makes arithmetic null and an order comparison false; `==`, `!=` and `in` know it.
"""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from kvplan.errors import InputError
from kvplan.search.kinds import Kind

Row = Mapping[str, Any]
KindOf = Callable[[str], Kind]
Sort = Literal["number", "text", "flag", "null"]

MAX_LETTERS = 500
MAX_NUMBER = 10**18
SORTS: dict[Kind, Sort] = {"integer": "number", "number": "number", "text": "text", "flag": "flag"}
WORDS = {"null": None, "true": True, "false": False}
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
EQUALITY: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
MEMBERSHIP: dict[type[ast.cmpop], bool] = {ast.In: True, ast.NotIn: False}


class Term(msgspec.Struct, frozen=True):
    """A part of a condition: what it is, the names in it, its value for a row."""

    sort: Sort
    names: frozenset[str]
    value: Callable[[Row], Any]


class Condition(msgspec.Struct, frozen=True):
    """A condition as it is written, the columns it reads, and whether a row holds it."""

    text: str
    names: frozenset[str]
    holds: Callable[[Row], bool]


def read_condition(text: str, kind_of: KindOf) -> Condition:
    """Read a condition; `kind_of` refuses names that are no columns. InputError says what is wrong."""
    if len(text) > MAX_LETTERS:
        raise InputError(f"a condition of {len(text):,} letters, at most {MAX_LETTERS} are read")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(
            f"the condition {text!r} cannot be read",
            hint="compare columns, e.g. tp_size * pp_size <= 8 and kv_cache_dtype != 'auto'",
        ) from None
    term = term_of(tree.body, kind_of)
    if term.sort != "flag":
        raise InputError(
            f"the condition {text!r} is a {term.sort}, neither true nor false",
            hint="compare it with something",
        )
    return Condition(text, term.names, lambda row: bool(term.value(row)))


def term_of(node: ast.expr, kind_of: KindOf) -> Term:
    """One node of the syntax tree."""
    match node:
        case ast.Constant(value=value):
            return constant(value)
        case ast.Name() | ast.Attribute():
            return named(node, kind_of)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            inner = term_of(operand, kind_of)
            return Term("flag", inner.names, lambda row: not inner.value(row))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return arithmetic(operator.sub, constant(0), term_of(operand, kind_of))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in ARITHMETIC:
            return arithmetic(ARITHMETIC[type(op)], term_of(left, kind_of), term_of(right, kind_of))
        case ast.BoolOp(op=op, values=values):
            return joined(op, [term_of(value, kind_of) for value in values])
        case ast.Compare():
            return compared(node, kind_of)
        case _:
            raise unwanted(node)


def constant(value: object) -> Term:
    """A literal; numbers of ordinary size."""
    if isinstance(value, bool):
        return Term("flag", frozenset(), lambda _: value)
    if value is None:
        return Term("null", frozenset(), lambda _: None)
    if isinstance(value, str):
        return Term("text", frozenset(), lambda _: value)
    if isinstance(value, int | float) and abs(value) <= MAX_NUMBER:
        return Term("number", frozenset(), lambda _: value)
    raise InputError(f"{str(value)[:40]!r} has no place in a condition")


def named(node: ast.Name | ast.Attribute, kind_of: KindOf) -> Term:
    """A column, or one of the words null, true and false."""
    name = ast.unparse(node)
    if name in WORDS:
        return constant(WORDS[name])
    return Term(SORTS[kind_of(name)], frozenset({name}), lambda row: row.get(name))


def arithmetic(combine: Callable[[Any, Any], Any], left: Term, right: Term) -> Term:
    """Two numbers into one; null where one is null or the result is none."""
    for term in (left, right):
        if term.sort != "number":
            raise InputError(f"arithmetic needs numbers, not a {term.sort}")

    def value(row: Row) -> Any:
        first, second = left.value(row), right.value(row)
        if first is None or second is None:
            return None
        try:
            return combine(first, second)
        except ArithmeticError:
            return None

    return Term("number", left.names | right.names, value)


def joined(op: ast.boolop, terms: list[Term]) -> Term:
    """`and`, `or`."""
    for term in terms:
        if term.sort != "flag":
            raise InputError(f"'and' and 'or' join comparisons, not a {term.sort}")
    names = frozenset[str]().union(*(term.names for term in terms))
    quantifier = all if isinstance(op, ast.And) else any
    return Term("flag", names, lambda row: quantifier(term.value(row) for term in terms))


def compared(node: ast.Compare, kind_of: KindOf) -> Term:
    """A comparison, or a chain of them."""
    pairs: list[Term] = []
    left = term_of(node.left, kind_of)
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        if type(op) in MEMBERSHIP:
            pairs.append(member(left, right_node, kind_of, wanted=MEMBERSHIP[type(op)]))
            continue
        right = term_of(right_node, kind_of)
        pairs.append(comparison(op, left, right))
        left = right
    return joined(ast.And(), pairs)


def comparison(op: ast.cmpop, left: Term, right: Term) -> Term:
    """Two terms of one sort."""
    names = left.names | right.names
    if type(op) in EQUALITY:
        if left.sort != right.sort and "null" not in (left.sort, right.sort):
            raise InputError(f"a {left.sort} never equals a {right.sort}")
        equal = EQUALITY[type(op)]
        return Term("flag", names, lambda row: equal(left.value(row), right.value(row)))
    if type(op) not in ORDER:
        raise InputError("'is' has no place in a condition", hint="write == or !=")
    if left.sort != "number" or right.sort != "number":
        other = right.sort if left.sort == "number" else left.sort
        raise InputError(f"only numbers have an order, not a {other}")
    before = ORDER[type(op)]

    def value(row: Row) -> bool:
        first, second = left.value(row), right.value(row)
        return first is not None and second is not None and before(first, second)

    return Term("flag", names, value)


def member(left: Term, node: ast.expr, kind_of: KindOf, *, wanted: bool) -> Term:
    """`column in [value, …]`."""
    if not isinstance(node, ast.List | ast.Tuple):
        raise InputError("'in' needs a list", hint="write e.g. page_size in [16, 64]")
    options = [comparison(ast.Eq(), left, term_of(item, kind_of)) for item in node.elts]
    found = joined(ast.Or(), options)
    return Term("flag", left.names | found.names, lambda row: found.value(row) is wanted)


def unwanted(node: ast.expr) -> InputError:
    """The refusal of anything else that Python would run."""
    return InputError(
        f"{ast.unparse(node)[:40]!r} has no place in a condition",
        hint="conditions have columns, numbers, texts, + - * / // %, comparisons, and, or, not, in",
    )

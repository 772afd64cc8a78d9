"""`--set`: dotted keys over a file, strict scalars, errors that name the option."""

from __future__ import annotations

import msgspec
import pytest

from kvplan.errors import InputError
from kvplan.overrides import apply, parse_override
from kvplan.yamlfile import parse


class Parallel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tp_size: int = 1
    name: str | None = None


class Plan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parallel: Parallel = Parallel()
    ratio: float = 0.5
    layers: list[int] = []


def plan(text: str, *overrides: str) -> Plan:
    return apply(parse(text, "p.yaml"), map(parse_override, overrides)).convert(Plan)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("ratio=0.9", Plan(ratio=0.9)),
        ("ratio=1", Plan(ratio=1.0)),
        ("parallel.tp_size=8", Plan(parallel=Parallel(tp_size=8))),
        ("parallel.name='8'", Plan(parallel=Parallel(name="8"))),
        ("parallel.name=a=b", Plan(parallel=Parallel(name="a=b"))),
        ("parallel.name=", Plan()),
        ("parallel={tp_size: 4}", Plan(parallel=Parallel(tp_size=4))),
        ("layers=[1, 2]", Plan(layers=[1, 2])),
        (" ratio = 0.25 ", Plan(ratio=0.25)),
    ],
)
def test_an_override_sets_its_key(override, expected):
    assert plan("ratio: 0.5", override) == expected


def test_a_position_in_a_list_can_be_set():
    assert plan("layers: [1, 2, 3]", "layers.1=9").layers == [1, 9, 3]


def test_the_file_stays_as_it_was():
    document = parse("parallel: {tp_size: 2}", "p.yaml")

    apply(document, [parse_override("parallel.tp_size=8")])

    assert document.data == {"parallel": {"tp_size": 2}}


@pytest.mark.parametrize(
    ("override", "problem", "hint"),
    [
        ("ratio", "needs the form key=value", None),
        ("=3", "'' is not a dotted key", None),
        ("a..b=3", "'a..b' is not a dotted key", None),
        ("ratio=1e-1", "'1e-1' is text", "1.0e-1"),
        ("ratio=yes", "'yes' is a boolean", "true"),
        ("ratio=high", "'ratio' must be a number, got 'high'", None),
        ("ration=1", "unknown field 'ration'", "did you mean 'ratio'?"),
        ("parallel.tp=1", "unknown field 'tp'", "did you mean 'tp_size'?"),
        ("paralel.tp_size=1", "unknown field 'paralel'", "did you mean 'parallel'?"),
        ("parallel.tp_size='8'", "got '8'", "remove the quotes"),
        ("ratio.x=1", "'ratio' is a value, it has no fields", None),
        ("layers.5=1", "'5' is not a position in a list of 1", None),
        ("layers.x=1", "'x' is not a position in a list of 1", None),
        ("layers=[1", "did not find expected", None),
        ("parallel.name=\udcff", "not valid text", None),
    ],
)
def test_a_bad_override_is_refused_and_named(override, problem, hint):
    with pytest.raises(InputError) as caught:
        plan("ratio: 0.5\nlayers: [1]", override)

    assert str(caught.value.where).startswith(f"--set {override}")
    assert problem in caught.value.problem
    assert hint is None or hint in str(caught.value.hint)


def test_a_key_set_twice_is_refused():
    with pytest.raises(InputError, match="'ratio' is set twice"):
        plan("ratio: 0.5", "ratio=0.1", "ratio=0.2")


def test_an_error_in_the_file_still_names_the_file():
    with pytest.raises(InputError) as caught:
        plan("ratio: 0.5\nparallel: {tp_size: many}", "ratio=0.1", "parallel.name=x")

    assert caught.value.where == "p.yaml:2:21"

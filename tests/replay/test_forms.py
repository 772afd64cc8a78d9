"""Pools that are built and not replayed say so, and what to use instead."""

from __future__ import annotations

import pytest

from kvplan.errors import InputError
from kvplan.replay.pools.forms import refuse_other_forms
from tests.pools.launches import HISPARSE, RINGED, SHARDED_LAUNCHES, UNIFIED, UNIFORM, plan_of


@pytest.mark.parametrize("name", [*HISPARSE, *UNIFIED, *SHARDED_LAUNCHES, *RINGED])
def test_forms_without_a_rule_are_refused(name):
    with pytest.raises(InputError, match="such pools are not replayed") as refusal:
        refuse_other_forms(plan_of(name))
    assert "--engine accounting" in str(refusal.value.hint)


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_rows_are_replayed_as_packed_ones(name):
    refuse_other_forms(plan_of(name))

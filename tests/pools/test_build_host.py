"""Host tiers of recorded launches: the sizes and bytes that the engine gives its own."""

from __future__ import annotations

import json

import msgspec
import pytest

from kvplan.conformance import plan_case
from kvplan.errors import DeviceError
from kvplan.pools.build import build
from kvplan.pools.build_host import host_tiers
from kvplan.sizing.capacities import HostPool
from kvplan.sizing.host import size_host
from kvplan.sizing.plan import Plan


def with_host(plan: Plan) -> Plan:
    """The plan of one stage with its host pools before any minimum over stages."""
    stage = plan.stages[0]
    sized = msgspec.structs.replace(stage, host=size_host(stage.stage, stage.pool))
    return msgspec.structs.replace(plan, stages=(sized,))


def test_host_tiers_have_the_engines_sizes_and_bytes(shared):
    lines = (shared / "golden/sizing-host.jsonl").read_text().splitlines()
    records = [record for record in map(json.loads, lines) if "host" in record["answer"]]

    different = {}
    for record in records:
        plan = plan_case(record["case"])
        assert plan is not None
        tiers = host_tiers(build(with_host(plan), "meta"))
        # index keys have a buffer of their own beside what the engine counts here
        built = {
            name: (tier.size, tier.bytes() - tier.bytes_by_name().get("index_key", 0))
            for name, tier in tiers.items()
        }
        wanted = {each["pool"]: (each["size"], each["bytes"]) for each in record["answer"]["host"]}
        if built != wanted:
            different[record["case"]["id"]] = built, wanted

    assert len(records) >= 120
    assert different == {}


def test_a_host_without_room_is_refused_before_anything_is_made(shared):
    line = (shared / "golden/sizing-host.jsonl").read_text().splitlines()[0]
    plan = plan_case(json.loads(line)["case"])
    assert plan is not None
    page = plan.resolved.page_size
    stage = msgspec.structs.replace(
        plan.stages[0], host=(HostPool("kv", 10**12 // page * page, page, 0),)
    )
    vast = msgspec.structs.replace(plan, stages=(stage,), reserves=small_rows(plan))

    with pytest.raises(DeviceError, match=r"cpu has .* GiB free, the pools take"):
        host_tiers(build(vast, "cpu", kv_scale=True))


def small_rows(plan: Plan):
    """Rows of 8 positions: this test is about the host tier."""
    return msgspec.structs.replace(plan.reserves, row_width=8)

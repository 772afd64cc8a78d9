"""The table of server arguments holds together, and reads quickly."""

from __future__ import annotations

import json
import time

from kvplan.guard import server_flags
from kvplan.guard.server_arguments import LISTS, NOUNS, ROLES
from kvplan.guard.server_flags import Found, arguments, find, older, spellings
from kvplan.spec.server import ServerArgs

KINDS = {"flag", "switch", "text", "optional", "json", *LISTS, *NOUNS}


def test_every_argument_has_a_known_kind_and_role():
    for argument in arguments().values():
        assert argument.kind in KINDS, argument
        assert argument.role in ROLES, argument
        assert all(flag.startswith("--") for flag in argument.flags), argument


def test_no_spelling_means_two_arguments():
    flags = [flag for argument in arguments().values() for flag in argument.flags]

    assert len(flags) == len(set(flags))


def test_an_older_flag_is_no_flag_of_today_and_leads_to_one():
    for flag, entry in older().items():
        assert flag not in spellings(), flag
        assert entry.kind in KINDS, entry
        assert entry.field is None or entry.field in arguments(), entry


def test_an_older_choice_is_none_of_today():
    for field, renamed in server_flags.OLDER_CHOICES.items():
        choices = arguments()[field].choices

        assert not set(renamed) & set(choices)
        assert {new for new in renamed.values() if new} <= set(choices)


def test_abbreviations_work_where_they_are_unambiguous():
    tp, fraction, fdfo = (
        arguments()["tp_size"],
        arguments()["mem_fraction_static"],
        arguments()["dllm_fdfo"],
    )

    assert find("--tp") == Found(tp, negated=False)
    assert find("--mem") == Found(fraction, negated=False)
    assert find("--no-dllm-fdfo") == Found(fdfo, negated=True)
    assert find("--pp") is None
    assert find("--nothing") is None


def test_every_argument_of_the_golden_launches_decides_a_plan(shared):
    fields: set[str] = set()
    for path in (shared / "golden").glob("sizing*.jsonl"):
        for line in path.read_text().splitlines():
            fields |= json.loads(line)["case"]["args"].keys()

    assert len(fields) > 25
    assert {field for field in fields if arguments()[field].role != "sizes"} == set()


def test_every_argument_that_a_plan_reads_is_one_that_decides_it():
    """A flag with another role would be listed as ignored, and its rule never run."""
    read = set(ServerArgs.__struct_fields__) & arguments().keys()

    assert len(read) > 80
    assert {field for field in read if arguments()[field].role != "sizes"} == set()


def test_the_table_loads_in_a_few_milliseconds():
    times = []
    for _ in range(5):
        for cached in (arguments, older, spellings):
            cached.cache_clear()
        started = time.perf_counter()
        spellings()
        older()
        times.append(time.perf_counter() - started)

    assert min(times) < 0.02


def test_the_arguments_that_decide_a_plan_are_those_that_a_plan_reads():
    deciding = {name for name, argument in arguments().items() if argument.role == "sizes"}

    assert deciding - {"model_path"} <= set(ServerArgs.__struct_fields__)

"""Times: exact to the nanosecond, odd ones refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.replay.workloads.clock import WallClock, decimal_ns, number_ns
from kvplan.replay.workloads.rows import BadRow

moments = st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1))


def nanoseconds(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000


@given(st.lists(st.tuples(moments, st.integers(0, 9), st.integers(0, 999)), min_size=1, max_size=8))
def test_a_wall_clock_is_read_to_its_last_digit(rows):
    ns = WallClock().ns
    for moment, num_digits, nanos in rows:
        fraction = f"{moment.microsecond:06}{nanos:03}"[:num_digits]
        text = moment.strftime("%Y-%m-%d %H:%M:%S") + (f".{fraction}" if fraction else "")
        whole = nanoseconds(moment.replace(microsecond=0, tzinfo=UTC))

        assert ns(text) == whole + int(fraction.ljust(9, "0"))


@given(
    st.lists(
        st.tuples(moments, st.integers(-14 * 60, 14 * 60), st.sampled_from(["", ":"])),
        min_size=1,
        max_size=8,
    )
)
def test_an_offset_is_taken_off(rows):
    ns = WallClock().ns
    for moment, minutes, colon in rows:
        zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
        text = zoned.isoformat(sep=" ", timespec="microseconds")
        text = text if colon else text[:-3] + text[-2:]

        assert ns(text) == nanoseconds(zoned)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01 00:00:01", 10**9),
        ("1970-01-01T00:00:01.5Z", 1_500_000_000),
        ("1970-01-01 01:00:01+01:00", 10**9),
        ("1970-01-01 00:00:00.9799600", 979_960_000),
    ],
)
def test_the_spellings_of_public_traces_are_read(text, expected):
    assert WallClock().ns(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "now",
            "5",
            "2030-01-07",
            "2030-01-07 09:00",
            "2030-01-07 09:00:0",
            "2030-01-07 09:00:60",
        ),
        *(
            "2030-13-07 09:00:00",
            "2030-01-07 24:00:00",
            "2030-01-07 09:00:00,5",
            "2030-01-07 09:00:00.",
        ),
        *("2030-01-07 09:00:00.1234567890", "2030-01-07 09:00:00.5 ", "2030-01-07 09:00:00.5+1"),
        *(
            "٢٢٣٢-01-07 09:00:00",
            "2030-01-07 09:00:00.²",
            "2030-01-07 09:00:00.٢",
            "2030-01-07 09:00:00.5+99:99",
            "2030-01-07 09:00:00.5-14:01",
            "2030-01-07 09:00:00.5+01:60",
            "1969-12-31 23:59:59",
        ),
    ],
)
def test_what_is_no_date_and_time_is_refused_first_and_later(text):
    with pytest.raises(BadRow):
        WallClock().ns(text)

    ns = WallClock().ns
    before = ns("2030-01-07 09:00:00.5")
    with pytest.raises(BadRow):
        ns(text)

    assert ns("2030-01-07 09:00:00.5") == before


@given(st.decimals(0, 10**9, places=9), st.sampled_from([1, 1000, 10**6, 10**9]))
def test_decimal_seconds_are_exact(value, unit_ns):
    assert decimal_ns(f"{value:f}", unit_ns, "t") == int(Decimal(value) * unit_ns)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("19440110.0", 19440110 * 10**9),
        (" 5 ", 5 * 10**9),
        ("1e3", 10**12),
        ("5.", 5 * 10**9),
        ("0.052", 52_000_000),
    ],
)
def test_decimal_spellings_of_public_traces_are_read(text, expected):
    assert decimal_ns(text, 10**9, "t") == expected


@given(st.floats(0, 10**8, allow_nan=False))
def test_a_json_number_is_rounded_to_the_nanosecond(value):
    assert number_ns(value, 10**9, "t") == pytest.approx(value * 10**9, abs=16)


@pytest.mark.parametrize("value", [-1, -0.5, float("inf"), float("nan"), 10**30, 1e300])
def test_a_json_number_that_is_no_time_is_refused(value):
    with pytest.raises(BadRow):
        number_ns(value, 10**9, "t")

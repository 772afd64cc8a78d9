"""Broken workload files: seeded mutations of the files of ours."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from random import Random

import zstandard

from tests.replay.workloads.helpers import DATA

FILES = [path.read_bytes() for path in sorted(DATA.iterdir())]
NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
WORD = re.compile(rb"[A-Za-z_]+")
HOSTILE = [
    *(b"-1", b"0", b"-0.0", b"1.5", b"1e3", b"1e999", b"NaN", b"nan", b"inf", b"1000000000000"),
    *(b"9" * 400, b"9" * 5000, b'""', b"null", b"true", b"[]", b"{}", b"2030-01-07 09:00:00.5"),
    *(b"[" * 3000, b'{"a":' * 3000, b"\x00", b"\xff\xfe", b"\r", b"\n", b",", b'"', b"\t"),
    *(
        "\u2028".encode(),
        "²".encode(),
        "\u0663".encode(),
        b"&a *a",
        b"\\ud800",
        b"!!python/name:os",
    ),
]


def cut(random: Random, data: bytes) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def flip(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) or 1)
    return data[:place] + bytes([random.randrange(256)]) + data[place + 1 :]


def insert(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + random.choice(HOSTILE) + data[place:]


def remove(random: Random, data: bytes) -> bytes:
    place = random.randrange(len(data) + 1)
    return data[:place] + data[place + random.randrange(40) :]


def change_number(random: Random, data: bytes) -> bytes:
    found = list(NUMBER.finditer(data))
    if not found:
        return data
    one = random.choice(found)
    return data[: one.start()] + random.choice(HOSTILE) + data[one.end() :]


def swap_words(random: Random, data: bytes) -> bytes:
    words = WORD.findall(data) or [b"x"]
    return data.replace(random.choice(words), random.choice([*words, b"x"]), 1)


def shuffle_lines(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    random.shuffle(lines)
    return b"\n".join(lines)


def mix_in_a_line(random: Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    other = random.choice(random.choice(FILES).split(b"\n"))
    lines.insert(random.randrange(len(lines) + 1), other)
    return b"\n".join(lines)


CHANGES: list[Callable[[Random, bytes], bytes]] = [
    *(cut, flip, insert, remove, swap_words, shuffle_lines, mix_in_a_line),
    *[change_number] * 3,
]


def mutated(random: Random) -> bytes:
    """One file of ours with a few changes, sometimes packed, sometimes damaged after packing."""
    data = random.choice(FILES)
    for _ in range(random.choice([1, 1, 1, 2, 4])):
        data = random.choice(CHANGES)(random, data)
    pack = random.choice([None] * 8 + [gzip.compress, zstandard.ZstdCompressor().compress])
    if pack is None:
        return data
    packed = bytes(pack(data))
    return random.choice([cut, flip, insert])(random, packed) if random.random() < 0.5 else packed

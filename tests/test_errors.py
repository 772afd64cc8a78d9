"""Hints for names that are not known."""

from __future__ import annotations

import pytest

from kvplan.errors import MOST_BEGUN, did_you_mean

KNOWN = ["llama-3.1-8b", "llama-3.1-70b", "llama-3.2-1b", "gemma-3"]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Llama-3.1", "did you mean one of: llama-3.1-70b, llama-3.1-8b?"),
        ("llama-3.2", "did you mean 'llama-3.2-1b'?"),
        ("g", "did you mean 'gemma-3'?"),
        ("lama-3.1-8b", "did you mean 'llama-3.1-8b'?"),
        ("", "one of: gemma-3, llama-3.1-70b, llama-3.1-8b, llama-3.2-1b"),
        ("zebra", "one of: gemma-3, llama-3.1-70b, llama-3.1-8b, llama-3.2-1b"),
    ],
)
def test_a_hint_names_what_may_be_meant(name, hint):
    assert did_you_mean(name, KNOWN) == hint


def test_a_beginning_of_many_names_gets_the_nearest():
    many = [f"model-{number}b" for number in range(MOST_BEGUN + 1)]

    assert did_you_mean("model-", many).startswith("did you mean 'model-")

"""Token ids in the engine's own logs, where a log level kept them whole."""

from __future__ import annotations

from typing import Any

import msgspec

from kvplan.replay.requests import TokenIds

IDS = msgspec.json.Decoder(tuple[int, ...])
LEFT_OUT = msgspec.Raw(b"null")
# the engine reserves all of its new tokens for such a request, whatever the ratio
IGNORES_EOS = "ignores eos, which is not modelled: read as any other"


class Sampling(msgspec.Struct, frozen=True):
    max_new_tokens: int | None = None
    ignore_eos: Any = None


class Parameters(msgspec.Struct, frozen=True):
    """What the engine logs of a request that matters here."""

    rid: str | list[str] | None = None
    session_id: str | None = None
    input_ids: msgspec.Raw = LEFT_OUT
    sampling_params: Sampling | list[Any] | None = None

    @property
    def max_new(self) -> int | None:
        """What the client asked for, None where the log level left it out."""
        sampling = self.sampling_params
        asked = sampling.max_new_tokens if isinstance(sampling, Sampling) else None
        return asked if asked is not None and asked >= 0 else None

    @property
    def ignores_eos(self) -> bool:
        """Whether the client asked for an answer of just so many tokens."""
        return isinstance(self.sampling_params, Sampling) and bool(self.sampling_params.ignore_eos)


def token_identity(
    input_ids: msgspec.Raw, input_len: int, output_ids: msgspec.Raw, output_len: int
) -> TokenIds | None:
    """The tokens themselves; None where the log left them out or cut them."""
    prompt = all_tokens(input_ids, input_len)
    if not prompt:
        return None
    return TokenIds(prompt=prompt, output=all_tokens(output_ids, output_len) or ())


def all_tokens(ids: msgspec.Raw, length: int) -> tuple[int, ...] | None:
    """Ids as a tuple, None unless there are exactly `length` whole numbers."""
    try:
        tokens = IDS.decode(ids)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return tokens if len(tokens) == length else None

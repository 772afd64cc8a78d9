"""Options on a workload that is replayed: how it is read, how much of it, what it does not record."""

from typing import Annotated

import typer

Format = Annotated[
    str | None, typer.Option("--format", help="Format of the trace, instead of detecting it.")
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Count rows that cannot be read and go on.")
]
BlockSize = Annotated[
    int | None, typer.Option("--block-size", min=1, help="Tokens of one hashed block.")
]
PrefixOnly = Annotated[
    bool, typer.Option("--prefix-only", help="Hash ids cover less than the prompts on purpose.")
]
TimeUnit = Annotated[
    str | None, typer.Option("--time-unit", help="Unit of the times: s, ms, us or ns.")
]
RequestRate = Annotated[
    float | None,
    typer.Option("--request-rate", help="Arrivals a second where the file has none; inf: at once."),
]
OutputLen = Annotated[
    int | None, typer.Option("--output-len", help="Answer length where the file has none.")
]
Seed = Annotated[int | None, typer.Option("--seed", help="Seed of drawn arrivals; default 0.")]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="Replay the first so many requests.")
]
MaxNew = Annotated[
    str,
    typer.Option("--max-new", metavar="exact|context|N", help="New tokens that clients ask for."),
]
Tpot = Annotated[float, typer.Option("--tpot", help="Milliseconds of a decode step.")]
PrefillRate = Annotated[
    float, typer.Option("--prefill-rate", help="Prompt tokens computed a second.")
]
AcceptLen = Annotated[
    float | None,
    typer.Option("--accept-len", help="Tokens that a step with drafts brings; default 2."),
]

"""What a replay had to assume, one sentence each, with the flag that changes it."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.replay.assumptions import Assumptions
from kvplan.replay.server import Server
from kvplan.replay.workloads.options import ReadOptions
from kvplan.replay.workloads.summary import WorkloadSummary
from kvplan.sizing.plan import Plan


def assumed(
    plan: Plan,
    server: Server,
    assumptions: Assumptions,
    workload: WorkloadSummary,
    *,
    hashed: bool,
) -> tuple[str, ...]:
    """Assumptions about clients, steps and sharing, then what is not modelled of this launch."""
    return (
        *client_notes(assumptions, workload.with_max_new, workload.input.count),
        *draft_notes(server),
        *sharing_notes(hashed=hashed),
        *launch_notes(plan),
    )


def assumed_of_operations(plan: Plan) -> tuple[str, ...]:
    """What is not modelled of a launch whose operations are played without clients or steps."""
    return tuple(launch_notes(plan))


def client_notes(assumptions: Assumptions, said: int, num_requests: int) -> Iterator[str]:
    """Wishes, which so many of the requests have of their own, and step times."""
    wish = assumptions.max_new
    if said:
        yield f"{said:,} requests ask for the new tokens that the workload says, whatever --max-new is"
    if said < num_requests:
        rest = "clients" if not said else "the others"
        if wish == "exact":
            yield f"{rest} ask for exactly the tokens they got (--max-new)"
        elif wish == "context":
            yield f"{rest} ask for as much as the context holds (--max-new)"
        else:
            yield f"{rest} ask for {wish:,} new tokens (--max-new)"
    yield f"a decode step takes {assumptions.decode_ns / 1e6:g} ms (--tpot)"
    yield f"prefill computes {assumptions.prefill_tokens_per_s:,} tokens a second (--prefill-rate)"


def supplied_notes(options: ReadOptions) -> Iterator[str]:
    """What the user said of the workload that its file does not."""
    rate = options.request_rate
    if rate == float("inf"):
        yield "all requests arrive at once (--request-rate)"
    elif rate is not None:
        yield f"requests arrive at {rate:g} a second, drawn with seed {options.drawn_seed} (--request-rate)"
    if options.output_len is not None:
        yield f"every answer has {options.output_len:,} tokens (--output-len)"
    if options.time_unit is not None:
        yield f"times are in {options.time_unit} (--time-unit)"
    if options.block_size is not None:
        yield f"a hashed block has {options.block_size:,} tokens (--block-size)"
    if options.prefix_only:
        yield "hash ids cover less than the prompts on purpose (--prefix-only)"


def sharing_notes(*, hashed: bool) -> Iterator[str]:
    """What is known of shared prefixes."""
    if hashed:
        yield "answers are not hashed: prefix hits are a lower bound"


def draft_notes(server: Server) -> Iterator[str]:
    """What drafts bring."""
    if server.speculation is not None:
        brought, taken = server.speculation.accept_len, server.speculation.alloc_len
        yield f"a step with drafts brings {brought:g} tokens of the {taken:,} it takes (--accept-len)"


def launch_notes(plan: Plan) -> Iterator[str]:
    """Parts of this launch that the scheduling model leaves out."""
    resolved, widths = plan.resolved, plan.resolved.widths
    if (ranks := widths.dp_ranks) > 1:
        yield f"one of {ranks} data-parallel ranks, each of which gets one request in {ranks} as they come"
    if widths.pp > 1:
        yield "pipeline stages run one batch at a time: micro-batches are not modelled"
    if resolved.hicache.enabled:
        yield "the host tier is not modelled"
    if resolved.hisparse is not None:
        yield "HiSparse is replayed without its swaps: a request's tokens stay on the device"
    if resolved.unified_memory:
        yield "the unified pool is replayed as two pools of fixed size"
    if resolved.kv_shards > 1:
        yield f"one of {resolved.kv_shards} ranks that share the pages: its own tokens alone are replayed"
    if resolved.request_ring is not None:
        yield "the rings of the request rows are replayed as a sliding pool"
    if resolved.disaggregation_mode != "null":
        yield f"this {resolved.disaggregation_mode} node is replayed as one that serves both phases"

"""Causes of limits, sizes and leftovers that are not the plan's."""

from __future__ import annotations

from kvplan.guard.cause_case import Case
from kvplan.guard.log_rows import Row
from kvplan.sizing.layout import FP4_BLOCK
from kvplan.sizing.tensors import stage_tensors
from kvplan.units import GIB

# figure of the log -> the argument that sets it
FIELDS = {
    "max_running_requests": "max_running_requests",
    "chunked_prefill_size": "chunked_prefill_size",
    "max_prefill_tokens": "max_prefill_tokens",
    "context_len": "context_length",
    "host_tokens": "hicache_size",
    "host_gb": "hicache_size",
}
ALMOST_GIB = 0.5
LEAST_ROWS_GIB = 0.1  # below that nobody asks where it went


def capped_by_state(case: Case, row: Row) -> str | None:
    """The state cache caps the requests, by as many slots a request as its strategy needs."""
    del row
    per_request, event = case.log.value("state_slots_per_request"), case.event("capped_by_state")
    state = case.layout.stages[0].pool.budget.state if case.layout else None
    if event is None or per_request is None or state is None:
        return None
    if per_request == state.slots_per_request:
        return (
            f"the state cache caps the requests (line {event.line}): raise --max-mamba-cache-size"
        )
    return (
        f"the log's strategy takes {per_request} state slots a request, the plan's {state.slots_per_request}:"
        " --mamba-radix-cache-strategy"
    )


def shared_by_dp(case: Case, row: Row) -> str | None:
    """A figure of one DP rank beside that of all."""
    shares = case.sizing.resolved.widths.attn_dp
    for ranks in {shares, case.launch.args.dp_size or 1} - {1}:
        if ranks * row.observed == row.predicted or ranks * row.predicted == row.observed:
            return f"one figure is of one of the {ranks} DP ranks, the other of all of them"
    return None


def other_default(case: Case, row: Row) -> str | None:
    """The launch leaves it open, and versions differ in what they take then."""
    field = FIELDS.get(row.name)
    if field is None or case.gives(field):
        return None
    if row.name == "max_running_requests" and row.observed == row.predicted + 1:
        return "versions up to 0.4.6 counted one request more"
    flag = "--" + field.replace("_", "-")
    return f"another version's default, or an argument that the launch does not show: {flag} {row.observed}"


def other_argument(case: Case, row: Row) -> str | None:
    """The launch sets it, and the log's server was started otherwise."""
    field = FIELDS.get(row.name)
    if field is None or not case.gives(field):
        return None
    flag = "--" + field.replace("_", "-")
    return f"the log's server was started with another {flag}"


def page_size(case: Case, row: Row) -> str | None:
    """The log's tokens are no whole pages of the plan's size."""
    del case
    return (
        f"the log's tokens are no whole pages of {row.predicted}, its pages hold at most {row.observed}:"
        " --page-size, or another attention back end"
    )


def index_keys_left_out(case: Case, row: Row) -> str | None:
    """Some versions print the latents alone."""
    tensors = stage_tensors(case.layout, case.layout.stages[0]) if case.layout else ()
    keys = sum(tensor.num_bytes for tensor in tensors if tensor.name == "index_key") / GIB
    if not keys or abs(row.predicted - keys - row.observed) > row.figure.rounding:
        return None
    return f"the log's figure leaves out the index keys of {keys:.2f} GiB"


def printed_cell(case: Case, row: Row) -> str | None:
    """DeepSeek-V4's layout changed from version to version."""
    del case, row
    return "a version with another layout of this model: the log's own figure counts"


def follows_requests(case: Case, row: Row) -> str | None:
    """Compression rings are sized by the running requests."""
    figure = case.log.get("max_running_requests")
    if case.layout is None or figure is None or figure.value == case.layout.max_running_requests:
        return None
    del row
    return f"the rings follow max_running_requests, {figure.value} in the log"


def fp4_scales(case: Case, row: Row) -> str | None:
    """Some versions print the FP4 data without its scales."""
    if case.sizing.resolved.kv_recipe not in ("nvfp4", "fp4_mx_block16"):
        return None
    data = row.predicted * FP4_BLOCK / (FP4_BLOCK + 2)
    if abs(data - row.observed) > 2 * row.figure.rounding:
        return None
    return "the log's figure is the FP4 data alone, without its scales"


def checkpoint(case: Case, row: Row) -> str | None:
    """Weights are an estimate; the log's own figure is used."""
    del case
    way = "more" if row.observed > row.high else "less"
    return f"{way} than the published checkpoint: another quantisation, a part kept elsewhere, or leftovers of loading"


def request_rows(case: Case, row: Row) -> str | None:
    """req_to_token comes on top of the budget."""
    layout = case.layout
    if layout is None:
        return None
    rows_gib = layout.rows * layout.reserves.row_width * 4 / GIB
    if rows_gib < LEAST_ROWS_GIB or row.observed < row.low:
        return None
    if row.within:
        return f"req_to_token takes {rows_gib:.2f} GiB outside the budget"
    if row.difference > rows_gib + ALMOST_GIB:
        return None
    return f"req_to_token of {rows_gib:.2f} GiB is planned: fewer requests, or a shorter context, in the log"


def beside_the_pools(case: Case, row: Row) -> str | None:
    """More is gone than the pools take."""
    del case
    if row.observed >= row.low:
        return None
    return f"{row.predicted - row.observed:.2f} GiB more are gone: attention workspaces, buffers, adapters"

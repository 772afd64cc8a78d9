"""What a prefill or decode node of a disaggregated pair changes."""

from __future__ import annotations

from kvplan.errors import CombinationError
from kvplan.sizing.provenance import Origin, given
from kvplan.sizing.resolve.parallel import Layout
from kvplan.spec.server import ServerArgs

SMALL_BATCH = 32  # running requests of one DP rank up to which a decode node doubles its rows

RADIX_ON = Origin("default", "radix-cache")
RADIX_OFF_DECODE = Origin("default", "decode-node", "a decode node caches no prefixes")
RADIX_ON_DECODE = Origin("derived", "decode-node", "disaggregation_decode_enable_radix_cache")


def radix_cache(args: ServerArgs) -> tuple[bool, Origin]:
    """Whether prefixes are cached: the launch's word, but a decode node needs its own switch."""
    if args.disaggregation_mode == "decode":
        if args.disaggregation_decode_enable_radix_cache:
            check_decode_radix(args)
            return True, RADIX_ON_DECODE
        return False, RADIX_OFF_DECODE
    return not args.disable_radix_cache, given(args.disable_radix_cache, default=RADIX_ON)


def check_decode_radix(args: ServerArgs) -> None:
    """Refuse what the decode node's radix cache does not go with."""
    if args.enable_hisparse:
        raise CombinationError("the decode radix cache and enable_hisparse exclude each other")
    if args.disaggregation_transfer_backend == "fake":
        raise CombinationError("the decode radix cache does not go with transfer backend 'fake'")
    if args.speculative_algorithm not in (None, "DSPARK", "EAGLE", "EAGLE3", "NEXTN"):
        raise CombinationError(
            f"the decode radix cache does not go with {args.speculative_algorithm}",
            hint="EAGLE, EAGLE3, NEXTN and DSPARK work",
        )


def decode_extra_slots(args: ServerArgs, layout: Layout) -> tuple[int, Origin]:
    """Rows a decode node keeps for requests whose prefill is still on its way."""
    if args.disaggregation_mode != "decode":
        return 0, Origin("default", "decode-node", "only a decode node has any")
    if args.disaggregation_decode_extra_slots is not None:
        return args.disaggregation_decode_extra_slots, given(1, default=RADIX_ON)
    if args.max_running_requests is None:
        return 0, Origin("default", "decode-node", "no max_running_requests to double")
    per_rank = max(1, args.max_running_requests // layout.dp_ranks)
    if per_rank > SMALL_BATCH:
        return 0, Origin("default", "decode-node", "{0} requests a rank > 32", (per_rank,))
    return per_rank * 2, Origin("default", "decode-node", "2 × {0} requests a rank", (per_rank,))


def check_roles(args: ServerArgs) -> None:
    """Refuse transfer backends that do not serve the role."""
    backend = args.disaggregation_transfer_backend or "mooncake"
    if args.disaggregation_mode == "prefill" and backend == "fake":
        raise CombinationError("transfer backend 'fake' cannot serve a prefill node")
    if args.disaggregation_decode_retraction_backup == "host_pool":
        if args.disaggregation_mode != "decode":
            raise CombinationError("retraction backup 'host_pool' belongs to a decode node")
        if (args.dcp_size or 1) > 1:
            raise CombinationError("retraction backup 'host_pool' does not go with dcp_size > 1")

"""`kvplan trace` as text: the verdict, occupancy over time, the pools, what became of requests."""

from typing import Any

from kvplan.report.replay import shares
from kvplan.words import printable

from .render import table

BARS = " ▁▂▃▄▅▆▇█"
BAR_WIDTH = 60
STYLES = {"held": "green", "broken": "bold red", "not checked": "dim"}


def show_trace(report: dict[str, Any], out: Any) -> None:
    """Print one report to a rich console."""
    verdict = report["verdict"]
    out.print(verdict["text"], style="bold green" if verdict["passes"] else "bold red")
    for remedy in report["remedies"]:
        out.print(f"  raise {remedy['name']}: {remedy['flag']} → {remedy['value']:,}")
    out.print(subject(report))
    out.print()
    show_occupancy(report, out)
    out.print(pools_table(report))
    out.print()
    for title, text in figures(report):
        out.print(f"  {title:<11} {text}")
    show_checks(report, out)
    show_notes(report, out)


def subject(report: dict[str, Any]) -> str:
    """What was replayed, on what."""
    launch, steps = report["launch"], report["steps"]
    device = f" on {launch['device']}" if launch["device"] else ""
    scale = ", one small layer of each kind" if launch["kv_scale"] else ""
    ranks = f", {launch['ranks']} ranks" if launch["ranks"] > 1 else ""
    content = f"{steps['total']:,} operations"
    if report["workload"] is not None:
        arrived = counted(report["requests"]["arrived"], "request")
        content = f"{arrived} over {steps['end_s']:,.1f} s"
    return (
        f"{launch['model']} on {launch['gpu']} · {content}"
        f" · {launch['engine']} engine{device}{scale}{ranks}"
    )


def show_occupancy(report: dict[str, Any], out: Any) -> None:
    """The used share of the first pool over time, a bar a column."""
    pool, line = report["pools"][0], report["timeline"]
    if not line["used"]:
        return
    parts = shares(line, pool["capacity"], BAR_WIDTH)
    bars = "".join(BARS[min(8, -int(-share * 8 // 1))] for share in parts)
    out.print(f"  {pool['name']} used |{bars}| of {pool['capacity']:,}")
    out.print()


def pools_table(report: dict[str, Any]) -> Any:
    """Every pool with its peak and percentiles of the time."""
    rows = [
        (
            f"  {pool['name']}",
            f"{pool['capacity']:,}",
            f"{pool['peak']:,}",
            f"{pool['share']:.1%}",
            f"{pool['p50']:,}",
            f"{pool['p95']:,}",
            f"{pool['p99']:,}",
        )
        for pool in report["pools"]
    ]
    headers = ("  pool", "size", "peak", "share", "p50", "p95", "p99")
    return table(headers, rows, right=(1, 2, 3, 4, 5, 6))


def figures(report: dict[str, Any]) -> list[tuple[str, str]]:
    """The other figures, a line each."""
    lines = [] if report["workload"] is None else schedule_figures(report)
    lines += [(each["operation"], latency_line(each)) for each in report["speed"]["allocator"]]
    compiled = report["speed"]["compiled_kernels"]
    if compiled:
        counts = ", ".join(f"{name} {count}" for name, count in compiled.items() if count)
        lines.append(("kernels", f"compiled: {counts or 'none'}"))
    speed = report["speed"]
    rate = f", {speed['events_per_s']:,} events a second" if speed["events_per_s"] else ""
    return [*lines, ("speed", f"{speed['wall_s']:,.2f} s{rate}")]


def schedule_figures(report: dict[str, Any]) -> list[tuple[str, str]]:
    """What became of requests, their prefixes and pages, and the steps."""
    lines = [
        ("requests", requests_line(report["requests"])),
        ("queue", queue_line(report["queue"])),
    ]
    if report["launch"]["server"]["prefix_cache"]:
        lines.append(("prefix", prefix_line(report["prefix"])))
    steps = report["steps"]
    counts = f"{steps['total']:,}: {steps['prefill']:,} prefill, {steps['decode']:,} decode"
    if blank := steps["total"] - steps["prefill"] - steps["decode"]:
        counts += f", {blank:,} that launched nothing"
    if report["pages"]["page_size"] > 1:
        lines.append(("pages", pages_line(report["pages"])))
    return [*lines, ("steps", counts)]


def requests_line(requests: dict[str, Any]) -> str:
    """What became of the requests, with the reasons of rejections."""
    line = (
        f"{requests['finished']:,} finished · {counted(requests['retractions'], 'retraction')}"
        f" · {requests['rejected']:,} rejected · {requests['clipped']:,} clipped"
    )
    for reason, count in requests["rejections"].items():
        line += f"\n              {count:,} × {reason}"
    if requests["aborted"]:
        line += f"\n              {requests['aborted']:,} × alone in the pool and still too long"
    return line


def queue_line(queue: dict[str, Any]) -> str:
    waited = queue["wait_s"]
    shown = " · ".join(f"{name} {waited[name]:,.3f} s" for name in ("p50", "p95", "p99", "max"))
    return (
        f"waited {shown}; at most {queue['peak_waiting']:,} waiting,"
        f" {queue['peak_running']:,} running"
    )


def prefix_line(prefix: dict[str, Any]) -> str:
    line = (
        f"hit rate {prefix['hit_rate']:.1%}: {prefix['hit_tokens']:,} tokens cached,"
        f" {prefix['computed_tokens']:,} computed; {prefix['evicted_tokens']:,} evicted"
    )
    if prefix["recomputed_tokens"]:
        line += f"; {prefix['recomputed_tokens']:,} computed again after retractions"
    return line


def pages_line(pages: dict[str, Any]) -> str:
    return (
        f"of {pages['page_size']:,} tokens: {pages['wasted_tokens_per_request']:,.1f} unused a"
        f" request at its end, about {pages['peak_wasted_tokens']:,} at once at most"
    )


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def latency_line(latency: dict[str, Any]) -> str:
    return (
        f"p50 {latency['p50_us']:,.1f} µs · p99 {latency['p99_us']:,.1f} µs"
        f" · {latency['calls_per_s']:,} calls and {latency['tokens_per_s']:,} tokens a second"
    )


def show_checks(report: dict[str, Any], out: Any) -> None:
    """What was verified; one line where nothing was."""
    checks = report["verification"]
    if checks and all(check["state"] == "not checked" for check in checks):
        out.print(f"  verified    nothing: {checks[0]['text']}")
        return
    for check in checks:
        text = f"  {check['state']:<11} {check['name']}: {check['text']}"
        out.print(text, style=STYLES[check["state"]])
    if report["violation"] and report["violation"]["shortest_failing_operations"]:
        count = report["violation"]["shortest_failing_operations"]
        out.print(f"  shrunk      to the first {counted(count, 'operation')}")


def show_notes(report: dict[str, Any], out: Any) -> None:
    """How the workload was read, warnings, and what was assumed."""
    out.print(f"  workload    {printable(report['source'])}: {report['detected']}")
    if report["workload"] is not None:
        out.print(f"  rows        {rows_line(report['workload'])}")
        for note in report["workload"]["notes"]:
            out.print(f"  note        {note}")
    for warning in report["warnings"]:
        out.print(f"  warning: {warning}", style="yellow")
    if report["assumed"]:
        out.print(f"  assumed: {'; '.join(report['assumed'])}")


def rows_line(workload: dict[str, Any]) -> str:
    """What became of every row: read is kept and dropped together."""
    parts = [f"{workload['read']:,} read", f"{workload['kept']:,} kept"]
    parts += [f"{count:,} dropped ({why})" for why, count in workload["dropped"].items()]
    parts += [f"{count:,} kept with a remark ({why})" for why, count in workload["flagged"].items()]
    return " · ".join(parts)

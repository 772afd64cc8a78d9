"""`kvplan size` as text: the verdict, the card as a bar, what binds, where the memory goes."""

from __future__ import annotations

from typing import Any

from .render import gib, table

BAR_WIDTH = 72
COLORS = ("cyan", "blue", "green", "magenta", "yellow", "red", "white")


def show_size(report: dict[str, Any], out: Any) -> None:
    """Print one report of a plan or a refusal to a rich console."""
    starts = report["verdict"]["starts"]
    out.print(report["verdict"]["text"], style="bold green" if starts else "bold red")
    if not starts:
        show_cures(report, out)
    if "pool" in report:
        out.print()
        show_bar(report["ledger"], out)
        show_limits(report, out)
        out.print()
        out.print(ledger_table(report["ledger"]))
        show_host(report, out)
        show_stages(report, out)
    show_notes(report, out)


def show_cures(report: dict[str, Any], out: Any) -> None:
    """Where it is short, and the value of each flag that would start it."""
    shortage = report.get("shortage", {})
    if shortage.get("stage"):
        out.print(f"  on pipeline stage {shortage['stage']}")
    if shortage.get("engine_suggests_mem_fraction_static") is not None:
        fraction = shortage["engine_suggests_mem_fraction_static"]
        words = f"the engine would say: raise --mem-fraction-static above {fraction:.3f}"
        out.print(f"  {words}{', more than there is' if fraction >= 1 else ''}")
    for cure in report["cures"]:
        out.print(f"  try {cure['text']}")
    if report["otherwise"]:
        out.print(f"  {report['otherwise']}")


def show_bar(ledger: dict[str, Any], out: Any) -> None:
    """The whole card as one stacked bar; each use is as wide as its share."""
    from rich.text import Text

    total = ledger["total_bytes"]
    bar = Text(f"  {total / 2**30:.1f} GiB ")
    for index, (name, num_bytes) in enumerate(segments(ledger)):
        width = max(1, round(num_bytes / total * BAR_WIDTH))
        label = f"{name} {num_bytes / 2**30:.1f}"
        text = label if len(label) <= width else name[:width]
        bar.append("|")
        bar.append(text.ljust(width), style=f"reverse {COLORS[index % len(COLORS)]}")
    bar.append("|")
    out.print(bar)
    out.print()


def segments(ledger: dict[str, Any]) -> list[tuple[str, int]]:
    """Uses wider than a half percent of the card; the rest in one segment."""
    total = ledger["total_bytes"]
    shown = [(e["name"], e["bytes"]) for e in ledger["entries"] if e["bytes"] * 200 > total]
    rest = total - sum(num_bytes for _, num_bytes in shown)
    return [*shown, ("rest", rest)] if rest * 200 > total else shown


def show_limits(report: dict[str, Any], out: Any) -> None:
    """Each bound, the one that binds marked; below them, what would raise those."""
    limits = (*report["limits"]["tokens"], *report["limits"]["requests"])
    rows = [
        (f"{'*' if each['binds'] else ' '} {each['name']}", f"{each['value']:,}", each["bound_by"])
        for each in limits
    ]
    rows.append(("  row width", *row_width(report)))
    rows.append(("  per request", *per_request(report)))
    rows += [
        (f"  requests at {each['context_tokens']:,}", f"{each['requests']:,}", each["bound_by"])
        for each in report["capacity"]
    ]
    out.print(table(("  limit (* binds)", "value", "bound by"), rows, right=(1,)))
    for limit in limits:
        for remedy in limit["remedies"]:
            out.print(f"  raise {limit['name']}: {remedy['flag']} → {remedy['value']:,}")


def row_width(report: dict[str, Any]) -> tuple[str, str]:
    width, context = report["reserves"]["row_width"], report["resolved"]["context_length"]["value"]
    return f"{width:,}", f"context {context:,} + {width - context}"


def per_request(report: dict[str, Any]) -> tuple[str, str]:
    costs = report["per_request"]
    return (
        f"{costs['bytes_per_token']:,.6g} B",
        f"a token, plus {gib(costs['fixed_bytes']) if costs['fixed_bytes'] else '0 B'} fixed",
    )


def ledger_table(ledger: dict[str, Any]) -> Any:
    """Every use of the card; the last line is the card itself."""
    total = ledger["total_bytes"]
    rows = [
        (f"  {e['name']}", gib(e["bytes"]), f"{e['bytes'] / total:.1%}", e["note"])
        for e in ledger["entries"]
        if e["bytes"]
    ]
    rows.append(("  the card", gib(total), "100.0%", ""))
    return table(("  memory", "size", "share", ""), rows, right=(1, 2))


def show_host(report: dict[str, Any], out: Any) -> None:
    """Host pools of one rank: of the hierarchical cache, or for retracted requests."""
    for title, key in (("host", "host"), ("host, for retracted requests,", "retraction_backup")):
        for pool in report[key]:
            size = f"{pool['bytes'] / 1e9:.2f} GB a rank" if pool["bytes"] else "sized by pages"
            out.print(f"  {title} {pool['pool']}: {pool['size']:,} slots, {size}")


def show_stages(report: dict[str, Any], out: Any) -> None:
    """With --all-ranks: what each pipeline stage would hold alone."""
    if "stages" not in report:
        return
    rows = [
        (
            f"  {stage['pp_rank']}",
            f"{stage['layers'][0]}–{stage['layers'][1] - 1}",
            f"{stage['budget_gib']:.2f}",
            f"{stage['pool']['cell_size']:,.6g}",
            f"{stage['profiled_tokens']:,}",
        )
        for stage in report["stages"]
    ]
    headers = ("  stage", "layers", "budget GiB", "B a token", "tokens alone")
    out.print()
    out.print(table(headers, rows, right=(2, 3, 4)))


def show_notes(report: dict[str, Any], out: Any) -> None:
    """Warnings, arguments without a say, then what was assumed, then what is not modelled."""
    for warning in report.get("warnings", ()):
        out.print(f"  warning: {warning}", style="yellow")
    if report.get("ignored"):
        out.print(f"  no say in sizing: {', '.join(report['ignored'])}")
    for title in ("assumed", "not_modelled"):
        notes = report.get(title)
        if notes:
            out.print(f"  {title.replace('_', ' ')}: {'; '.join(notes)}")

"""`kvplan presets`: shipped presets, own files against their types, config.json to YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kvplan import catalog, yamlfile
from kvplan.catalog import Kind
from kvplan.errors import InputError, KvplanError, did_you_mean
from kvplan.presets_import import preset_text
from kvplan.report.presets import SCHEMA, list_report

from .render import console, table, write_file, write_json

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)

KindOption = Annotated[
    str | None, typer.Option("--kind", help="model, gpu, parallel or speculative.")
]
MOST = 1 << 60  # of a number of bytes or parameters
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
# a field that only one kind has
TELLING_FIELDS: dict[str, Kind] = {
    "architecture": "model",
    "memory_mib": "gpu",
    "speculative_algorithm": "speculative",
    "tp_size": "parallel",
}


@app.callback()
def presets() -> None:
    """Shipped presets: list and show them, import a config.json, validate files."""


@app.command("list")
def list_presets(
    kind: KindOption = None,
    json: Json = False,
    no_color: Annotated[bool, typer.Option("--no-color", help="Plain text.")] = False,
) -> None:
    """List the shipped presets."""
    report = list_report((kind_of(kind),) if kind else tuple(catalog.FOLDERS))
    if json:
        write_json(report)
        return
    rows = [(row["kind"], row["name"], row["summary"]) for row in report["presets"]]
    console(color=not no_color).print(table(("kind", "name", "what it is"), rows))


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="Preset, HF id, YAML, config.json or folder.")],
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Show a preset as YAML; a config.json is shown as the preset that it would be."""
    chosen = kind_of(kind) if kind else kind_of_name(name)
    spec: Any = (
        catalog.load_model(name)
        if chosen == "model"
        else catalog.load_preset(chosen, name, catalog.TYPES[chosen])
    )
    if json:
        write_json({"schema": SCHEMA, "kind": chosen, "preset": spec})
    else:
        print(preset_text(spec), end="")


@app.command("import")
def import_config(
    config: Annotated[Path, typer.Argument(help="config.json, or the folder that holds it.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the preset.")] = None,
    hf_id: Annotated[str | None, typer.Option("--hf-id", help="owner/name on the hub.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="Where it comes from.")] = None,
    params: Annotated[
        int | None,
        typer.Option("--params", min=1, max=MOST, help="Published parameter count."),
    ] = None,
    total_bytes: Annotated[
        int | None,
        typer.Option("--total-bytes", min=1, max=MOST, help="Published bytes of the weights."),
    ] = None,
    weight_bits: Annotated[
        int | None,
        typer.Option(
            "--weight-bits", min=2, max=16, help="Bits a weight, where the config says none."
        ),
    ] = None,
    json: Json = False,
    output: Annotated[Path | None, typer.Option("--output", help="Write a .yaml file.")] = None,
) -> None:
    """Turn a config.json into a preset."""
    model = catalog.load_config(
        config,
        name=name,
        hf_id=hf_id,
        source=source,
        num_params=params,
        total_bytes=total_bytes,
        weight_bits=weight_bits,
    )
    if output is not None:
        write_file(output, preset_text(model), suffixes=(".yaml", ".yml"))
    if json:
        write_json({"schema": SCHEMA, "kind": "model", "preset": model})
    elif output is None:
        print(preset_text(model), end="")


@app.command()
def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(help="YAML files; without any, the shipped ones.")
    ] = None,
    kind: KindOption = None,
    json: Json = False,
) -> None:
    """Check preset files against their types; exit 2 if one is refused."""
    shipped = [(file, each) for each in catalog.FOLDERS for file in catalog.preset_files(each)]
    asked = [(file, kind_of(kind) if kind else None) for file in files or ()]
    results = [checked(file, each) for file, each in asked or sorted(shipped)]
    if json:
        write_json({"schema": SCHEMA, "files": results})
    else:
        for result in results:
            print(result["problem"] or f"{result['file']}: valid {result['kind']}")
    raise typer.Exit(2 if any(result["problem"] for result in results) else 0)


def checked(file: Path, kind: Kind | None) -> dict[str, Any]:
    """One file's verdict: its kind, and the problem with its hint or None."""
    try:
        document = yamlfile.load(file)
        kind = kind or kind_of_fields(document.data, str(file))
        document.convert(catalog.TYPES[kind])
    except KvplanError as error:
        hint = f" ({error.hint})" if error.hint else ""
        return {"file": str(file), "kind": kind, "problem": f"{error}{hint}"}
    return {"file": str(file), "kind": kind, "problem": None}


def kind_of_fields(data: Any, where: str) -> Kind:
    """The kind that a file's fields tell."""
    for field, kind in TELLING_FIELDS.items():
        if isinstance(data, dict) and field in data:
            return kind
    raise InputError(
        "the fields do not tell what kind of preset this is",
        where=where,
        hint=f"it has none of {', '.join(TELLING_FIELDS)}; or give --kind",
    )


def kind_of_name(name: str) -> Kind:
    """The kind whose shipped presets have the name; YAML files tell theirs, others are models."""
    if Path(name).suffix in catalog.YAML_SUFFIXES:
        return kind_of_fields(yamlfile.load(Path(name)).data, name)
    found: list[Kind] = [kind for kind in catalog.FOLDERS if catalog.preset_file(kind, name)]
    return found[0] if found else "model"


def kind_of(name: str) -> Kind:
    """A kind as it is spelled on the command line."""
    for kind in catalog.FOLDERS:
        if name in (kind, f"{kind}s"):
            return kind
    raise InputError(f"unknown kind '{name}'", hint=did_you_mean(name, catalog.FOLDERS))

"""The shipped presets as one file, compiled from their YAML so that start-up parses none.

`python -m kvplan.shipped` writes it anew; a test holds it equal to the YAML files.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

COMPILED = Path(__file__).parent / "data" / "presets.json"
HF_IDS = r"^(?:hf_id: (\S+)|aliases: \[(.*)\])$"


class Shipped(msgspec.Struct, frozen=True):
    """Every preset by kind and name, not yet decoded; model names by their HF ids."""

    presets: dict[str, dict[str, msgspec.Raw]]
    hf_ids: dict[str, str]


@cache
def shipped() -> Shipped:
    """The compiled presets."""
    return msgspec.json.decode(COMPILED.read_bytes(), type=Shipped)


def compiled() -> bytes:
    """The same from the YAML files: kinds, names and keys in order."""
    from kvplan import catalog, yamlfile

    presets = {
        kind: {path.stem: yamlfile.load(path).data for path in catalog.preset_files(kind)}
        for kind in catalog.FOLDERS
    }
    hf_ids: dict[str, str] = {}
    for path in sorted(catalog.preset_files("model")):
        for hf_id, aliases in re.findall(HF_IDS, path.read_text("utf-8"), re.MULTILINE):
            for name in (hf_id, *aliases.split(", ")):
                if name:
                    hf_ids.setdefault(name, path.stem)
    document = {"presets": presets, "hf_ids": hf_ids}
    return msgspec.json.encode(document, order="sorted") + b"\n"


if __name__ == "__main__":
    COMPILED.write_bytes(compiled())

"""Which files the settings of a run name, and what tells the contents of each from others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.config.another_input import meant
from attn_exp.problem.matrices import PRINTED

SECTIONS = ("embeddings", "projections")
ARRAYS = ("tokens", "vectors", "q", "k", "v", "weights", "given", "memory")
"""Settings whose value, or each of whose values, is a file where it is a text."""

INDEX = ".safetensors.index.json"
"""How the file is called that says in which of several safetensors files each array lies."""

PIECE = 2**20
MOST_INDEX = 64 * 2**20


def of(settings: Any) -> dict[str, str]:
    """Return the files that a configuration names, or its plain values, by the settings that name them."""
    sections = {name: item(settings, name) for name in SECTIONS}
    return {setting: file for name, section in sections.items() for setting, file in named(section, name)}


def named(section: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a section that name files, and the files."""
    for name in names(section):
        value, key = item(section, name), f"{path}.{name}"
        if name == "memory" and isinstance(value, str):
            value = meant(value, key)
        if is_file(key) and isinstance(value, str) and value and not PRINTED.match(value):
            yield key, value
        elif name != "names" and names(value):
            yield from named(value, key)


def is_file(key: str) -> bool:
    """Say whether a text as the value of this setting names a file."""
    section, _, name = key.rpartition(".")
    return key.startswith(SECTIONS) and (name == "file" or name in ARRAYS or section.endswith(".given"))


def names(value: Any) -> list[str]:
    """Return the names of the settings of a section; none where it is a plain value."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return [str(name) for name in value] if isinstance(value, Mapping) else []


def item(section: Any, name: str) -> Any:
    """Return a setting of a section."""
    return section.get(name) if isinstance(section, Mapping) else getattr(section, name)


def fingerprint(file: Any) -> str:
    """Return a hash of what a file holds, and of the files that it is an index of; nothing where it cannot be read."""
    if not isinstance(file, str):
        return ""
    try:
        digest = hashlib.sha256()
        for path in (Path(file), *parts(Path(file))):
            with machine.opened(path) as opened:
                while piece := opened.read(PIECE):
                    digest.update(piece)
        return digest.hexdigest()
    except (OSError, ValueError):
        return ""


def parts(path: Path) -> list[Path]:
    """Return the files that an index of several names, beside it."""
    if not path.name.endswith(INDEX):
        return []
    places = json.loads(machine.read_text(path, MOST_INDEX)).get("weight_map", {})
    return sorted({path.with_name(Path(str(place)).name) for place in dict(places).values()})

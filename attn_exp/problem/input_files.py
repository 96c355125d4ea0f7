"""Find the files that the settings of a run name, and fingerprint their contents."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from attn_exp import machine, registry
from attn_exp.config.inputs import INDEX, spell_out_memory
from attn_exp.problem.drawing import PRINTED
from attn_exp.problem.problem import get_setting, left_to_model

MODEL = ("model.path", "model.patches")
"""Settings of a model that name its checkpoint and its input."""

SECTIONS = ("embeddings", "projections")
ARRAYS = ("tokens", "vectors", "q", "k", "v", "weights", "given", "memory", "file")
"""Settings whose strings name files; the value is one string, or a mapping of names to strings."""

CHECKPOINT = ("config.json", "tokenizer.json", "*.safetensors", f"*{INDEX}")
"""The files that are read from the folder of a checkpoint."""

MOST_HASHED = 2**30
"""A file larger than this, in bytes, is identified by its name, size, modification time and first bytes."""

BEGINNING = 2**20


def list_input_files(settings: Any) -> dict[str, str]:
    """Return the files that a configuration names, by setting, such as `{"embeddings.file": "x.npy"}`.

    `settings` is a `Config` or its plain values. A model's files are included if any setting comes from the model.
    """
    files = {
        setting: file for name in SECTIONS for setting, file in find_named_files(get_setting(settings, name), name)
    }
    model_files = {
        key: get_setting(get_setting(settings, "model"), key.partition(".")[2])
        for key in MODEL
        if left_to_model(settings)
    }
    return files | {key: path for key, path in model_files.items() if path is not None}


def find_named_files(section: Any, path: str) -> Iterator[tuple[str, str]]:
    for name in setting_names(section):
        value, key = get_setting(section, name), f"{path}.{name}"
        if name == "memory" and isinstance(value, str):
            value = spell_out_memory(value, key)
        if is_file(key) and isinstance(value, str) and value and not PRINTED.match(value):
            yield key, value
        elif name != "names" and setting_names(value):
            yield from find_named_files(value, key)


def is_file(key: str) -> bool:
    section, _, name = key.rpartition(".")
    return key in MODEL or ((name in ARRAYS or section.endswith(".given")) and key.startswith(SECTIONS))


def setting_names(value: Any) -> list[str]:
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    return [str(name) for name in value] if isinstance(value, Mapping) else []


def fingerprint(file: Any, key: str = "") -> str:
    """Return a hash of a file and of the files that it indexes, or an empty string if one of them cannot be read.

    `key` is the setting that names the file. For `model.path`, all files of the checkpoint are hashed.
    """
    if not isinstance(file, str):
        return ""
    digest = hashlib.sha256()
    try:
        for path in list_checkpoint(Path(file)) if key == MODEL[0] else find_parts(Path(file)):
            with machine.open_regular(path) as stream:
                state = os.fstat(stream.fileno())
                if state.st_size > MOST_HASHED:
                    digest.update(f"{path.name} {state.st_size} {state.st_mtime_ns}".encode() + stream.read(BEGINNING))
                else:
                    hashlib.file_digest(stream, lambda: digest)
    except (OSError, ValueError):
        return ""
    return digest.hexdigest()


def list_checkpoint(path: Path) -> list[Path]:
    """List the files of a checkpoint; `path` is its folder, or a weights file with JSON files beside it."""
    if path.is_dir():
        return sorted({file for pattern in CHECKPOINT for file in path.glob(pattern)})
    json_files = [path.with_name(name) for name in CHECKPOINT[:2]]
    return [*find_parts(path), *(file for file in json_files if file.exists())]


def find_parts(path: Path) -> list[Path]:
    if not path.name.endswith(INDEX):
        return [path]
    read_index = registry.module("attn_exp.problem.files", "safetensors").read_index  # most runs read no files
    return [path, *sorted({path.with_name(name) for name in read_index(path).values()})]

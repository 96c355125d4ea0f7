"""Pickles, such as `pytorch_model.bin`: opening one may run code that somebody else wrote, so none is opened."""

from __future__ import annotations

from pathlib import Path

from attn_exp import machine
from attn_exp.errors import UserError

SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x80\x8a")
"""How what `torch.save` and `pickle.dump` write begins: a zip archive, or the mark of a protocol."""

CONVERTS = (
    'python -c "import torch; from safetensors.torch import save_file; '
    "save_file({{n: t.clone().contiguous() for n, t in torch.load('{name}', weights_only=True, map_location='cpu')"
    ".items()}}, '{stem}.safetensors')\""
)
"""The line that turns a pickle into safetensors; `weights_only` lets PyTorch refuse what is no array."""


def is_pickle(path: Path) -> bool:
    """Say whether a file that is there is named like a pickle and begins like one."""
    if path.suffix.lower() not in SUFFIXES:
        return False
    try:
        with machine.opened(path) as file:
            return file.read(4).startswith(STARTS)
    except (OSError, ValueError):
        return False


def refusal(path: Path, key: str) -> UserError:
    """Return the error that says how a pickle becomes a file that runs nothing."""
    line = CONVERTS.format(name=path.name, stem=path.stem)
    return UserError(f"{key}: {path.name} is a pickle, which could run code; turn it into safetensors first: {line}")

"""Pickles, such as `pytorch_model.bin`: opening one may run code that somebody else wrote, so none is opened."""

from __future__ import annotations

from pathlib import Path

from attn_exp import machine
from attn_exp.errors import UserError

SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
STARTS = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05", b"\x80\x8a")
"""How what `torch.save` and `pickle.dump` write begins: a zip archive, or the mark of a protocol."""

CONVERTS = (
    'python -c "import torch,safetensors.torch as s;s.save_file({{k:v.contiguous().clone() for k,v in '
    "torch.load('{name}','cpu',weights_only=True).items()}},'{stem}.safetensors')\""
)
"""The line that turns a pickle into safetensors; `weights_only` lets PyTorch refuse what is no array."""

OF_NUMPY = (".pkl", ".pickle", ".joblib")
MOST_LETTERS = 280
"""How long a message may be: a longer one would be cut, and the line in it of no use."""

TRUSTED = "python -c \"import pickle, numpy; numpy.savez('{stem}.npz', **pickle.load(open('{name}', 'rb')))\""
"""The line that turns a pickle of arrays by name into a NumPy archive; it runs what the pickle says."""


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
    numpy = path.suffix.lower() in OF_NUMPY
    line, trust = (TRUSTED, ", if you trust it") if numpy else (CONVERTS, "")
    said = f"{key.partition('=')[0]}: {path.name} is a pickle, which could run code; convert it{trust}"
    whole = f"{said}: {converting(path, line)}"
    return UserError(
        whole if len(whole) <= MOST_LETTERS else f"{said}, in its folder: {converting(Path(path.name), line)}"
    )


def converting(path: Path, line: str) -> str:
    """Return the line of a shell that writes a file beside a pickle, by the name that a checkpoint has there."""
    stem = path.with_name("model") if path.name == "pytorch_model.bin" else path.with_suffix("")
    return line.format(name=path.as_posix(), stem=stem.as_posix())

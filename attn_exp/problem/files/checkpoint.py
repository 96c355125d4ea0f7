"""A checkpoint on disk: config.json, and the tensors beside it, each read when it is asked for; and its tokenizer.

A file of llama2.c, such as stories15M.bin, is one too: seven whole numbers, then every array as float32, one after the
other. Source: karpathy/llama2.c, `export.py` (`legacy_export`, version 0) and `run.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array
from attn_exp.child import Child, NoAnswerError
from attn_exp.errors import UserError, brief, first_line, unknown
from attn_exp.problem.files import pickles, safetensors
from attn_exp.problem.files.format import size_of

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
EXPECTED = f"expected a folder with {CONFIG} and {WEIGHTS}, or a llama2.c file"

HEADER = struct.Struct("<7i")
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
"""What the seven numbers are, as config.json calls them; a vocabulary below 0 has an output layer of its own."""

MOST_LAYERS, MOST_CONFIG = 10_000, 2**24

LEAST_SECONDS, BYTES_A_SECOND, LETTERS_A_SECOND = 6, 5_000_000, 100_000
"""How long a tokenizer may take: so many seconds, and more for a large file and a long text."""


@dataclass(frozen=True)
class Checkpoint:
    """What `config.json` says, and tensors by name; names are asked for without the `prefix` that all begin with.

    `key` is the setting that named it, such as `model.path=all-MiniLM-L6-v2`; errors begin with it.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, safetensors.Tensor]
    key: str
    prefix: str = ""

    def at(self, prefix: str) -> Checkpoint:
        """Return the part of it whose names go on with `prefix`, such as one layer."""
        return replace(self, prefix=self.prefix + prefix)

    def has(self, name: str) -> bool:
        """Say whether there is such a tensor."""
        return self.prefix + name in self.tensors

    def tensor(self, name: str) -> safetensors.Tensor:
        """Return where a tensor lies.

        Raises:
            UserError: there is none of that name.
        """
        if not self.has(name):
            raise UserError(f"{self.key}: {unknown(self.prefix + name, sorted(self.tensors), 'tensor')}")
        return self.tensors[self.prefix + name]

    def check(self, shapes: Iterable[tuple[str, tuple[int, ...] | None]]) -> None:
        """Hold tensors to the shapes that they should have; None where there should be none.

        Raises:
            UserError: one is not there, holds no real numbers, has another shape, or should not be there.
        """
        for name, shape in shapes:
            if shape is None:
                if self.has(name):
                    raise UserError(f"{self.key}: it holds {self.prefix}{name}, and {CONFIG} says that there is none")
                continue
            tensor = self.tensor(name)
            if tensor.shape != shape:
                said = f"the shape {brief(str([*tensor.shape]))}; expected {brief(str([*shape]))}"
                raise UserError(f"{self.key}: {tensor.name} has {said}")
            if "F" not in tensor.dtype:
                raise UserError(f"{self.key}: {tensor.name} holds {tensor.dtype}; expected real numbers")

    def array(self, name: str, rows: Array | None = None) -> Array:
        """Return a tensor, or some rows of it, as float32, or float64 where it is that."""
        numbers = safetensors.array(self.tensor(name), rows)
        return numbers if numbers.dtype == np.float64 else numbers.astype(np.float32, copy=False)

    def linear(self, name: str) -> tuple[Array, Array | None]:
        """Return W `[m n]` and b `[n]` of an `nn.Linear`, which stores W turned; b is None where it has none."""
        bias = f"{name}.bias"
        return self.array(f"{name}.weight").T, self.array(bias) if self.has(bias) else None

    def rows(self, name: str) -> int:
        """Return how many rows a tensor has."""
        return (self.tensor(name).shape or (0,))[0]


def opened(path: Path, key: str) -> Checkpoint:
    """Open a folder, a safetensors file beside its config.json, or a llama2.c file; no number is read.

    Raises:
        UserError: what is not there, lies, or is a pickle.
    """
    try:
        if path.suffix == ".bin" and path.is_file():
            if pickles.is_pickle(path):
                raise pickles.refusal(path, key)
            return Checkpoint(path.parent, *open_llama2c(path, key), key)
        folder = path if path.is_dir() else path.parent
        if not path.exists():
            raise UserError(f"{key}: not there; {EXPECTED}")
        tensors = weights(path, key)
        return Checkpoint(folder, config(folder, key), tensors, key)
    except (OSError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise UserError(f"{key}: cannot be read ({reason})") from error


def config(folder: Path, key: str) -> dict[str, Any]:
    """Return what config.json says."""
    path = folder / CONFIG
    if not path.exists():
        raise UserError(f"{key}: {CONFIG} is not there; {EXPECTED}")
    try:
        return safetensors.plain_json(machine.read(path, MOST_CONFIG), CONFIG)
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
        raise UserError(f"{key}: {CONFIG} cannot be read ({reason})") from error


def weights(path: Path, key: str) -> dict[str, safetensors.Tensor]:
    """Return the tensors of a folder, or of one file in it."""
    if path.is_file():
        if pickles.is_pickle(path):
            raise pickles.refusal(path, key)
        if not path.name.endswith((safetensors.SUFFIX, safetensors.INDEX)):
            raise UserError(f"{key}: neither a folder nor safetensors; {EXPECTED}")
        return safetensors.tensors(path, key)
    for name in (WEIGHTS, INDEX):
        if (path / name).exists():
            return safetensors.tensors(path / name, f"{key}: {name}")
    pickle = next((file for file in sorted(path.iterdir()) if pickles.is_pickle(file)), None)
    if pickle is not None:
        raise pickles.refusal(pickle, key)
    raise UserError(f"{key}: {WEIGHTS} is not there; {EXPECTED}")


def rooted(checkpoint: Checkpoint, anchor: str) -> Checkpoint:
    """Return the checkpoint with what stands before the tensor `anchor` as its prefix, such as `bert.`.

    Raises:
        UserError: no tensor of that name, or several.
    """
    names = [name for name in checkpoint.tensors if name == anchor or name.endswith(f".{anchor}")]
    if len(names) != 1:
        problem = unknown(anchor, sorted(checkpoint.tensors), "tensor") if not names else f"several end in {anchor}"
        raise UserError(f"{checkpoint.key}: {problem}")
    return replace(checkpoint, tensors=renamed(checkpoint), prefix=names[0].removesuffix(anchor))


EARLIER = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""How earlier checkpoints, such as bert-base-uncased, end the names of a norm, and how later ones do."""


def renamed(checkpoint: Checkpoint) -> dict[str, safetensors.Tensor]:
    """Return the tensors by the names of today.

    Raises:
        UserError: one is there under both names.
    """
    tensors = dict(checkpoint.tensors)
    for name in checkpoint.tensors:
        ending = next((ending for ending in EARLIER if name.endswith(ending)), None)
        if ending is not None:
            today = name.removesuffix(ending) + EARLIER[ending]
            if today in tensors:
                raise UserError(f"{checkpoint.key}: it holds both {brief(name)} and {brief(today)}")
            tensors[today] = tensors.pop(name)
    return tensors


def open_llama2c(path: Path, key: str) -> tuple[dict[str, Any], dict[str, safetensors.Tensor]]:
    """Return the settings as a config.json would say them, and the tensors by the names of Llama checkpoints.

    Raises:
        UserError: sizes that do not go together, or a file of another length than they say.
    """
    with machine.opened(path) as file:
        length = size_of(file)
        header = file.read(HEADER.size)
    if length < HEADER.size:
        raise UserError(f"{key}: {length} bytes, too short for a llama2.c file")
    config: dict[str, Any] = dict(zip(SIZES, HEADER.unpack(header), strict=True))
    apart = config["vocab_size"] < 0
    config["vocab_size"] = abs(config["vocab_size"])
    check_sizes(config, key)
    tensors, end = {}, HEADER.size
    for name, shape in arrays_of_llama2c(config, apart):
        tensors[name] = safetensors.Tensor(path, name, "F32", shape, end)
        end += tensors[name].nbytes
    if end != length:
        raise UserError(f"{key}: its header describes {end:,} bytes, and the file has {length:,}: no llama2.c file?")
    return {**config, "model_type": "llama2.c"}, tensors


def check_sizes(config: dict[str, Any], key: str) -> None:
    """Refuse sizes of no model."""
    dim, layers, heads, groups = (config[SIZES[place]] for place in (0, 2, 3, 4))
    even = min(config.values()) > 0 and dim % heads == 0 and heads % groups == 0 and dim // heads % 2 == 0
    if not even or layers > MOST_LAYERS:
        numbers = ", ".join(f"{name}={value}" for name, value in config.items())
        raise UserError(f"{key}: no llama2.c file of version 0: {numbers}")


def arrays_of_llama2c(config: dict[str, Any], apart: bool) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield every array in the order of the file: each kind for all layers, then the next kind."""
    dim, hidden, layers, heads, groups, vocabulary, longest = (config[name] for name in SIZES)
    size = dim // heads
    yield "model.embed_tokens.weight", (vocabulary, dim)
    kinds = {
        "input_layernorm": (dim,),
        "self_attn.q_proj": (heads * size, dim),
        "self_attn.k_proj": (groups * size, dim),
        "self_attn.v_proj": (groups * size, dim),
        "self_attn.o_proj": (dim, heads * size),
        "post_attention_layernorm": (dim,),
        "mlp.gate_proj": (hidden, dim),
        "mlp.down_proj": (dim, hidden),
        "mlp.up_proj": (hidden, dim),
    }
    for name, shape in kinds.items():
        yield from ((f"model.layers.{number}.{name}.weight", shape) for number in range(layers))
    yield "model.norm.weight", (dim,)
    yield "cosines", (longest, size // 2)
    yield "sines", (longest, size // 2)
    if apart:
        yield "lm_head.weight", (vocabulary, dim)


def encode_text(folder: Path, text: str, key: str, child: Child) -> tuple[list[int], tuple[str, ...]]:
    """Return the ids of a text, with the marks that the model puts around it, and a name for each.

    Raises:
        UserError: no tokenizer, one that cannot be read or comes to no end, or a text of no tokens.
    """
    path, said = folder / TOKENIZER, f"{key}: {TOKENIZER}"
    if not path.exists():
        raise UserError(f"{said} is not there; it reads model.text; or give model.tokens=[ids]")
    seconds = LEAST_SECONDS + path.stat().st_size // BYTES_A_SECOND + len(text) // LETTERS_A_SECOND
    try:
        text.encode()
        answer = child.ask({"path": str(path), "text": text, "key": said}, seconds)
        ids, tokens = answer["ids"], answer["tokens"]
    except UnicodeEncodeError as error:
        raise UserError("model.text holds bytes that are no text") from error
    except NoAnswerError as error:
        raise UserError(f"{said} cannot be used ({brief(error.how)})") from error
    if not ids:
        raise UserError(f"model.text={brief(text)!r}: no token; write some words")
    return ids, tuple(tokens)

"""A checkpoint on disk: config.json, a tokenizer, and tensors that are read on demand.

A llama2.c file, such as stories15M.bin, is a checkpoint too: seven integers, followed by every array as float32.
Source: karpathy/llama2.c, `export.py` (`legacy_export`, version 0) and `run.c`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import machine
from attn_exp.arrays import Array, Shape
from attn_exp.errors import UserError, brief, reason, unknown
from attn_exp.problem import files
from attn_exp.problem.files import Entry, safetensors, size_of
from attn_exp.processes import Child, NoAnswerError

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
EXPECTED = f"expected a folder with {CONFIG} and {WEIGHTS}, or a llama2.c file"
ENCODE = "attn_exp.problem.tokenizing:encode"
MOST_CONFIG = 2**24

HEADER = struct.Struct("<7i")
SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
"""The names of the seven integers in config.json; a negative vocabulary size means a separate output layer."""

LEAST_SECONDS, BYTES_A_SECOND, LETTERS_A_SECOND = 6, 5_000_000, 100_000
"""The timeout of a tokenizer: `LEAST_SECONDS`, plus the time for its file and for the text at these speeds."""


@dataclass(frozen=True)
class Checkpoint:
    """A model on disk; its methods take the names of tensors without `prefix`.

    - `folder`: the folder of the files.
    - `config`: the contents of config.json.
    - `tensors`: the tensors by their full names.
    - `key`: the setting that names the checkpoint, such as `model.path=all-MiniLM-L6-v2`; errors begin with it.
    - `prefix`: the beginning that all names of tensors share, such as `bert.`.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, Entry]
    key: str
    prefix: str = ""

    def at(self, prefix: str) -> Checkpoint:
        """Return the part of the checkpoint under a longer prefix, such as one layer."""
        return replace(self, prefix=self.prefix + prefix)

    def has(self, name: str) -> bool:
        return self.prefix + name in self.tensors

    def tensor(self, name: str) -> Entry:
        if not self.has(name):
            raise UserError(f"{self.key}: {unknown(self.prefix + name, sorted(self.tensors), 'tensor')}")
        return self.tensors[self.prefix + name]

    def check(self, shapes: Iterable[tuple[str, Shape | None]]) -> None:
        """Check tensors against their expected shapes; None means that the tensor should not exist.

        Raises:
            UserError: a tensor is missing, does not hold real numbers, has another shape, or should not exist.
        """
        for name, shape in shapes:
            full_name = f"{self.key}: {self.prefix}{name}"
            if shape is None:
                if self.has(name):
                    raise UserError(f"{full_name} exists, although {CONFIG} rules it out")
                continue
            tensor = self.tensor(name)
            if tensor.shape != shape:
                difference = f"the shape {brief(str([*tensor.shape]))}; expected {brief(str([*shape]))}"
                raise UserError(f"{full_name} has {difference}")
            if "F" not in tensor.dtype:
                raise UserError(f"{full_name} holds {tensor.dtype}; expected real numbers")

    def array(self, name: str, rows: Any = ...) -> Array:
        """Read a tensor, or some of its rows, as float32, or as float64 if it is stored in float64."""
        numbers = self.tensor(name).read(rows)
        return numbers if numbers.dtype == np.float64 else numbers.astype(np.float32, copy=False)


def open_checkpoint(path: Path, key: str) -> Checkpoint:
    """Open a folder, a safetensors file beside its config.json, or a llama2.c file, without reading any numbers.

    Raises:
        UserError: a file is missing, inconsistent, or a pickle.
    """
    try:
        if path.suffix == ".bin" and path.is_file() and not files.is_pickle(path):
            return Checkpoint(path.parent, *open_llama2c(path, key), key)
        if not path.exists():
            raise UserError(f"{key}: not found; {EXPECTED}")
        tensors = read_tensors(path, key)
    except OSError as error:
        raise files.unreadable_error(key, error) from error
    folder = path if path.is_dir() else path.parent
    return Checkpoint(folder, read_config(folder, key), tensors, key)


def read_config(folder: Path, key: str) -> dict[str, Any]:
    try:
        config = machine.read_json(folder / CONFIG, MOST_CONFIG)
        if not isinstance(config, dict):
            raise ValueError("it is not a JSON object")
    except FileNotFoundError as error:
        raise UserError(f"{key}: {CONFIG} is missing; {EXPECTED}") from error
    except (OSError, ValueError) as error:
        raise files.unreadable_error(f"{key}: {CONFIG}", error) from error
    return config


def read_tensors(path: Path, key: str) -> Mapping[str, Entry]:
    if path.is_file():
        return files.list_contents(path, key).arrays
    names = [name for name in (WEIGHTS, INDEX) if (path / name).exists()]
    names += [file.name for file in sorted(path.iterdir()) if files.is_pickle(file)]
    if not names:
        raise UserError(f"{key}: {WEIGHTS} is missing; {EXPECTED}")
    return files.list_contents(path / names[0], f"{key}: {names[0]}").arrays


NEW_ENDINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
"""Endings of norm names in old checkpoints, such as bert-base-uncased, and the new endings that replace them."""


def find_prefix(checkpoint: Checkpoint, anchor: str) -> Checkpoint:
    """Return the checkpoint with the prefix of its tensor names: whatever precedes `anchor`, such as `bert.`.

    Raises:
        UserError: there is no tensor of that name, or there are several.
    """
    tensors = {}
    for name, tensor in checkpoint.tensors.items():
        ending = next((ending for ending in NEW_ENDINGS if name.endswith(ending)), "")
        new_name = name.removesuffix(ending) + NEW_ENDINGS.get(ending, "")
        if new_name != name and new_name in checkpoint.tensors:
            raise UserError(f"{checkpoint.key}: it holds both {brief(name)} and {brief(new_name)}")
        tensors[new_name] = tensor
    names = [name for name in tensors if name == anchor or name.endswith(f".{anchor}")]
    if len(names) != 1:
        problem = f"several tensor names end in {anchor}" if names else unknown(anchor, sorted(tensors), "tensor")
        raise UserError(f"{checkpoint.key}: {problem}")
    return replace(checkpoint, tensors=tensors, prefix=names[0].removesuffix(anchor))


def open_llama2c(path: Path, key: str) -> tuple[dict[str, Any], dict[str, Entry]]:
    """Return the settings as in a config.json, and the tensors by their names in Llama checkpoints.

    Raises:
        UserError: the sizes are inconsistent, or do not match the length of the file.
    """
    with machine.open_regular(path) as file:
        length = size_of(file)
        header = file.read(HEADER.size).ljust(HEADER.size, b"\0")
    config = dict(zip(SIZES, HEADER.unpack(header), strict=True))
    has_output_layer = config["vocab_size"] < 0
    config["vocab_size"] = abs(config["vocab_size"])
    dim, heads, groups = (config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    if min(config.values()) <= 0 or dim % (2 * heads) or heads % groups or config["num_hidden_layers"] > length:
        numbers = ", ".join(f"{name}={value}" for name, value in config.items())
        raise UserError(f"{key}: not a llama2.c file of version 0: {numbers}")
    tensors, end = {}, HEADER.size
    for name, shape in list_llama2c_arrays(config, has_output_layer):
        tensors[name] = safetensors.make_entry(path, "F32", shape, end)
        end += safetensors.count_bytes("F32", shape)
    if end != length:
        raise UserError(f"{key}: its header describes {end:,} bytes, but the file has {length:,}: not a llama2.c file?")
    return {**config, "model_type": "llama2.c"}, tensors


def list_llama2c_arrays(config: dict[str, Any], has_output_layer: bool) -> Iterator[tuple[str, Shape]]:
    """Yield the name and the shape of every array, in the order of the file.

    All arrays of one kind, one per layer, come before the arrays of the next kind.
    """
    dim, hidden, layers, heads, groups, vocabulary, positions = (config[name] for name in SIZES)
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
    yield "cosines", (positions, size // 2)
    yield "sines", (positions, size // 2)
    if has_output_layer:
        yield "lm_head.weight", (vocabulary, dim)


def encode_text(folder: Path, text: str, key: str) -> tuple[list[int], tuple[str, ...]]:
    """Return the token ids of a text, including the model's special tokens, and the name of each token.

    Raises:
        UserError: the tokenizer is missing, unreadable or times out, or the text has no tokens.
    """
    path, label = folder / TOKENIZER, f"{key}: {TOKENIZER}"
    if not path.exists():
        raise UserError(f"{label} is missing, and model.text needs it; or give model.tokens=[ids]")
    seconds = LEAST_SECONDS + path.stat().st_size // BYTES_A_SECOND + len(text) // LETTERS_A_SECOND
    try:
        text.encode()
        with Child(ENCODE, quiet=True) as child:
            answer = child.ask({"path": str(path), "text": text, "key": label}, seconds)
            child.kill()  # it has nothing left to do, and waiting for its exit takes time
    except OSError as error:
        raise UserError(f"model.text: cannot start a process to tokenize it ({reason(error)})") from error
    except UnicodeEncodeError as error:
        raise UserError("model.text holds bytes that are not text") from error
    except NoAnswerError as error:
        raise UserError(f"{label} cannot be used ({brief(str(error))})") from error
    if not answer["ids"]:
        raise UserError(f"model.text={brief(text)!r}: contains no tokens; write some words")
    return answer["ids"], tuple(answer["tokens"])

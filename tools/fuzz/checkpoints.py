"""Whatever the files of a checkpoint hold: header, tensors, tokenizer and patches, harmed as bytes or as values."""

from __future__ import annotations

import io
import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import write_bert, write_tiny_model
from tools.fuzz._folders import attempted, tried, twisted

TOKENIZER: dict[str, Any] = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}, {"type": "Precompiled",
                   "precompiled_charsmap": ""}, {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}]},
    "pre_tokenizer": {"type": "Whitespace"}, "decoder": None,
    "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                       "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [3], "tokens": ["[CLS]"]}}},
    "model": {"type": "WordLevel", "vocab": {"a": 1, "b": 2, "[UNK]": 0}, "unk_token": "[UNK]"},
}  # fmt: skip
MODELS: list[dict[str, Any]] = [
    {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": [["a", "b"]], "unk_token": "a"},
    {"type": "WordPiece", "unk_token": "a", "continuing_subword_prefix": "##", "max_input_chars_per_word": 5,
     "vocab": {"a": 0, "##b": 1}},
    {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0], ["b", -2.0]]},
]  # fmt: skip


def flip(chance: random.Random, path: Path) -> None:
    """Change, cut or lengthen a file as bytes."""
    data = bytearray(path.read_bytes())
    for _ in range(chance.randrange(1, 5)):
        data[chance.randrange(min(len(data), chance.choice((16, 400, len(data)))))] = chance.randrange(256)
    end = chance.choice([len(data), len(data), chance.randrange(len(data)), len(data) + 7])
    path.write_bytes(bytes(data[:end]).ljust(end, b"\0"))


def twist_header(chance: random.Random, path: Path) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    for _ in range(chance.choice((1, 1, 3))):
        header = twisted(chance, header)
    text = json.dumps(header).encode("utf-8", "surrogatepass")
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def patches(chance: random.Random) -> bytes:
    """Return a NumPy file, of numbers or not, whose header may lie."""
    shape = chance.choice(
        ["(4, 8)", "(3, 8, 8)", "(10**12,)", f"({10**30},)", "(0, 8)", "()", "(-1, 8)", "8", "(True, 32)"]
    )
    kind = chance.choice(["<f8", "<f4", "|O", "<U3", "|V4", "<i8", "?", "<c16", "[('a', '<f8')]", "<M8[s]"])
    head = f"{{'descr': {kind!r}, 'fortran_order': {chance.choice([True, False, 3])}, 'shape': {shape}, }}\n".encode()
    whole = io.BytesIO()
    np.save(whole, np.ones((4, 8)))
    lying = b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + bytes(chance.choice((0, 31, 256, 257)))
    return chance.choice([lying, lying, whole.getvalue()[: chance.randrange(200)], b"PK", b"PK\3\4", b"\x93NUMPY\3\0"])


def attempt(seed: int) -> str | None:
    """Harm a checkpoint, run a layer of it, and return what fell."""
    chance = random.Random(seed)
    with attempted() as here:
        model = here / "outputs" / "model"
        model.mkdir()
        write_bert(model)
        (model / "tokenizer.json").write_text(json.dumps(TOKENIZER))
        write_tiny_model(model / "tiny.bin")
        words = ["model=bert", "model.path=outputs/model", "model.tokens=[1,2]", "model.layer=1"]
        kind = chance.randrange(7)
        harm: Callable[[random.Random, Path], None] = chance.choice((flip, twist_header))
        if kind <= 1:
            harm(chance, model / "model.safetensors")
        elif kind == 2:
            flip(chance, model / chance.choice(["config.json", "tokenizer.json"]))
        elif kind == 3:
            config = twisted(chance, json.loads((model / "config.json").read_text()))
            (model / "config.json").write_text(json.dumps(config))
        elif kind == 4:
            tokenizer = TOKENIZER | {"model": chance.choice([TOKENIZER["model"], *MODELS])}
            tokenizer |= {"normalizer": None} if chance.random() < 0.5 else {}
            for _ in range(chance.choice((1, 2))):
                tokenizer = twisted(chance, tokenizer)
            (model / "tokenizer.json").write_text(json.dumps(tokenizer))
            words[2] = f"model.text='{chance.choice(['a b', 'hello a', 'ab' * 50, 'é 🙂 a'])}'"
        elif kind == 5:
            flip(chance, model / "tiny.bin")
            words[:2] = ["model=llama", "model.path=outputs/model/tiny.bin"]
        else:
            (model / "patches.npy").write_bytes(patches(chance))
            words[:3] = ["model=bert", "model.path=outputs/model", "model.patches=outputs/model/patches.npy"]
            if chance.random() < 0.5:
                words = ["explain", "answer.weights=outputs/model/patches.npy"]
        words += [] if words[0] == "explain" else ["report=none", "variant=[matrix]"]
        fell = tried(here, words)
        return fell and f"{kind}, {' '.join(words)}: {fell}"

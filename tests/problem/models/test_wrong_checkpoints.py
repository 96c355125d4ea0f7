"""Checkpoints and words that do not fit: one line each, which says what was expected; no code of a checkpoint runs."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from attn_exp.errors import UserError
from tests.checkpoints import write_bert, write_tiny_model
from tests.compose import comparison
from tests.refusal import refusal


def refused(path: Path, *words: str) -> str:
    """Return what is said of a run of a BERT at this path."""
    return refusal(comparison, "model=bert", f"model.path={path}", *(words or ("model.tokens=[1,2]",)))


CONFIGS = {
    "another family": ({"model_type": "gpt2"}, "has model_type=gpt2; model=bert reads bert, roberta"),
    "a list for a family": ({"model_type": ["bert"]}, "has model_type=['bert']"),
    "heads that do not divide": ({"num_attention_heads": 3}, "3 heads, which do not divide the width 8"),
    "layers that are not there": ({"num_hidden_layers": 9}, "unknown tensor 'encoder.layer.2."),
    "relative positions": ({"position_embedding_type": "relative_key"}, "position_embedding_type=relative_key"),
    "an activation of its own": ({"hidden_act": "mish"}, "hidden_act=mish; expected one of gelu,"),
    "filler past the last place": (
        {"model_type": "roberta", "pad_token_id": 9},
        "pad_token_id=9, but RoBERTa numbers its 6 positions from there",
    ),
    "an epsilon in words": ({"layer_norm_eps": "small"}, "layer_norm_eps=small; expected a number above 0"),
}


@pytest.mark.parametrize(("changed", "said"), CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_lies(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_bert(tmp_path, **changed)
    layer = "model.layer=5" if changed.get("num_hidden_layers") else "model.layer=0"
    message = refused(tmp_path, "model.tokens=[1,2]", layer)
    assert message.startswith(f"model.path={tmp_path}")
    assert said in message


def change(name: str, array: Any) -> Callable[[Path], None]:
    """Return what puts another array into a checkpoint, or takes one out."""

    def changed(folder: Path) -> None:
        arrays = load_file(folder / "model.safetensors") | {name: array}
        save_file({key: value for key, value in arrays.items() if value is not None}, folder / "model.safetensors")

    return changed


QUERY, WORDS = "encoder.layer.0.attention.self.query.weight", "embeddings.word_embeddings.weight"
TENSORS = {
    "no query": (change(QUERY, None), f"unknown tensor '{QUERY}'"),
    "a query of another size": (change(QUERY, np.ones((8, 7), np.float32)), "has the shape [8, 7]; expected [8, 8]"),
    "whole numbers": (change(QUERY, np.ones((8, 8), np.int32)), "holds I32; expected real numbers"),
    "no number": (change(QUERY, np.full((8, 8), np.nan, np.float32)), "W_q holds numbers that are not finite"),
}


@pytest.mark.parametrize(("damage", "said"), TENSORS.values(), ids=TENSORS)
def test_tensors_that_do_not_fit(damage: Callable[[Path], None], said: str, tmp_path: Path) -> None:
    write_bert(tmp_path)
    damage(tmp_path)
    assert said in refused(tmp_path)


ASKED = {
    "model.layer=2": "model.layer=2: the model has 2 layers, 0 to 1",
    "model.layer=-1": "expected a whole number of at least 0",
    "model.tokens=[1,10]": "token id 10, but the model knows 10 ids, 0 to 9",
    "model.tokens=[1,-1]": "expected token ids",
    "model.tokens=[]": "expected token ids",
    "model.tokens=[1,true]": "expected token ids",
    "model.tokens=[1,1,1,1,1,1,1]": "7 tokens, but the model takes at most 6",
    "model.text=hello": "tokenizer.json is missing",
    "model.patches=a.npy": "takes 'model.text=the cat sat' or model.tokens=[ids]; got model.patches",
    "head=3": "head=3 does not divide d_model=8",
}


@pytest.mark.parametrize("word", ASKED)
def test_what_the_model_does_not_take(word: str, tmp_path: Path) -> None:
    write_bert(tmp_path)
    words = [word] if word.startswith(("model.t", "model.p")) else ["model.tokens=[1,2]", word]
    assert ASKED[word] in refused(tmp_path, *words)


def emptied(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


class Boom:
    """Code that a pickle would run."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("boom"),)


def pickled(folder: Path) -> None:
    emptied(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Boom()))


FILES = {
    "no weights": (emptied, "model.safetensors is missing"),
    "a pickle": (pickled, "pytorch_model.bin is a pickle"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json is missing"),
    "a config of no JSON": (
        lambda folder: (folder / "config.json").write_text("{"),
        "config.json: cannot be read (it is not JSON",
    ),
    "a config that is a folder": (
        lambda folder: ((folder / "config.json").unlink(), (folder / "config.json").mkdir()),
        "config.json: cannot be read (",
    ),
    "a config of a list": (
        lambda folder: (folder / "config.json").write_text("[1]"),
        "config.json: cannot be read (it is not a JSON object)",
    ),
    "weights cut off": (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-4]),
        "bytes of numbers, but",
    ),
}


@pytest.mark.parametrize(("damage", "said"), FILES.values(), ids=FILES)
def test_files_that_are_not_what_they_should_be(
    damage: Callable[[Path], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_bert(tmp_path)
    damage(tmp_path)
    assert said in refused(tmp_path)
    assert not Path("boom").exists()


@pytest.mark.long
def test_the_line_that_converts_a_pickle_does(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    write_bert(tmp_path)
    arrays = load_file(tmp_path / "model.safetensors")
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "model.bin")
    emptied(tmp_path)
    line = refused(tmp_path).partition(": python -c ")[2]
    subprocess.run(f"python3 -c {line}".replace("python3", sys.executable), shell=True, check=True, cwd=tmp_path)
    assert comparison("model=bert", f"model.path={tmp_path}", "model.tokens=[1,2]").rows[0].error < 1e-12


@pytest.mark.parametrize("path", ["nowhere", "zero\0", "x" * 300, ""])
def test_a_path_that_is_not_there(path: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"model.path={path[:9]}.*( expected a folder|cannot be read)") as error:
        comparison("model=bert", f"model.path='{path}'", "model.tokens=[1,2]")
    assert "\n" not in str(error.value)


ROPES = {
    "yarn": ({"type": "yarn", "factor": 4.0}, "scales RoPE by rope_type=yarn; known: default, linear, llama3"),
    "no low end": (
        {"rope_type": "llama3", "factor": 8, "high_freq_factor": 4},
        "low_freq_factor=null; expected a number above 0",
    ),
    "ends that are swapped": (
        {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1},
        "low_freq_factor=4 and high_freq_factor=1; expected the first below the second",
    ),
    "a part of a head": (
        {"partial_rotary_factor": 0.5},
        "partial_rotary_factor=0.5; only 1.0 or 1 or null is supported",
    ),
    "a number": (8, "=8; expected settings by name"),
}


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(("stretched", "said"), ROPES.values(), ids=ROPES)
def test_rotary_positions_that_no_rule_knows(stretched: Any, said: str, key: str, tmp_path: Path) -> None:
    settings = {
        "model_type": "llama",
        "hidden_size": 8,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        key: stretched,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    save_file({"embed_tokens.weight": np.ones((4, 8), np.float32)}, tmp_path / "model.safetensors")
    message = refusal(comparison, "model=llama", f"model.path={tmp_path}", "model.tokens=[1,2]")
    assert f"model.path={tmp_path}: config.json " in message
    assert said in message


LLAMA2C = {
    "too short": lambda data: data[:20],
    "cut off": lambda data: data[:-4],
    "too long": lambda data: data + b"1234",
    "a newer version": lambda data: b"24ka" + data[4:],
    "heads of odd size": lambda data: data[:12] + (8).to_bytes(4, "little") + data[16:],
    "huge": lambda data: (2**30).to_bytes(4, "little") + data[4:],
    "many layers": lambda data: data[:8] + (2**31 - 1).to_bytes(4, "little") + data[12:],
}


@pytest.mark.parametrize("damage", LLAMA2C.values(), ids=LLAMA2C)
def test_a_file_of_llama2_c_that_lies(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "stories.bin"
    write_tiny_model(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"llama2\.c file"):
        comparison("model=llama", f"model.path={path}", "model.tokens=[1]")


@pytest.mark.parametrize("word", ["embeddings=model", "projections=model", "mask=model", "position=model", "head=model",
                                  "scale=model", "bias=model"])  # fmt: skip
def test_what_is_left_to_a_model_needs_one(word: str) -> None:
    with pytest.raises(UserError, match=f"{word} comes from a model, but none is chosen"):
        comparison(word)


def test_what_the_user_says_wins(tmp_path: Path) -> None:
    write_bert(tmp_path)
    words = ("model=bert", f"model.path={tmp_path}", "model.tokens=[1,2,3]")
    plain = comparison(*words)
    changed = comparison(
        *words, "head=4", "mask=[model,causal]", "scale=false", "bias=false", "embeddings.tokens=[a,b,c]"
    )
    assert (plain.rows[0].head, plain.rows[0].mask, plain.rows[0].bias) == (2, "none", True)
    row = changed.rows[0]
    assert (row.head, row.mask, row.scale, row.bias, changed.problem.tokens) == (
        4,
        "causal",
        False,
        False,
        ("a", "b", "c"),
    )
    other = comparison(*words, "embeddings=random", "embeddings.tokens=5")
    assert len(other.problem.tokens) == 5
    assert np.array_equal(other.problem.projections["W_q"], plain.problem.projections["W_q"])

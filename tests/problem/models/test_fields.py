"""What config.json may say: the files of known checkpoints are read, and whatever else changes a number is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from attn_exp.problem import models
from attn_exp.problem.models import llama, vit
from attn_exp.problem.models._checkpoint import Checkpoint
from attn_exp.problem.models.model import read_fields
from tests.checkpoints import write_bert
from tests.compose import comparison
from tests.problem.models.published import KNOWN, LLAMA3, OF_BERT, OF_GPT2, OF_LLAMA, OF_MISTRAL, OF_QWEN2, OF_VIT
from tests.refusal import refusal


def held(said: dict[str, Any]) -> dict[str, Any]:
    """Return what is read of a config.json, by the family that reads its type."""
    kinds = {kind: fields for name in models.NAMES for kind, fields in models.find(name).fields.items()}
    return read_fields(said, kinds[said["model_type"]])


@pytest.mark.parametrize("name", KNOWN)
def test_known_checkpoints_are_read(name: str) -> None:
    found, said = held(KNOWN[name]), KNOWN[name]
    assert found["num_hidden_layers"] == said.get("num_hidden_layers", said.get("n_layers", said.get("n_layer", 12)))
    assert all(found[field] == value for field, value in said.items() if field in found)


@pytest.mark.long
def test_a_missing_field_has_the_default_of_transformers() -> None:
    transformers = pytest.importorskip("transformers", reason="it is not installed: pip install 'attn-exp[libraries]'")
    for name in models.NAMES:
        for kind in set(models.find(name).fields) - {"llama2.c"}:
            theirs = transformers.AutoConfig.for_model(kind)
            for field, value in held({"model_type": kind}).items():
                known = models.find(name).fields[kind].read
                names = known[field].names.split() or [field] if field in known else []
                if value is not None and names and hasattr(theirs, names[0]):
                    same = getattr(theirs, names[0])
                    assert same == value or (field == "sliding_window" and same is None), (kind, field)


REFUSED = {
    "unknown": (OF_BERT | {"use_alibi": True}, "use_alibi=true, which is not read here and may change the numbers"),
    "soft caps": (OF_LLAMA | {"attn_logit_softcapping": 30.0}, "attn_logit_softcapping=30.0, which is not read here"),
    "code of its own": (
        OF_BERT | {"auto_map": {"AutoModel": "a.B"}},
        "auto_map={AutoModel:a.B}, which is not read here",
    ),
    "rope without a name": (
        OF_LLAMA | {"rope_interleaved": True},
        "rope_interleaved=true; only false or null is supported",
    ),
    "an encoder's output": (
        OF_BERT | {"is_decoder": True, "add_cross_attention": True},
        "add_cross_attention=true; only false",
    ),
    "pieces": (OF_BERT | {"chunk_size_feed_forward": 2}, "chunk_size_feed_forward=2; only 0 is supported"),
    "a switch of 1": (OF_BERT | {"is_decoder": 1}, "is_decoder=1; expected true or false"),
    "no switch": (OF_LLAMA | {"is_causal": None}, "is_causal=null; expected true or false"),
    "an encoder that is causal": (OF_BERT | {"is_causal": True}, "is_causal=true and is_decoder=false"),
    "a whole epsilon": (OF_BERT | {"layer_norm_eps": 1}, "layer_norm_eps=1; expected a number above 0, such as 1e-05"),
    "an epsilon of another": (
        KNOWN["distilbert-base-uncased"] | {"layer_norm_eps": 0.5},
        "layer_norm_eps=0.5; only 1e-12",
    ),
    "two names": (OF_GPT2 | {"hidden_size": 1024}, "both n_embd=768 and hidden_size=1024"),
    "more heads than width": (
        OF_BERT | {"num_attention_heads": 1000},
        "1000 heads, which do not divide the width 768",
    ),
    "no kinds": (OF_BERT | {"type_vocab_size": 0}, "type_vocab_size=0; expected a whole number of at least 1"),
    "an odd head": (OF_LLAMA | {"head_dim": 7}, "gives each head 7 numbers; RoPE rotates pairs"),
    "groups that do not divide": (
        OF_LLAMA | {"num_key_value_heads": 5},
        "num_key_value_heads=5, which does not divide 32 heads",
    ),
    "nobody's head_dim": (OF_QWEN2 | {"head_dim": None}, "head_dim=null; expected a whole number"),
    "windows of nobody": (OF_LLAMA | {"sliding_window": 4}, "sliding_window=4; only null is supported"),
    "layers that nobody reads": (
        OF_MISTRAL | {"layer_types": ["full_attention"] * 32},
        "which is not read here and may change the numbers",
    ),
    "too few layers": (
        OF_QWEN2 | {"layer_types": ["full_attention"]},
        "layer_types for 1 layers, but num_hidden_layers=24",
    ),
    "no layers": (OF_QWEN2 | {"layer_types": []}, "layer_types for 0 layers, but num_hidden_layers=24"),
    "chunks": (
        OF_QWEN2 | {"layer_types": ["chunked_attention"] * 24},
        "expected a list of full_attention and sliding_attention",
    ),
    "no window": (OF_MISTRAL | {"sliding_window": 0}, "sliding_window=0; expected a whole number of at least 1"),
    "a tiny factor": (
        OF_LLAMA | {"rope_scaling": {"type": "linear", "factor": 1e-320}},
        "factor=1e-320; expected a number of at",
    ),
    "no base": (OF_LLAMA | {"rope_theta": None}, "rope_theta=null; expected a number of at least 1"),
    "a filler past the words": (
        OF_BERT | {"pad_token_id": 40000},
        "pad_token_id=40000, but the vocabulary has 30522 tokens",
    ),
    "a kernel of nothing": (OF_VIT | {"patch_size": 0}, "patch_size=0; expected a size, or [height,width]"),
    "a kernel past the picture": (
        OF_VIT | {"image_size": 8},
        "image_size=8, patch_size=16: no patch fits into the image",
    ),
    "infinity": (OF_LLAMA | {"rms_norm_eps": float("inf")}, "rms_norm_eps=inf; expected a number above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_field_that_changes_numbers_and_is_not_read_is_refused(name: str) -> None:
    said, message = REFUSED[name]
    found = refusal(held, said)
    assert found.startswith("config.json ")
    assert message in found
    assert len(found) < 250


def test_any_field_may_be_deep_or_long() -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    for value in (deep, "x" * 10**6, {"y" * 10**6: 1}):
        assert len(refusal(held, OF_BERT | {"z" * 10**5: value})) < 300
        assert len(refusal(held, OF_BERT | {"hidden_act": value})) < 300


def test_a_decoder_sees_no_later_token(tmp_path: Path) -> None:
    write_bert(tmp_path, is_decoder=True)
    for layer in (0, 1):
        found = comparison("model=bert", f"model.path={tmp_path}", "model.tokens=[1,2,3]", f"model.layer={layer}")
        weights = found.traces["multi_head"].weights
        assert weights is not None
        assert np.array_equal(weights == 0, np.broadcast_to(np.triu(np.ones((3, 3), bool), 1), weights.shape))
    write_bert(tmp_path, is_decoder=True, is_causal=False)
    assert comparison("model=bert", f"model.path={tmp_path}", "model.tokens=[1,2,3]").rows[0].mask == "none"


MISTRAL = OF_MISTRAL | {"sliding_window": 3}
QWEN2 = OF_QWEN2 | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 22}


@pytest.mark.parametrize(
    ("said", "windows"),
    [
        (MISTRAL, {0: (2, 0), 31: (2, 0)}),
        (MISTRAL | {"sliding_window": None}, {0: None}),
        (QWEN2, {0: None, 21: None, 22: (3, 0), 23: (3, 0)}),
        (QWEN2 | {"use_sliding_window": False}, {22: None}),
        (QWEN2 | {"layer_types": ["sliding_attention", *["full_attention"] * 23]}, {0: (3, 0), 1: None, 22: None}),
        (OF_QWEN2 | {"use_sliding_window": True, "num_hidden_layers": 40, "sliding_window": 4}, {23: None, 24: (3, 0)}),
        (OF_LLAMA, {0: None, 31: None}),
    ],
)
def test_a_window_counts_the_token_itself(said: dict[str, Any], windows: dict[int, tuple[int, int] | None]) -> None:
    config = held(said)
    for number, window in windows.items():
        sides = {} if window is None else {"window": {"left": window[0], "right": window[1]}}
        assert llama.mask(config, number) == {"causal": {}, **sides}


def test_qwen2_has_windows_from_layer_28_on_where_nothing_is_said() -> None:
    said = {name: value for name, value in OF_QWEN2.items() if name != "max_window_layers"}
    config = held(said | {"use_sliding_window": True, "num_hidden_layers": 30})
    assert ["window" in llama.mask(config, number) for number in (26, 27, 28, 29)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("said", "rope"),
    [
        ({}, {"rope": {"base": 10000.0, "interleaved": False}}),
        ({"rope_theta": 5}, {"rope": {"base": 5.0, "interleaved": False}}),
        ({"rope_theta": 5, "rope_parameters": {"rope_theta": 7.0}}, {"rope": {"base": 7.0, "interleaved": False}}),
        (
            {"rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_theta": 7.0}},
            {"rope": {"base": 10000.0, "interleaved": False, "stretch": 2.0}},
        ),
        (
            {
                "rope_scaling": {
                    key: value for key, value in LLAMA3.items() if key != "original_max_position_embeddings"
                }
            },
            {"rope_llama3": {"base": 1e4, "interleaved": False, "stretch": 32, "low": 1, "high": 4, "context": 4096}},
        ),
        (
            {"rope_scaling": LLAMA3, "original_max_position_embeddings": 99},
            {"rope_llama3": {"base": 1e4, "interleaved": False, "stretch": 32, "low": 1, "high": 4, "context": 99}},
        ),
    ],
)
def test_what_stretches_rotary_positions(said: dict[str, Any], rope: dict[str, Any]) -> None:
    assert llama.rope(held(OF_LLAMA | said)) == rope


def earlier(folder: Path) -> None:
    """Give the norms of a checkpoint the names that they had in 2019."""
    arrays = load_file(folder / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): array
        for name, array in arrays.items()
    }
    save_file({f"bert.{name}": array for name, array in renamed.items()}, folder / "model.safetensors")


def test_names_of_earlier_checkpoints_are_read(tmp_path: Path) -> None:
    words = ("model=bert", f"model.path={tmp_path}", "model.tokens=[1,2]", "model.layer=1")
    write_bert(tmp_path)
    today = comparison(*words)
    earlier(tmp_path)
    assert np.array_equal(comparison(*words).problem.x, today.problem.x)  # type: ignore[arg-type] # both are there
    arrays = load_file(tmp_path / "model.safetensors")
    arrays["bert.embeddings.LayerNorm.weight"] = np.ones(8, np.float32)
    save_file(arrays, tmp_path / "model.safetensors")
    assert "holds both bert.embeddings.LayerNorm.gamma and bert.embeddings.LayerNorm.weight" in refusal(
        comparison, *words
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"vocab_size": 9}, "embeddings.word_embeddings.weight has the shape [10, 8]; expected [9, 8]"),
        (
            {"intermediate_size": 11},
            "encoder.layer.0.intermediate.dense.weight has the shape [12, 8]; expected [11, 8]",
        ),
        ({"type_vocab_size": 1}, "token_type_embeddings.weight has the shape [2, 8]; expected [1, 8]"),
        ({"max_position_embeddings": 7}, "position_embeddings.weight has the shape [6, 8]; expected [7, 8]"),
        ({"hidden_size": 16}, "embeddings.word_embeddings.weight has the shape [10, 8]; expected [10, 16]"),
    ],
)
def test_tensors_have_the_sizes_that_are_said(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    write_bert(tmp_path, **changed)
    assert said in refusal(comparison, "model=bert", f"model.path={tmp_path}", "model.tokens=[1,2]", "model.layer=0")


def test_a_bias_that_config_json_denies_is_refused(tmp_path: Path) -> None:
    settings = {
        "model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 4,
        "intermediate_size": 3,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(settings), encoding="utf-8")
    ones = np.ones((8, 8), np.float32)
    arrays = {f"layers.0.self_attn.{side}_proj.weight": ones for side in "qkvo"}
    arrays |= {"embed_tokens.weight": ones[:4], "layers.0.input_layernorm.weight": ones[0]}
    arrays["layers.0.self_attn.q_proj.bias"] = ones[0]
    save_file(arrays, tmp_path / "model.safetensors")
    words = ("model=llama", f"model.path={tmp_path}", "model.tokens=[1]")
    assert "layers.0.self_attn.q_proj.bias exists, although config.json rules it out" in refusal(comparison, *words)
    (tmp_path / "config.json").write_text(json.dumps(settings | {"attention_bias": True}), encoding="utf-8")
    assert "unknown tensor 'layers.0.self_attn.k_proj.bias'" in refusal(comparison, *words)


@pytest.mark.parametrize("shape", [(3, 8, 32), (3, 32, 8), (1, 16, 16), (3, 17, 16)])
def test_a_picture_has_the_size_of_the_model(shape: tuple[int, ...]) -> None:
    opened = Checkpoint(Path(), held(OF_VIT | {"image_size": 16, "patch_size": 4}), {}, "model.path=a")
    message = refusal(vit.project_patches, opened, np.ones(shape))
    assert message == f"model.patches holds {' x '.join(map(str, shape))} pixels; the model takes 3 x 16 x 16"

"""Every family against `transformers`: tiny checkpoints of random numbers, in every layer, through a whole run."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attn_exp.arrays import Array
from attn_exp.experiment.row import Comparison
from tests.compose import comparison

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[libraries]'")
transformers = pytest.importorskip("transformers", reason="it is not installed: pip install 'attn-exp[libraries]'")

pytestmark = pytest.mark.long

IDS = [5, 3, 17, 3, 11, 0, 29, 5, 3, 8]
LAYERS, WIDTH, HEADS = 3, 24, 4
SIZES = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": 40}
WORDS = SIZES | {"vocab_size": 32, "max_position_embeddings": 32}
GPT2 = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": 32, "n_positions": 16}
DISTIL = {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 40, "vocab_size": 32}
GROUPED = WORDS | {"num_key_value_heads": 2}
STRETCHED = {"rope_type": "linear", "factor": 4.0, "rope_theta": 99.0}

LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 30.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 30,
}  # fmt: skip
"""Of the three pairs of a head, one makes more than 4 turns over 30 tokens, one less than 1, and one between."""


class Case(NamedTuple):
    """A family, the class of `transformers` that is built, its settings, and where the attention of layer N is.

    `last` is the part of that attention that its output comes from, where its own has a norm added."""

    family: str
    kind: str
    settings: dict[str, Any]
    attention: str
    last: str = ""


BERT, DISTILBERT, LLAMA = "encoder.layer.N.attention", "transformer.layer.N.attention", "layers.N.self_attn"

CASES = {
    "bert": Case("bert", "Bert", WORDS, BERT, ".output.dense"),
    "bert, another activation": Case("bert", "Bert", WORDS | {"hidden_act": "relu"}, BERT, ".output.dense"),
    "roberta": Case("bert", "Roberta", WORDS | {"pad_token_id": 1}, BERT, ".output.dense"),
    "roberta, filler inside": Case("bert", "Roberta", WORDS | {"pad_token_id": 11}, BERT, ".output.dense"),
    "distilbert": Case("bert", "DistilBert", DISTIL, DISTILBERT),
    "gpt2": Case("gpt2", "GPT2", GPT2, "h.N.attn"),
    "gpt2, scaled by layers": Case("gpt2", "GPT2", GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "h.N.attn"),
    "gpt2, not scaled": Case("gpt2", "GPT2", GPT2 | {"scale_attn_weights": False}, "h.N.attn"),
    "llama": Case("llama", "Llama", GROUPED, LLAMA),
    "llama, all heads their own": Case("llama", "Llama", WORDS, LLAMA),
    "llama, wider heads": Case("llama", "Llama", GROUPED | {"head_dim": 10}, LLAMA),
    "llama, biases": Case("llama", "Llama", GROUPED | {"attention_bias": True, "mlp_bias": True}, LLAMA),
    "llama, stretched": Case("llama", "Llama", GROUPED | {"rope_parameters": STRETCHED}, LLAMA),
    "llama, stretched as the third": Case("llama", "Llama", GROUPED | {"rope_parameters": LLAMA3}, LLAMA),
    "mistral": Case("llama", "Mistral", GROUPED | {"sliding_window": None}, LLAMA),
    "mistral, window": Case("llama", "Mistral", GROUPED | {"sliding_window": 3}, LLAMA),
    "qwen2": Case("llama", "Qwen2", GROUPED, LLAMA),
    "qwen2, window from layer 1": Case(
        "llama", "Qwen2", GROUPED | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}, LLAMA
    ),
    "vit": Case("vit", "ViT", SIZES | {"image_size": 12, "patch_size": 4, "num_channels": 3}, "layers.N.attention"),
}


def built(case: Case) -> Any:
    """Return a model of random numbers, large enough for attention that is far from even."""
    torch.manual_seed(0)
    settings = getattr(transformers, f"{case.kind}Config")(**case.settings, attn_implementation="eager")
    model = getattr(transformers, f"{case.kind}Model")(settings).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.2 if parameter.ndim == 1 else 0, 0.5)
    return model


class Seen(NamedTuple):
    """What `transformers` computes in a layer: what goes into its attention, its weights, and what comes out."""

    x: Array
    weights: Array
    output: Array


def seen(model: Any, case: Case, given: Any) -> list[Seen]:
    """Return what each layer of the model computes, seen by hooks on its attention."""
    inputs: list[Any] = []
    outputs: list[Any] = []

    def note_input(_: Any, args: Any, kwargs: Any) -> None:
        inputs.append(args[0] if args else kwargs["hidden_states"])

    def note_output(_: Any, args: Any, result: Any) -> None:
        outputs.append(result[0] if isinstance(result, tuple) else result)

    for number in range(LAYERS):
        name = case.attention.replace("N", str(number))
        model.get_submodule(name).register_forward_pre_hook(note_input, with_kwargs=True)
        model.get_submodule(name + case.last).register_forward_hook(note_output)
    with torch.no_grad():
        maps = model(given, output_attentions=True).attentions
    return [
        Seen(x[0].numpy(), weights[0].numpy(), output[0].numpy())
        for x, weights, output in zip(inputs, maps, outputs, strict=True)
    ]


def run(case: Case, path: Path, layer: int, *words: str) -> Comparison:
    """Run one layer of a checkpoint."""
    given = f"model.patches={path}/pixels.npy" if case.family == "vit" else f"model.tokens={IDS}"
    return comparison(f"model={case.family}", f"model.path={path}", f"model.layer={layer}", given, *words)


def check(found: Comparison, expected: Seen, close: float = 1e-5) -> None:
    """Hold a run to what a layer computed; both are float32, but for what the run does after x."""
    trace, x = found.traces["multi_head"], found.problem.x
    for mine, theirs in ((x, expected.x), (trace.weights, expected.weights), (trace.output, expected.output)):
        assert mine is not None
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=close * max(1.0, float(np.abs(theirs).max())))
    assert found.rows[0].error < 1e-12


def given_to(case: Case, folder: Path) -> Any:
    """Return what goes into the model; a picture is written beside it."""
    if case.family != "vit":
        return torch.tensor([IDS])
    pixels = np.random.default_rng(0).normal(size=(3, 12, 12)).astype(np.float32)
    np.save(folder / "pixels.npy", pixels)
    return torch.tensor(pixels)[None]


@pytest.mark.parametrize("name", CASES)
def test_every_layer_is_what_transformers_computes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = built(case)
    model.save_pretrained(tmp_path)
    for number, expected in enumerate(seen(model, case, given_to(case, tmp_path))):
        check(run(case, tmp_path, number), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_checkpoints_of_other_types(dtype: str, tmp_path: Path) -> None:
    case = CASES["qwen2"]
    built(case).to(getattr(torch, dtype)).save_pretrained(tmp_path)
    model = transformers.Qwen2Model.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="eager")
    check(run(case, tmp_path, 2), seen(model.eval(), case, given_to(case, tmp_path))[2])


def test_a_checkpoint_of_many_files(tmp_path: Path) -> None:
    case = CASES["llama"]
    model = built(case)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    check(run(case, tmp_path, 1), seen(model, case, given_to(case, tmp_path))[1])


def turned_back(weight: Any, heads: int) -> Any:
    """Return W_q or W_k as Meta's own code pairs numbers: 2i with 2i + 1, where `transformers` pairs i with i + d/2.

    Source: llama2.c, `export.py`, `permute_reverse`.
    """
    rows, width = weight.shape
    return weight.view(heads, 2, rows // heads // 2, width).transpose(1, 2).reshape(rows, width)


@pytest.mark.parametrize("shared", [True, False])
def test_a_file_of_llama2_c(shared: bool, tmp_path: Path) -> None:
    case = CASES["llama"]
    model = built(case)
    layers = model.layers
    parts = [model.embed_tokens.weight, *(layer.input_layernorm.weight for layer in layers)]
    parts += [turned_back(layer.self_attn.q_proj.weight, HEADS) for layer in layers]
    parts += [turned_back(layer.self_attn.k_proj.weight, 2) for layer in layers]
    parts += [layer.self_attn.v_proj.weight for layer in layers] + [layer.self_attn.o_proj.weight for layer in layers]
    parts += [layer.post_attention_layernorm.weight for layer in layers]
    parts += [getattr(layer.mlp, f"{name}_proj").weight for name in ("gate", "down", "up") for layer in layers]
    parts += [model.norm.weight, torch.zeros(32, 3), torch.zeros(32, 3)]
    parts += [] if shared else [torch.zeros(32, WIDTH)]
    header = struct.pack("<7i", WIDTH, 40, LAYERS, HEADS, 2, 32 if shared else -32, 32)
    numbers = b"".join(part.detach().numpy().astype("<f4").tobytes() for part in parts)
    (tmp_path / "stories.bin").write_bytes(header + numbers)
    for norm in (module for module in model.modules() if hasattr(module, "variance_epsilon")):
        norm.variance_epsilon = 1e-5  # as `run.c` has it
    for number, expected in enumerate(seen(model, case, given_to(case, tmp_path))):
        check(run(case, tmp_path / "stories.bin", number), expected)

"""Tiny models of every family with odd configurations: equal to `transformers` in every layer, or refused in a line.

A model of random numbers is built with the odd settings where `transformers` can build it, and saved; config.json then
says exactly what was drawn. What `transformers` raises at must be refused here; what it computes must be equal here, or
refused; and what is odd, but within what is said to be read, must be computed.
"""

from __future__ import annotations

import copy
import functools
import importlib
import json
import random
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from attn_exp.config.compose import compose_config
from attn_exp.config.inputs import Model
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.experiment.compare import compare
from attn_exp.experiment.row import Comparison
from tools.fuzz._folders import ODD

CLOSE, LONGEST = 1e-5, 300
transformers: Any = importlib.import_module("transformers")  # it has no types
torch.set_num_threads(1)
transformers.logging.set_verbosity(transformers.logging.CRITICAL)
transformers.logging.disable_progress_bar()


class Family(NamedTuple):
    """A value of `model_type`: what reads it here, its settings, and where the attention of layer N is.

    `last`: the part of that attention that its output comes from. `good`: settings that must be computed, by their
    values; `bad`: those that may be refused; `absent`: those that may be missing.
    """

    reader: str
    base: dict[str, Any]
    attention: str
    last: str
    good: dict[str, list[Any]]
    bad: dict[str, list[Any]]
    absent: list[str]


ACTS = ["gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish", "relu"]
EPSILONS = [1e-12, 1e-6, 1e-5, 0.01, 0.5]
HARMLESS: dict[str, list[Any]] = {
    "architectures": [["Whatever"], None], "_name_or_path": ["me/mine"], "transformers_version": ["4.6.0.dev0"],
    "torch_dtype": ["float16", "bfloat16", "float32", None], "dtype": ["float32"], "use_cache": [False, True],
    "initializer_range": [0.5], "id2label": [{"0": "no", "1": "yes", "2": "?"}, None], "label2id": [{"no": 0,
    "yes": 1}],
    "task_specific_params": [{"text-generation": {"max_length": 50}}], "gradient_checkpointing": [False],
    "output_attentions": [True, False], "output_hidden_states": [True], "bos_token_id": [3, None],
    "eos_token_id": [4, None], "tie_word_embeddings": [True, False], "max_length": [20], "do_sample": [True],
    "temperature": [0.7], "problem_type": ["regression", None], "finetuning_task": ["sst-2"], "num_labels": [5],
}  # fmt: skip
STRANGE: dict[str, list[Any]] = {
    "position_embedding_type": ["absolute", "relative_key", "relative_key_query", "alibi", None, 5],
    "chunk_size_feed_forward": [0, 2, 5, None, -1], "is_encoder_decoder": [False, True], "pruned_heads": [{},
    {"0": [1]}],
    "add_cross_attention": [True, False, None, 1], "quantization_config": [None, {"bits": 4}, {}],
    "per_layer_config": [None, {"0": {"intermediate_size": 8}}], "embedding_size": [12, None], "sliding_window": [2,
        None, 0],
    "layer_types": [None, [], "full_attention", ["full_attention"] * 3, ["sliding_attention"] * 3,
    ["chunked_attention"] * 3,
                    ["sliding_attention", "full_attention", "full_attention"], ["full_attention"] * 2, ["conv"] * 3, 7],
    "attn_logit_softcapping": [30.0], "final_logit_softcapping": [30.0], "qk_norm": [True, False],
    "use_qk_norm": [True],
    "use_rope": [False], "no_rope_layers": [[1, 0, 1]], "partial_rotary_factor": [0.5, 1.0, 1, None],
    "attention_multiplier": [0.5], "residual_multiplier": [0.2], "embedding_multiplier": [12.0],
    "query_pre_attn_scalar": [2],
    "attention_chunk_size": [2], "attention_dropout": [0.0, 0.1, None, 7], "rope_interleaved": [False, True],
    "original_max_position_embeddings": [8, 30, None], "max_window_layers": [0, 1, 2], "use_sliding_window": [True,
    False],
    "auto_map": [{"AutoModel": "modeling_mine.Mine"}], "default_theta": [7.0, None], "unknown": [1, None, "x", {},
    [[]]],
    "attribute_map": [{"hidden_size": "x"}], "hidden_size": [24, 48, 0, -24, 25], "num_hidden_layers": [3, 2, 4, 1, 0,
    -1],
    "num_attention_heads": [4, 2, 5, 0, 1000, 24, 48], "hidden_act": ["quick_gelu", "mish", "gelu_fast", "relu6",
    "prelu"],
    "num_key_value_heads": [1, 3, 8, 0, None], "head_dim": [6, 7, 5, 3, 1, 2, 0, None], "is_decoder": [True, False,
    None, 1],
    "is_causal": [True, False, None, 0], "layer_norm_eps": [1e-12, 1e-5, 0.5, 0, 1, -1.0, None], "rms_norm_eps": [1,
    0.0],
    "dtype": ["float64", "foo", 5], "hidden_dropout_prob": [0.5, -1, 2, None], "output_attentions": [None],
}  # fmt: skip
TURNS: list[Any] = [
    {"rope_type": "linear", "factor": 4.0}, {"type": "linear", "factor": 2}, {"rope_type": "default"}, None,
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 30},
    {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16,
     "rope_theta": 30.0},
    {"rope_type": "linear", "factor": 3.0, "rope_theta": 99.0}, {"rope_theta": 77.0}, {"rope_type": "default",
    "rope_theta": 5},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
]  # fmt: skip
TWISTS: list[Any] = [
    {"rope_type": "linear", "factor": 1e-320}, {"rope_type": "linear", "factor": 0}, {"rope_type": "linear"},
    {"rope_type": "linear", "factor": 0.5}, {"rope_type": "linear", "factor": -1}, {"rope_type": "linear",
    "factor": "2"},
    {"rope_type": "dynamic", "factor": 2.0}, {"rope_type": "yarn", "factor": 4.0}, {"rope_type": "proportional"},
    {"rope_type": "longrope", "short_factor": [1.0] * 3, "long_factor": [2.0] * 3}, {"rope_type": "default",
    "factor": 3.0},
    {"rope_type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5}, {"partial_rotary_factor": 0.5}, {}, [],
    "linear", 8,
    {"rope_type": None}, {"rope_theta": None}, {"rope_theta": 0}, {"rope_theta": -3.0}, {"rope_theta": 1e-5},
    {"rope_theta": 1e39},
    {"rope_theta": "x"}, {"full_attention": {"rope_theta": 5.0}}, {"rope_type": "mrope", "mrope_section": [1, 1, 1]},
    {"rope_type": "default", "mrope_section": [1, 1, 1]}, {"rope_type": "default", "type": "linear", "factor": 2.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 0, "high_freq_factor": 4.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 1e38},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "attention_factor": 3.0},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
     "original_max_position_embeddings": 0},
    {"rope_type": "linear", "factor": 2.0, "beta_fast": 32}, {"rope_type": "linear", "factor": 1e300},
]  # fmt: skip

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 20}
WORDS = SIZES | {"vocab_size": 32, "max_position_embeddings": 32}
BERT: dict[str, list[Any]] = {
    "layer_norm_eps": EPSILONS, "hidden_act": ACTS, "is_decoder": [True, False], "type_vocab_size": [1, 2, 3],
    "position_embedding_type": ["absolute"], "num_attention_heads": [1, 2, 3, 6, 8, 12, 24],
    "classifier_dropout": [None, 0.3],
    "intermediate_size": [1, 7, 96], "max_position_embeddings": [32, 14, 40], "hidden_dropout_prob": [0.0, 0],
    "add_cross_attention": [False], "attention_probs_dropout_prob": [0.5], "chunk_size_feed_forward": [0],
}  # fmt: skip
SEEN = ["layer_norm_eps", "hidden_act", "is_decoder", "type_vocab_size", "pad_token_id", "max_position_embeddings",
        "vocab_size", "num_hidden_layers", "rms_norm_eps", "num_key_value_heads", "sliding_window", "is_causal",
        "max_window_layers", "n_inner", "layer_norm_epsilon", "activation_function", "activation", "n_positions",
        "n_layer",
        "n_layers", "num_channels", "qkv_bias", "rope_theta", "rope_scaling", "rope_parameters"]  # fmt: skip
GPT2: dict[str, list[Any]] = {
    "layer_norm_epsilon": EPSILONS, "activation_function": ACTS, "n_inner": [None, 10, 96],
    "scale_attn_weights": [True, False],
    "scale_attn_by_inverse_layer_idx": [True, False], "n_ctx": [16], "reorder_and_upcast_attn": [True, False],
    "n_head": [1, 2, 3, 8], "n_positions": [16, 64], "attn_pdrop": [0.0, 1], "summary_type": ["last"],
    "is_causal": [True, False],
}  # fmt: skip
LLAMA: dict[str, list[Any]] = {
    "rms_norm_eps": EPSILONS, "hidden_act": ACTS, "num_key_value_heads": [1, 2, 4], "num_attention_heads": [4, 12],
    "is_causal": [True, False], "rope_theta": [10000.0, 10000, 50.0, 1e6], "rope_scaling": TURNS,
    "rope_parameters": TURNS,
    "attention_dropout": [0.0, 0], "max_position_embeddings": [8, 64], "pad_token_id": [0, None, -1],
    "intermediate_size": [1, 9],
    "tie_word_embeddings": [True],
}  # fmt: skip
TURNED: dict[str, list[Any]] = {
    "rope_scaling": [*TURNS, *TWISTS], "rope_parameters": [*TURNS, *TWISTS], "num_key_value_heads": [1, 3, 8, 0, None],
    "rope_theta": [None, 0, -1, 0.5, 1e39, "x", 1.0],
}  # fmt: skip
SLIDING: dict[str, list[Any]] = {
    "sliding_window": [1, 2, 3, 100, None], "use_sliding_window": [True], "max_window_layers": [0, 1, 2, 3, 99],
}  # fmt: skip
PATHS = {"bert": "encoder.layer.N.attention", "distilbert": "transformer.layer.N.attention", "gpt2": "h.N.attn",
         "llama": "layers.N.self_attn", "vit": "layers.N.attention"}  # fmt: skip
DISTIL = {"dim": 24, "n_layers": 3, "n_heads": 4, "hidden_dim": 20, "vocab_size": 32, "max_position_embeddings": 32}
FAMILIES: dict[str, Family] = {
    "bert": Family("bert", WORDS, PATHS["bert"], ".output.dense", BERT | {"pad_token_id": [0, 5, None]}, {}, SEEN),
    **{
        name: Family("bert", WORDS | {"pad_token_id": 1}, PATHS["bert"], ".output.dense", BERT | {"pad_token_id": [0,
        3, 7]},
                     {"pad_token_id": [31, None, -1, 99]}, SEEN)
        for name in ("roberta", "xlm-roberta", "camembert")
    },
    "distilbert": Family(
        "bert", DISTIL, PATHS["distilbert"], ".out_lin",
        {"activation": ACTS, "n_heads": [1, 2, 8], "hidden_dim": [5], "sinusoidal_pos_embds": [True, False],
        "tie_weights_": [True],
         "qa_dropout": [0.1], "seq_classif_dropout": [0.2], "layer_norm_eps": [1e-12], "dropout": [0.1]},
        {"n_heads": [5, 0], "dim": [48]}, SEEN),
    "gpt2": Family("gpt2", {"n_embd": 24, "n_layer": 3, "n_head": 4, "vocab_size": 32, "n_positions": 16},
    PATHS["gpt2"], ".c_proj",
                   GPT2, {"n_embd": [48], "n_head": [5, 0, 48], "n_layer": [2, 9], "n_inner": [0, -1]}, SEEN),
    "llama": Family("llama", WORDS, PATHS["llama"], ".o_proj", LLAMA | {"attention_bias": [True, False],
    "mlp_bias": [True],
                    "head_dim": [6, 2, 10, None], "pretraining_tp": [1, 2]}, TURNED, SEEN),
    "mistral": Family("llama", WORDS | {"num_key_value_heads": 2}, PATHS["llama"], ".o_proj",
                      LLAMA | {"sliding_window": SLIDING["sliding_window"], "head_dim": [6, 2, 10, None]}, TURNED,
                      SEEN),
    "qwen2": Family("llama", WORDS | {"num_key_value_heads": 2}, PATHS["llama"], ".o_proj", LLAMA | SLIDING | {
                    "layer_types": [["sliding_attention", "full_attention", "sliding_attention"],
                    ["full_attention"] * 3, None]},
                    TURNED, SEEN),
    "vit": Family("vit", SIZES | {"image_size": 12, "patch_size": 4, "num_channels": 3}, PATHS["vit"], ".o_proj",
                  {"layer_norm_eps": EPSILONS, "hidden_act": ACTS, "qkv_bias": [True, False], "patch_size": [4, 6, 3,
                  [4, 4], [6, 4]],
                   "num_attention_heads": [1, 2, 6], "image_size": [12, [12, 12]], "encoder_stride": [16],
                   "pooler_act": ["relu"]},
                  {"patch_size": [0, 5, 13, [4], [4, 0], 4.0], "image_size": [8, [12, 24], 0, [12, 12, 12], 13],
                   "num_channels": [1, 0, 4], "pooler_output_size": [24, 5, None], "pooler_act": ["x"]}, SEEN),
}  # fmt: skip


class Drawn(NamedTuple):
    """What a seed draws: settings of config.json, whether they must be computed, and what goes in."""

    kind: str
    settings: dict[str, Any]
    must: bool
    given: np.ndarray[Any, Any]


def drawn(seed: int) -> Drawn:
    """Draw a family and a few odd settings; half of the seeds stay within what must be computed."""
    chance = random.Random(seed)
    kind = chance.choice(list(FAMILIES))
    family, must = FAMILIES[kind], chance.random() < 0.5
    settings = {"model_type": kind, **family.base}
    for name in chance.sample(list(family.good), chance.choice((1, 2, 2, 3, 5))):
        settings[name] = chance.choice(family.good[name])
    if chance.random() < 0.4:
        settings |= {name: chance.choice(values) for name, values in chance.sample(list(HARMLESS.items()), 3)}
    if chance.random() < 0.4:
        settings = without(settings, chance.sample(family.absent, 2))
    if not must:
        strange = STRANGE | family.good | family.bad
        for name in chance.sample(list(strange), chance.choice((1, 1, 1, 2, 3))):
            settings[name] = chance.choice(
                [*strange[name], *family.bad.get(name, []), *(ODD if chance.random() < 0.15 else [])]
            )
        if chance.random() < 0.15:
            name = chance.choice([name for name in settings if name != "model_type"])
            settings[name] = chance.choice(ODD)
    stream = np.random.default_rng(seed)
    given = (
        stream.normal(size=(3, 12, 12)).astype(np.float32)
        if kind == "vit"
        else stream.integers(0, 32, stream.integers(1, 13))
    )
    return Drawn(kind, copy.deepcopy(settings), must, given)


def without(settings: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in names}


def too_large(settings: dict[str, Any]) -> bool:
    """Say whether a size is so large that `transformers` would be busy for hours."""
    return any(type(value) is int and value > 10**6 for name, value in settings.items() if name not in HARMLESS)


class Seen(NamedTuple):
    """What `transformers` computes in a layer: what goes into its attention, its weights, and what comes out."""

    x: Any
    weights: Any
    output: Any


def attempt(seed: int) -> str | None:
    """Return in what a drawn model differs from `transformers`, or how it falls; None where all is well."""
    case = drawn(seed)
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        write(case, folder, seed)
        theirs = expected(case, folder)
        wrong = compared(case, folder, theirs)
    odd = {key: value for key, value in case.settings.items() if FAMILIES[case.kind].base.get(key) != value}
    return wrong and f"{wrong}; {odd}, {case.given.shape}"


def write(case: Drawn, folder: Path, seed: int) -> None:
    """Write a model of random numbers: of the odd settings where they can be built, else of the plain ones."""
    torch.manual_seed(seed)
    for settings in (case.settings, {"model_type": case.kind, **FAMILIES[case.kind].base}):
        try:
            if too_large(settings):
                continue
            built(settings).save_pretrained(folder)
            break
        except Exception:  # whatever it is, plain settings are built
            continue
    (folder / "config.json").write_text(json.dumps(case.settings), encoding="utf-8")
    if case.kind == "vit":
        np.save(folder / "picture.npy", case.given)


def built(settings: dict[str, Any]) -> Any:
    """Return a model of these settings, with numbers large enough for attention that is far from even."""
    names = copy.deepcopy(settings)
    kind = names.pop("model_type")
    model = transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(kind, **names), attn_implementation="eager"
    ).float()
    if sum(parameter.numel() for parameter in model.parameters()) > 10**8:
        raise MemoryError("too large to be tried")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.2 if parameter.ndim == 1 else 0, 0.5)
    return model


def expected(case: Drawn, folder: Path) -> list[Seen] | str:
    """Return what `transformers` computes in each layer, or the line in which it raises."""
    if too_large(case.settings):
        return "it is too large to be tried"
    try:
        model, about = transformers.AutoModel.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        missing = [name for name in about["missing_keys"] if "pooler" not in name]
        if missing:
            return f"it draws {missing[0]}"
        return seen(model.eval(), case)
    except Exception as error:  # whatever it is, the model is not computed
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def seen(model: Any, case: Drawn) -> list[Seen]:
    family, number = FAMILIES[case.kind], 0
    inputs: list[Any] = []
    weights: list[Any] = []
    outputs: list[Any] = []
    parts = dict(model.named_modules())
    while part := parts.get(name := family.attention.replace("N", str(number))):
        part.register_forward_pre_hook(
            lambda _, args, kwargs: inputs.append((args[0] if args else kwargs["hidden_states"])[0]), with_kwargs=True
        )
        part.register_forward_hook(lambda _, args, result: weights.append(result[1][0]))
        parts[name + family.last].register_forward_hook(lambda _, args, result: outputs.append(result[0]))
        number += 1
    with torch.no_grad():
        model(torch.tensor(case.given)[None])
    return [Seen(*map(np.asarray, layer)) for layer in zip(inputs, weights, outputs, strict=True)]


@functools.cache
def plain(reader: str) -> Config:
    """Return the settings of a run of a family, composed once."""
    given = "model.patches=picture.npy" if reader == "vit" else "model.tokens=[1]"
    return compose_config([f"model={reader}", "model.path=nowhere", given, "variant=[multi_head]"], ())


def compared(case: Drawn, folder: Path, theirs: list[Seen] | str) -> str | None:
    """Hold every layer here to what was computed there; one that is refused must say so in a line."""
    reader = FAMILIES[case.kind].reader
    inputs: dict[str, Any] = {"tokens": None if reader == "vit" else tuple(map(int, case.given))}
    inputs["patches"] = str(folder / "picture.npy") if reader == "vit" else None
    refusal = None
    for number in range(3 if isinstance(theirs, str) else len(theirs)):
        settings = Model(reader, str(folder), None, inputs["tokens"], inputs["patches"], number)
        try:
            found = compare(replace(plain(reader), model=settings))
        except UserError as error:
            refusal = str(error).replace(str(folder), "DIR")
            break
        except Exception as error:
            return f"layer {number}: {type(error).__name__}: {str(error)[:200]}"
        if isinstance(theirs, str):
            return f"computed layer {number}, where transformers raises {theirs[:200]}"
        wrong = apart(found, theirs[number])
        if wrong:
            return f"layer {number}: {wrong}"
    if refusal and ("\n" in refusal or len(refusal) > LONGEST):
        return f"said {refusal!r}"
    must = case.must and not isinstance(theirs, str)
    return f"refused: {refusal}" if refusal and must and "not finite" not in refusal else None


def apart(found: Comparison, true: Seen) -> str | None:
    """Say in what a layer differs by more than float32 explains."""
    trace = found.traces["multi_head"]
    for what, mine, theirs in zip(Seen._fields, (found.problem.x, trace.weights, trace.output), true, strict=True):
        if mine is None or mine.shape != theirs.shape:
            return f"{what} has the shape {None if mine is None else mine.shape}, not {theirs.shape}"
        by = float(np.abs(mine - theirs).max()) / max(1.0, float(np.abs(theirs).max()))
        if not by <= CLOSE:
            return f"{what} differs by {by:.1e}"
    return None

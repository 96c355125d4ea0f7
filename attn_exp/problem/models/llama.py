"""Llama, Mistral, Qwen2 and the TinyStories models of llama2.c: rotary positions, grouped heads, SwiGLU, pre-norm.

Source: Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024; names as in `transformers`.
"""

from __future__ import annotations

from typing import Any

from attn_exp.errors import UserError
from attn_exp.problem.models._checkpoint import CONFIG
from attn_exp.problem.models._parts import ACTIVATION, count_key_heads, get_head_size
from attn_exp.problem.models.model import (
    AT_LEAST_1,
    COUNT,
    EPSILON,
    MAPPING,
    NUMBER,
    SIZE,
    SWITCH,
    TOKEN,
    Block,
    Config,
    Field,
    Fields,
    Kind,
    Model,
    Shapes,
    Supported,
    format_field,
    or_null,
    require_kind,
    require_supported,
)


def block(config: Config) -> Block:
    """Return the structure of a layer; the output projection of Qwen2 has no bias."""
    bias = config["attention_bias"]
    return Block(
        "layers.",
        tuple(f"self_attn.{side}_proj" for side in "qkvo"),
        ("input_layernorm", "post_attention_layernorm"),
        ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"),
        biases=(bias, bias and config["model_type"] != "qwen2", config["mlp_bias"]),
        centred=False,
    )


def inputs(config: Config) -> Shapes:
    yield "embed_tokens.weight", (config["vocab_size"], config["hidden_size"])


def rules(config: Config, number: int) -> dict[str, Any]:
    return {"mask": mask(config, number), "position": rope(config)}


def mask(config: Config, number: int) -> dict[str, Any]:
    """Return the masks of a layer: causal, and a window if it has one.

    The size of a causal window counts the token itself. The size of a bidirectional window counts the tokens on each
    side, without the token itself.
    """
    size = window(config, number)
    if not config["is_causal"]:
        return {"window": {"left": size, "right": size}} if size is not None else {}
    return {"causal": {}} | ({"window": {"left": size - 1, "right": 0}} if size is not None else {})


def window(config: Config, number: int) -> int | None:
    """Return the window size of a layer, or None if the layer sees all tokens."""
    size: int | None = config["sliding_window"]
    if config["model_type"] != "qwen2" or size is None:
        return size
    kinds = config["layer_types"]
    has_window = number >= config["max_window_layers"] if kinds is None else kinds[number] == SLIDING
    return size if has_window and config["use_sliding_window"] else None


BASE = {"base": ("rope_theta", AT_LEAST_1)}
ROPE_SCALINGS = {
    "default": ("rope", BASE),
    "linear": ("rope", BASE | {"stretch": ("factor", AT_LEAST_1)}),
    "llama3": (
        "rope_llama3",
        BASE
        | {
            "stretch": ("factor", AT_LEAST_1),
            "low": ("low_freq_factor", NUMBER),
            "high": ("high_freq_factor", NUMBER),
            "context": ("original_max_position_embeddings", AT_LEAST_1),
        },
    ),
}
"""For each RoPE scaling in config.json: our rule, and for each of its settings, the field of config.json to read."""


def rope(config: Config) -> dict[str, Any]:
    """Return the RoPE rule and its settings: the base, the scaling, and how features are paired.

    `rope_scaling` or, in newer files, `rope_parameters` takes precedence over top-level fields.

    Raises:
        UserError: no rule here supports this RoPE scaling.
    """
    scaling = config["rope_scaling"] or config["rope_parameters"] or {}
    scaling_type = scaling.get("rope_type", scaling.get("type", "default"))
    if not isinstance(scaling_type, str) or scaling_type not in ROPE_SCALINGS:
        raise UserError(
            f"{CONFIG} scales RoPE by {format_field('rope_type', scaling_type)}; known: {', '.join(ROPE_SCALINGS)}"
        )
    values = {"rope_theta": config["rope_theta"], **scaling}
    if scaling_type == "llama3":
        # the original context is a top-level field, else a field of the scaling, else the model's present context
        context = config["original_max_position_embeddings"]
        with_context = {"original_max_position_embeddings": config["max_position_embeddings"], **values}
        values = with_context if context is None else with_context | {"original_max_position_embeddings": context}
    rule, settings = ROPE_SCALINGS[scaling_type]
    for name in values.keys() - {key for key, _ in settings.values()} - {"rope_type", "type"}:
        require_supported(name, values[name], SUPPORTED_ROPE.get(name, (None,)))
    for key, expected in settings.values():
        require_kind(key, values.get(key), expected)
    numbers = {name: float(values[key]) for name, (key, _) in settings.items()}
    if numbers.get("low", 0) >= numbers.get("high", 1):
        raise UserError(
            f"{CONFIG} says low_freq_factor={numbers['low']:g} and high_freq_factor={numbers['high']:g}; "
            "expected the first below the second"
        )
    return {rule: {"interleaved": config["model_type"] == "llama2.c", **numbers}}


def check(config: Config) -> None:
    heads, groups, size = config["num_attention_heads"], count_key_heads(config), get_head_size(config)
    if heads % groups:
        raise UserError(f"{CONFIG} says num_key_value_heads={groups}, which does not divide {heads} heads")
    if size % 2:
        raise UserError(f"{CONFIG} gives each head {size} numbers; RoPE rotates pairs, so the number must be even")
    rope(config)  # raises an error if the RoPE scaling is not supported
    kinds, count = config.get("layer_types"), config["num_hidden_layers"]
    if kinds is not None and len(kinds) != count:
        raise UserError(f"{CONFIG} has layer_types for {len(kinds)} layers, but num_hidden_layers={count}")


SLIDING, FULL = "sliding_attention", "full_attention"
LAYERS = Kind(
    f"a list of {FULL} and {SLIDING}, or null",
    lambda value: value is None or (isinstance(value, list) and all(item in (SLIDING, FULL) for item in value)),
)
SUPPORTED_ROPE = {"partial_rotary_factor": (1.0, 1, None)}
"""Other fields of the RoPE scaling that are supported only with these values."""


def llama_fields(
    vocabulary: int, mlp_width: int, positions: int, *, read: dict[str, Field], same: Supported | None = None
) -> Fields:
    fields = {
        "vocab_size": Field(vocabulary, SIZE),
        "hidden_size": Field(4096, SIZE),
        "intermediate_size": Field(mlp_width, SIZE),
        "num_hidden_layers": Field(32, SIZE),
        "num_attention_heads": Field(32, SIZE),
        "num_key_value_heads": Field(None, or_null(SIZE)),
        "head_dim": Field(None, or_null(SIZE)),
        "hidden_act": Field("silu", ACTIVATION),
        "max_position_embeddings": Field(positions, SIZE),
        "layer_norm_eps": Field(1e-6, EPSILON, "rms_norm_eps"),
        "pad_token_id": Field(None, TOKEN),
        "is_causal": Field(True, SWITCH),
        "rope_theta": Field(10000.0, AT_LEAST_1),
        "rope_scaling": Field(None, MAPPING),
        "rope_parameters": Field(None, MAPPING),
        "original_max_position_embeddings": Field(None, SIZE),
        **read,
    }
    fixed = {"rope_interleaved": (False, None), "use_mrope": (False, None), **SUPPORTED_ROPE}
    fixed |= {"use_sliding_window": (False, None), "sliding_window": (None,)}
    harmless = "attention_dropout is_decoder is_llama_config pretraining_tp"
    return Fields(fields, check, {**fixed, **(same or {})}, harmless)


BIASES = {"attention_bias": Field(False, SWITCH), "mlp_bias": Field(False, SWITCH)}
NO_BIASES = {"attention_bias": (False,), "mlp_bias": (False,)}
LLAMA = llama_fields(32000, 11008, 2048, read=BIASES)
MISTRAL = llama_fields(
    32000,
    14336,
    131072,
    read={"num_key_value_heads": Field(8, SIZE), "sliding_window": Field(4096, or_null(SIZE))},
    same=NO_BIASES,
)
QWEN2 = llama_fields(
    151936,
    22016,
    32768,
    read={
        "num_key_value_heads": Field(32, or_null(SIZE)),
        "head_dim": Field(None, SIZE),
        "use_sliding_window": Field(False, SWITCH),
        "sliding_window": Field(4096, or_null(SIZE)),
        "max_window_layers": Field(28, COUNT),
        "layer_types": Field(None, LAYERS),
    },
    same={"attention_bias": (True,), "mlp_bias": (False,)},
)
LLAMA2C = llama_fields(
    32000, 11008, 2048, read={"layer_norm_eps": Field(1e-5, EPSILON, "rms_norm_eps")}, same=NO_BIASES
)
MODEL = Model(
    fields={"llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "llama2.c": LLAMA2C},
    anchor="embed_tokens.weight",
    inputs=inputs,
    embed=lambda checkpoint, ids: checkpoint.array("embed_tokens.weight", ids),
    block=block,
    rules=rules,
)

"""Llama, Mistral, Qwen2 and the TinyStories models of llama2.c: rotary positions, grouped heads, SwiGLU, norms before.

Source: Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024; names as `transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.files.checkpoint import CONFIG, Checkpoint
from attn_exp.problem.models._fields import (
    ANYTHING,
    AT_LEAST_1,
    COUNT,
    EPSILON,
    NUMBER,
    RATE,
    SIZE,
    SWITCH,
    TOKEN,
    Config,
    Field,
    Fields,
    Kind,
    check_filler,
    check_heads,
    check_kind,
    check_same,
    names,
    or_null,
    said_of,
)
from attn_exp.problem.models._parts import ACTIVATION, ACTIVATIONS, attend, dense, linear, named, rms_norm
from attn_exp.problem.models.model import Layer, Model, Shapes


def shapes(config: Config) -> Shapes:
    """Yield every tensor and its shape, its key/value heads as many as config.json says; Qwen2's output has no bias."""
    width, inner, size = config["hidden_size"], config["intermediate_size"], head_size(config)
    queries, keys, bias = config["num_attention_heads"] * size, groups(config) * size, config["attention_bias"]
    yield "embed_tokens.weight", (config["vocab_size"], width)
    for number in range(config["num_hidden_layers"]):
        at = f"layers.{number}."
        yield f"{at}input_layernorm.weight", (width,)
        for side, count in {"q": queries, "k": keys, "v": keys}.items():
            yield from dense(f"{at}self_attn.{side}_proj", width, count, bias=bias)
        yield from dense(f"{at}self_attn.o_proj", queries, width, bias=bias and config["model_type"] != "qwen2")
        yield f"{at}post_attention_layernorm.weight", (width,)
        yield from dense(f"{at}mlp.gate_proj", width, inner, bias=config["mlp_bias"])
        yield from dense(f"{at}mlp.up_proj", width, inner, bias=config["mlp_bias"])
        yield from dense(f"{at}mlp.down_proj", inner, width, bias=config["mlp_bias"])


def forward(checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += down(silu(gate(x)) * up(x))` with `x = norm(h)`."""
    config = checkpoint.config
    epsilon, bend, position = config["rms_norm_eps"], ACTIVATIONS[config["hidden_act"]], rope(config)
    h = checkpoint.array("embed_tokens.weight", ids)
    for number in range(config["num_hidden_layers"]):
        part = checkpoint.at(f"layers.{number}.")
        x = rms_norm(h, part.array("input_layernorm.weight"), epsilon)
        arrays = named(*(part.linear(f"self_attn.{side}_proj") for side in "qkvo"))
        layer = Layer(x, arrays, config["num_attention_heads"], True, mask(config, number), position)
        yield layer
        h = h + attend(layer)
        x = rms_norm(h, part.array("post_attention_layernorm.weight"), epsilon)
        gate = bend(linear(x, *part.linear("mlp.gate_proj")))
        gate *= linear(x, *part.linear("mlp.up_proj"))
        h = h + linear(gate, *part.linear("mlp.down_proj"))


def head_size(config: Config) -> int:
    """Return how many numbers a head has."""
    said: int | None = config["head_dim"]
    return config["hidden_size"] // config["num_attention_heads"] if said is None else said


def groups(config: Config) -> int:
    """Return how many key/value heads there are."""
    said: int | None = config["num_key_value_heads"]
    return config["num_attention_heads"] if said is None else said


def mask(config: Config, number: int) -> dict[str, Any]:
    """Return the masks of a layer: causal, and a window where it has one.

    A window counts the token itself; without `causal` it reaches as far to both sides, and counts it not.
    """
    size = window(config, number)
    if not config["is_causal"]:
        return {"window": {"left": size, "right": size}} if size is not None else {}
    return {"causal": {}} | ({"window": {"left": size - 1, "right": 0}} if size is not None else {})


def window(config: Config, number: int) -> int | None:
    """Return how far a layer sees; None = all."""
    size: int | None = config["sliding_window"]
    if config["model_type"] != "qwen2" or size is None:
        return size
    kinds = config["layer_types"]
    slides = number >= config["max_window_layers"] if kinds is None else kinds[number] == SLIDING
    return size if slides and config["use_sliding_window"] else None


class Stretch(NamedTuple):
    """A rule of positions, its settings by what config.json calls them, and their kinds there."""

    rule: str
    settings: dict[str, tuple[str, Kind]]


BASE = {"base": ("rope_theta", AT_LEAST_1)}
STRETCHED = {
    "default": Stretch("rope", BASE),
    "linear": Stretch("rope", BASE | {"stretch": ("factor", AT_LEAST_1)}),
    "llama3": Stretch(
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
"""How config.json may stretch rotary positions."""


def rope(config: Config) -> dict[str, Any]:
    """Return the rotary positions: their base, how they are stretched, and which numbers pair up.

    What `rope_scaling` or, today, `rope_parameters` says counts before what stands beside it.

    Raises:
        UserError: they are stretched in a way that no rule here knows.
    """
    for name in ("rope_scaling", "rope_parameters"):
        if config[name] is not None and not isinstance(config[name], dict):
            raise UserError(
                f"{CONFIG} stretches rope by {said_of(name, config[name])}; expected settings by their names"
            )
    said = config["rope_scaling"] or config["rope_parameters"] or {}
    kind = said.get("rope_type", said.get("type", "default"))
    if not isinstance(kind, str) or kind not in STRETCHED:
        raise UserError(f"{CONFIG} stretches rope by {said_of('rope_type', kind)}; known: {', '.join(STRETCHED)}")
    found = {"rope_theta": config["rope_theta"], **said}
    if kind == "llama3":
        found.setdefault("original_max_position_embeddings", config["max_position_embeddings"])
        if config["original_max_position_embeddings"] is not None:
            found["original_max_position_embeddings"] = config["original_max_position_embeddings"]
    rule, settings = STRETCHED[kind]
    for name in found.keys() - {key for key, _ in settings.values()} - {"rope_type", "type"}:
        check_same(name, found[name], ROPE.get(name, (None,)))
    for key, wanted in settings.values():
        check_kind(key, found.get(key), wanted)
    numbers = {name: float(found[key]) for name, (key, _) in settings.items()}
    if numbers.get("low", 0) >= numbers.get("high", 1):
        raise UserError(
            f"{CONFIG} says low_freq_factor={numbers['low']:g} and high_freq_factor={numbers['high']:g}; "
            "expected the first below the second"
        )
    base = numbers.pop("base")
    return {rule: {"base": base, "interleaved": config["model_type"] == "llama2.c", **numbers}}


def check(config: Config) -> None:
    """Refuse what does not go together."""
    heads, size, family = config["num_attention_heads"], head_size(config), config["model_type"]
    if config["head_dim"] is None or family == "llama":
        check_heads(config)
    if heads % groups(config):
        raise UserError(f"{CONFIG} says num_key_value_heads={groups(config)}, which does not divide {heads} heads")
    if size % 2:
        raise UserError(f"{CONFIG} gives each head {size} numbers; rotary positions turn pairs, so an even count")
    check_filler(config)
    rope(config)
    check_layers(config)


def check_layers(config: Config) -> None:
    """Refuse windows of layers that the other fields do not give them."""
    kinds, count = config["layer_types"], config["num_hidden_layers"]
    if kinds is None:
        return
    if len(kinds) != count:
        raise UserError(f"{CONFIG} says layer_types of {len(kinds)} layers, and num_hidden_layers={count}")
    for number, kind in enumerate(kinds):
        if (kind == SLIDING) != (window(config, number) is not None):
            otherwise = "slides" if kind == FULL else "does not slide"
            raise UserError(f"{CONFIG} says {kind} of layer {number}, which {otherwise} by the other fields")


SLIDING, FULL = "sliding_attention", "full_attention"
LAYERS = Kind(
    f"a list of {FULL} and {SLIDING}, or null",
    lambda value: value is None or (isinstance(value, list) and all(item in (SLIDING, FULL) for item in value)),
)
ROPE: dict[str, tuple[Any, ...]] = {"partial_rotary_factor": (1.0, 1, None)}
"""What else may stand where positions are stretched, with these values alone."""


def of_llama(
    words: int, inner: int, places: int, *, read: dict[str, Field], same: dict[str, tuple[Any, ...]] | None = None
) -> Fields:
    """Return the fields of Llama, with those of a relative put in their place."""
    fields = {
        "vocab_size": Field(words, SIZE),
        "hidden_size": Field(4096, SIZE),
        "intermediate_size": Field(inner, SIZE),
        "num_hidden_layers": Field(32, SIZE),
        "num_attention_heads": Field(32, SIZE),
        "num_key_value_heads": Field(None, or_null(SIZE)),
        "head_dim": Field(None, or_null(SIZE)),
        "hidden_act": Field("silu", ACTIVATION),
        "max_position_embeddings": Field(places, SIZE),
        "rms_norm_eps": Field(1e-6, EPSILON),
        "pad_token_id": Field(None, TOKEN),
        "is_causal": Field(True, SWITCH),
        "rope_theta": Field(10000.0, AT_LEAST_1),
        "rope_scaling": Field(None, ANYTHING),
        "rope_parameters": Field(None, ANYTHING),
        "original_max_position_embeddings": Field(None, SIZE),
        "layer_types": Field(None, LAYERS),
        **read,
    }
    fixed: dict[str, tuple[Any, ...]] = {"rope_interleaved": (False, None), "use_mrope": (False, None), **ROPE}
    fixed["use_sliding_window"] = (False, None)
    return Fields(
        read=fields,
        check=check,
        same={"sliding_window": (None,), **fixed, **(same or {})},
        harmless={
            **names(RATE, "attention_dropout"),
            **names(SWITCH, "is_decoder is_llama_config"),
            "pretraining_tp": or_null(COUNT),
        },
    )


BIASES = {"attention_bias": Field(False, SWITCH), "mlp_bias": Field(False, SWITCH)}
NO_BIASES: dict[str, tuple[Any, ...]] = {"attention_bias": (False,), "mlp_bias": (False,)}
LLAMA = of_llama(32000, 11008, 2048, read=BIASES)
MISTRAL = of_llama(
    32000,
    14336,
    131072,
    read={"num_key_value_heads": Field(8, SIZE), "sliding_window": Field(4096, or_null(SIZE))},
    same=NO_BIASES,
)
QWEN2 = of_llama(
    151936,
    22016,
    32768,
    read={
        "num_key_value_heads": Field(32, or_null(SIZE)),
        "head_dim": Field(None, SIZE),
        "use_sliding_window": Field(False, SWITCH),
        "sliding_window": Field(4096, or_null(SIZE)),
        "max_window_layers": Field(28, COUNT),
    },
    same={"attention_bias": (True,), "mlp_bias": (False,)},
)
LLAMA2C = of_llama(32000, 11008, 2048, read={"rms_norm_eps": Field(1e-5, EPSILON)}, same=NO_BIASES)
MODEL = Model(
    fields={"llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "llama2.c": LLAMA2C},
    anchor="embed_tokens.weight",
    shapes=shapes,
    forward=forward,
)

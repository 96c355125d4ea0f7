"""Llama, Mistral, Qwen2 and the TinyStories models of llama2.c: rotary positions, grouped heads, SwiGLU, norms before.

Source: Touvron et al. 2023; Jiang et al. 2023; Yang et al. 2024; names as `transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attn_exp.arrays import Array
from attn_exp.errors import UserError, brief, shown
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._parts import activation, attend, linear, named, rms_norm, words
from attn_exp.problem.models.model import Layer, Model

STRETCHED: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "default": ("rope", {}),
    "linear": ("rope", {"stretch": ("factor",)}),
    "llama3": (
        "rope_llama3",
        {
            "stretch": ("factor",),
            "low": ("low_freq_factor",),
            "high": ("high_freq_factor",),
            "context": ("original_max_position_embeddings", "max_position_embeddings"),
        },
    ),
}
"""How config.json may stretch rotary positions: the rule, and which of its settings are called what there."""


def depth(checkpoint: Checkpoint) -> int:
    """Return how many layers there are."""
    return checkpoint.size("num_hidden_layers")


def forward(checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield each layer: `h += attention(norm(h))`, then `h += down(silu(gate(x)) * up(x))` with `x = norm(h)`."""
    heads = checkpoint.size("num_attention_heads")
    epsilon = checkpoint.number("rms_norm_eps", default=1e-5)
    bend = activation(checkpoint, "hidden_act", "silu")
    h = words(checkpoint, "embed_tokens.weight", ids)
    width = h.shape[1]
    position = rope(checkpoint)
    for number in range(depth(checkpoint)):
        part = checkpoint.at(f"layers.{number}.")
        x = rms_norm(h, part.array("input_layernorm.weight", width), epsilon)
        arrays = attention(part.at("self_attn."), width, heads)
        layer = Layer(x, arrays, heads, True, mask(checkpoint, number), position)
        yield layer
        h = h + attend(layer)
        x = rms_norm(h, part.array("post_attention_layernorm.weight", width), epsilon)
        gate = bend(linear(x, *part.linear("mlp.gate_proj", width)))
        gate *= linear(x, *part.linear("mlp.up_proj", width, gate.shape[1]))
        h = h + linear(gate, *part.linear("mlp.down_proj", gate.shape[1], width))


def attention(part: Checkpoint, width: int, heads: int) -> dict[str, Array]:
    """Return the arrays of a layer, its key/value heads as many as config.json says."""
    size = part.size("head_dim", default=width // heads)
    groups = part.size("num_key_value_heads", default=heads)
    if heads % groups:
        raise UserError(f"{part.key}: config.json: num_key_value_heads={groups} does not divide {heads} heads")
    queries, keys, values = (
        part.linear(f"{name}_proj", width, count * size) for name, count in (("q", heads), ("k", groups), ("v", groups))
    )
    return named(queries, keys, values, part.linear("o_proj", heads * size, width))


def mask(checkpoint: Checkpoint, number: int) -> dict[str, Any]:
    """Return the masks of a layer: causal, and a window where it has one."""
    kinds, family = checkpoint.setting("layer_types"), checkpoint.config["model_type"]
    if isinstance(kinds, list) and len(kinds) > number:
        slides = kinds[number] == "sliding_attention"
    elif family == "qwen2":
        switched = checkpoint.setting("use_sliding_window", default=False) is True
        slides = switched and number >= checkpoint.size("max_window_layers", default=28, least=0)
    else:
        slides = family == "mistral" and checkpoint.setting("sliding_window") is not None
    return {"causal": {}} | ({"window": {"left": checkpoint.size("sliding_window") - 1, "right": 0}} if slides else {})


def rope(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the rotary positions: their base, how they are stretched, and which numbers pair up.

    Raises:
        UserError: they are stretched in a way that no rule here knows.
    """
    family = checkpoint.config["model_type"]
    said = checkpoint.setting("rope_parameters", "rope_scaling", default={})
    said = said if isinstance(said, dict) else {"rope_type": said}
    kind = said.get("rope_type", said.get("type", "default"))
    if not isinstance(kind, str) or kind not in STRETCHED:
        known = ", ".join(STRETCHED)
        raise UserError(f"{checkpoint.key}: config.json stretches rope by {brief(shown(kind))}; known: {known}")
    part = replace(checkpoint, config={**checkpoint.config, **said})
    if part.setting("partial_rotary_factor", default=1) != 1:
        raise UserError(f"{checkpoint.key}: config.json turns a part of each head alone, which {family} never does")
    rule, settings = STRETCHED[kind]
    numbers = {name: part.number(*names) for name, names in settings.items()}
    if numbers.get("low", 0) >= numbers.get("high", 1):
        raise UserError(
            f"{checkpoint.key}: config.json says low_freq_factor={numbers['low']:g} and "
            f"high_freq_factor={numbers['high']:g}; expected the first below the second"
        )
    base = part.number("rope_theta", default=10000.0)
    return {rule: {"base": base, "interleaved": family == "llama2.c", **numbers}}


MODEL = Model(
    types=("llama", "mistral", "qwen2", "llama2.c"), anchor="embed_tokens.weight", depth=depth, forward=forward
)

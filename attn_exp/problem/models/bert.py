"""BERT, and RoBERTa and DistilBERT, which name its parts otherwise: every token sees every other; norms come after.

Source: Devlin et al. 2018; Liu et al. 2019; Sanh et al. 2019; names as `transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError, brief, shown
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._parts import activation, attend, layer_norm, linear, named, places, words
from attn_exp.problem.models.model import Layer, Model


class Names(NamedTuple):
    """What the parts of a layer are called."""

    layer: str
    attention: tuple[str, str, str, str]
    first_norm: str
    wide: str
    narrow: str
    second_norm: str


ATTENTION = "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"
BERT = Names(
    "encoder.layer.", ATTENTION, "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"
)
DISTILBERT = Names(
    "transformer.layer.",
    ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    "sa_layer_norm",
    "ffn.lin1",
    "ffn.lin2",
    "output_layer_norm",
)


def depth(checkpoint: Checkpoint) -> int:
    """Return how many layers there are."""
    return checkpoint.size("num_hidden_layers", "n_layers")


def forward(checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield each layer: `h = norm(h + attention(h))`, then `h = norm(h + dense(gelu(dense(h))))`."""
    names = DISTILBERT if checkpoint.config["model_type"] == "distilbert" else BERT
    heads = checkpoint.size("num_attention_heads", "n_heads")
    epsilon = checkpoint.number("layer_norm_eps", default=1e-12)
    bend = activation(checkpoint, "activation" if names is DISTILBERT else "hidden_act", "gelu")
    h = embedded(checkpoint.at("embeddings."), ids, epsilon)
    width = h.shape[1]
    for number in range(depth(checkpoint)):
        part = checkpoint.at(f"{names.layer}{number}.")
        layer = Layer(h, named(*(part.linear(name, width, width) for name in names.attention)), heads)
        yield layer
        h = layer_norm(h + attend(layer), part, names.first_norm, epsilon)
        wide = bend(linear(h, *part.linear(names.wide, width)))
        narrow = linear(wide, *part.linear(names.narrow, wide.shape[1], width))
        h = layer_norm(h + narrow, part, names.second_norm, epsilon)


def embedded(part: Checkpoint, ids: Array, epsilon: float) -> Array:
    """Return the sum of the vectors of words, places and the first segment, after a norm."""
    kind = part.setting("position_embedding_type", default="absolute")
    if kind != "absolute":
        raise UserError(f"{part.key}: config.json says position_embedding_type={brief(shown(kind))}; known: absolute")
    h = words(part, "word_embeddings.weight", ids)
    width = h.shape[1]
    h = h + places(part, "position_embeddings.weight", width, numbered(part, ids))
    if part.has("token_type_embeddings.weight"):
        h += part.array("token_type_embeddings.weight", -1, width, rows=np.zeros(1, int))
    return layer_norm(h, part, "LayerNorm", epsilon)


def numbered(part: Checkpoint, ids: Array) -> Array:
    """Return the place of each token; RoBERTa counts what is no filler, from one after the id of its filler."""
    if part.config["model_type"] not in ROBERTA:
        return np.arange(len(ids))
    filler = part.size("pad_token_id", default=1, least=0)
    seen = ids != filler
    return np.asarray(np.cumsum(seen) * seen + filler)


ROBERTA = ("roberta", "xlm-roberta", "camembert")
MODEL = Model(
    types=("bert", *ROBERTA, "distilbert"),
    anchor="embeddings.word_embeddings.weight",
    depth=depth,
    forward=forward,
)

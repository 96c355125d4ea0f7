"""BERT, and RoBERTa and DistilBERT, which name its parts otherwise: every token sees every other; norms come after.

One that is a decoder sees no later token. Source: Devlin et al. 2018; Liu et al. 2019; Sanh et al. 2019; names as
`transformers` writes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.files.checkpoint import CONFIG, Checkpoint
from attn_exp.problem.models._fields import (
    ANYTHING,
    COUNT,
    EPSILON,
    RATE,
    SIZE,
    SWITCH,
    TOKEN,
    Config,
    Field,
    Fields,
    check_filler,
    check_heads,
    names,
    or_null,
)
from attn_exp.problem.models._parts import (
    ACTIVATION,
    ACTIVATIONS,
    attend,
    dense,
    layer_norm,
    linear,
    named,
    norm,
    places,
)
from attn_exp.problem.models.model import Layer, Model, Shapes


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


def shapes(config: Config) -> Shapes:
    """Yield every tensor and its shape."""
    names = DISTILBERT if config["model_type"] == "distilbert" else BERT
    width, inner, kinds = config["hidden_size"], config["intermediate_size"], config["type_vocab_size"]
    yield "embeddings.word_embeddings.weight", (config["vocab_size"], width)
    yield "embeddings.position_embeddings.weight", (config["max_position_embeddings"], width)
    if kinds:
        yield "embeddings.token_type_embeddings.weight", (kinds, width)
    yield from norm("embeddings.LayerNorm", width)
    for number in range(config["num_hidden_layers"]):
        at = f"{names.layer}{number}."
        for name in names.attention:
            yield from dense(at + name, width, width)
        yield from norm(at + names.first_norm, width)
        yield from dense(at + names.wide, width, inner)
        yield from dense(at + names.narrow, inner, width)
        yield from norm(at + names.second_norm, width)


def forward(checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield each layer: `h = norm(h + attention(h))`, then `h = norm(h + dense(gelu(dense(h))))`."""
    config = checkpoint.config
    names = DISTILBERT if config["model_type"] == "distilbert" else BERT
    epsilon, bend = config["layer_norm_eps"], ACTIVATIONS[config["hidden_act"]]
    mask: dict[str, Any] = {"causal": {}} if config["is_decoder"] and config["is_causal"] is not False else {}
    h = embedded(checkpoint.at("embeddings."), ids)
    for number in range(config["num_hidden_layers"]):
        part = checkpoint.at(f"{names.layer}{number}.")
        layer = Layer(h, named(*map(part.linear, names.attention)), config["num_attention_heads"], mask=mask)
        yield layer
        h = layer_norm(h + attend(layer), part, names.first_norm, epsilon)
        wide = bend(linear(h, *part.linear(names.wide)))
        h = layer_norm(h + linear(wide, *part.linear(names.narrow)), part, names.second_norm, epsilon)


def embedded(part: Checkpoint, ids: Array) -> Array:
    """Return the sum of the vectors of words, places and, where there are any, the first segment, after a norm."""
    config = part.config
    h = part.array("word_embeddings.weight", ids)
    numbers = numbered(ids, config["pad_token_id"]) if config["model_type"] in ROBERTA else np.arange(len(ids))
    h = h + places(part, "position_embeddings.weight", numbers)
    if config["type_vocab_size"]:
        h += part.array("token_type_embeddings.weight", np.zeros(1, int))
    return layer_norm(h, part, "LayerNorm", config["layer_norm_eps"])


def numbered(ids: Array, filler: int) -> Array:
    """Return the place of each token as RoBERTa counts them: what is no filler, from one after the id of its filler."""
    seen = ids != filler
    return np.asarray(np.cumsum(seen) * seen + filler)


def check(config: Config) -> None:
    """Refuse what does not go together."""
    check_heads(config)
    check_filler(config)
    filler, count = config["pad_token_id"], config["max_position_embeddings"]
    if config["model_type"] in ROBERTA and filler >= count:
        raise UserError(f"{CONFIG} says pad_token_id={filler}, from which RoBERTa counts its {count} places")
    if config["is_causal"] and not config["is_decoder"]:
        raise UserError(f"{CONFIG} says is_causal=true and is_decoder=false; one that is no decoder sees all tokens")


def of_bert(words: int, filler: Field) -> Fields:
    """Return the fields of BERT and of those that differ from it in their words and their filler alone."""
    return Fields(
        read={
            "vocab_size": Field(words, SIZE),
            "hidden_size": Field(768, SIZE),
            "num_hidden_layers": Field(12, SIZE),
            "num_attention_heads": Field(12, SIZE),
            "intermediate_size": Field(3072, SIZE),
            "hidden_act": Field("gelu", ACTIVATION),
            "max_position_embeddings": Field(512, SIZE),
            "type_vocab_size": Field(2, SIZE),
            "layer_norm_eps": Field(1e-12, EPSILON),
            "pad_token_id": filler,
            "is_decoder": Field(False, SWITCH),
            "is_causal": Field(None, SWITCH),
        },
        check=check,
        same={"position_embedding_type": ("absolute",)},
        harmless={
            **names(RATE, "hidden_dropout_prob attention_probs_dropout_prob"),
            **names(
                ANYTHING,
                "directionality pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head "
                "pooler_type",
            ),
            "classifier_dropout": or_null(RATE),
        },
    )


ROBERTA = ("roberta", "xlm-roberta", "camembert")
OF_DISTILBERT = Fields(
    read={
        "vocab_size": Field(30522, SIZE),
        "hidden_size": Field(768, SIZE, "dim hidden_size"),
        "num_hidden_layers": Field(6, SIZE, "n_layers num_hidden_layers"),
        "num_attention_heads": Field(12, SIZE, "n_heads num_attention_heads"),
        "intermediate_size": Field(3072, SIZE, "hidden_dim"),
        "hidden_act": Field("gelu", ACTIVATION, "activation"),
        "max_position_embeddings": Field(512, SIZE),
        "pad_token_id": Field(0, TOKEN),
    },
    check=check,
    same={"layer_norm_eps": (1e-12,), "type_vocab_size": (0,), "is_decoder": (False,), "is_causal": (False,)},
    harmless={
        **names(RATE, "dropout attention_dropout qa_dropout seq_classif_dropout"),
        **names(SWITCH, "sinusoidal_pos_embds"),
    },
)
MODEL = Model(
    fields={
        "bert": of_bert(30522, Field(0, TOKEN)),
        "roberta": of_bert(50265, Field(1, COUNT)),
        "xlm-roberta": of_bert(30522, Field(1, COUNT)),
        "camembert": of_bert(30522, Field(1, COUNT)),
        "distilbert": OF_DISTILBERT,
    },
    anchor="embeddings.word_embeddings.weight",
    shapes=shapes,
    forward=forward,
)

"""BERT, RoBERTa and DistilBERT: bidirectional attention, post-norm.

A decoder has a causal mask. Source: Devlin et al. 2018; Liu et al. 2019; Sanh et al. 2019; names as in `transformers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.problem.models._checkpoint import CONFIG, Checkpoint
from attn_exp.problem.models._parts import ACTIVATION, embed_positions, layer_norm, list_norm_shapes
from attn_exp.problem.models.model import (
    COUNT,
    EPSILON,
    SIZE,
    SWITCH,
    TOKEN,
    Block,
    Config,
    Field,
    Fields,
    Model,
    Shapes,
)

ROBERTA = ("roberta", "xlm-roberta", "camembert")
BERT = Block(
    "encoder.layer.",
    ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    ("attention.output.LayerNorm", "output.LayerNorm"),
    ("intermediate.dense", "output.dense"),
    norm_first=False,
)
DISTILBERT = Block(
    "transformer.layer.",
    ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    ("sa_layer_norm", "output_layer_norm"),
    ("ffn.lin1", "ffn.lin2"),
    norm_first=False,
)


def block(config: Config) -> Block:
    return DISTILBERT if config["model_type"] == "distilbert" else BERT


def inputs(config: Config) -> Shapes:
    sizes = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    for name, size in sizes.items():
        if config[size]:
            yield f"embeddings.{name}_embeddings.weight", (config[size], config["hidden_size"])
    yield from list_norm_shapes("embeddings.LayerNorm", config["hidden_size"])


def rules(config: Config, number: int) -> dict[str, Any]:
    return {"mask": {"causal": {}} if config["is_decoder"] and config["is_causal"] is not False else {}}


def embed(checkpoint: Checkpoint, ids: Array) -> Array:
    """Return the normalized sum of the word, position and segment embeddings.

    All tokens belong to the first segment; DistilBERT has no segments.
    """
    config, part = checkpoint.config, checkpoint.at("embeddings.")
    hidden = part.array("word_embeddings.weight", ids)
    numbers = number_tokens(ids, config["pad_token_id"]) if config["model_type"] in ROBERTA else np.arange(len(ids))
    hidden = hidden + embed_positions(part, "position_embeddings.weight", numbers)
    if config["type_vocab_size"]:
        hidden += part.array("token_type_embeddings.weight", np.zeros(1, int))
    return layer_norm(hidden, part, "LayerNorm", config["layer_norm_eps"])


def number_tokens(ids: Array, padding_id: int) -> Array:
    """Number tokens as RoBERTa does: skip padding, and start at the padding id plus 1."""
    is_token = ids != padding_id
    return np.asarray(np.cumsum(is_token) * is_token + padding_id)


def check(config: Config) -> None:
    padding_id, count = config["pad_token_id"], config["max_position_embeddings"]
    if config["model_type"] in ROBERTA and padding_id >= count:
        raise UserError(
            f"{CONFIG} says pad_token_id={padding_id}, but RoBERTa numbers its {count} positions from there"
        )
    if config["is_causal"] and not config["is_decoder"]:
        raise UserError(f"{CONFIG} says is_causal=true and is_decoder=false; only a decoder hides later tokens")


def bert_fields(vocabulary: int, pad_token: Field) -> Fields:
    return Fields(
        read={
            "vocab_size": Field(vocabulary, SIZE),
            "hidden_size": Field(768, SIZE),
            "num_hidden_layers": Field(12, SIZE),
            "num_attention_heads": Field(12, SIZE),
            "intermediate_size": Field(3072, SIZE),
            "hidden_act": Field("gelu", ACTIVATION),
            "max_position_embeddings": Field(512, SIZE),
            "type_vocab_size": Field(2, SIZE),
            "layer_norm_eps": Field(1e-12, EPSILON),
            "pad_token_id": pad_token,
            "is_decoder": Field(False, SWITCH),
            "is_causal": Field(None, SWITCH),
        },
        check=check,
        same={"position_embedding_type": ("absolute",)},
        harmless="hidden_dropout_prob attention_probs_dropout_prob classifier_dropout directionality pooler_fc_size "
        "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type",
    )


DISTILBERT_FIELDS = Fields(
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
    harmless="dropout attention_dropout qa_dropout seq_classif_dropout sinusoidal_pos_embds",
)
MODEL = Model(
    fields={
        "bert": bert_fields(30522, Field(0, TOKEN)),
        "roberta": bert_fields(50265, Field(1, COUNT)),
        "xlm-roberta": bert_fields(30522, Field(1, COUNT)),
        "camembert": bert_fields(30522, Field(1, COUNT)),
        "distilbert": DISTILBERT_FIELDS,
    },
    anchor="embeddings.word_embeddings.weight",
    inputs=inputs,
    embed=embed,
    block=block,
    rules=rules,
)

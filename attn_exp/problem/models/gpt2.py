"""GPT-2: causal attention, pre-norm, and a fused matrix for queries, keys and values.

Source: Radford et al. 2019; names as in `transformers`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.problem.models._checkpoint import Checkpoint
from attn_exp.problem.models._parts import ACTIVATION, embed_positions
from attn_exp.problem.models.model import EPSILON, SIZE, SWITCH, Block, Config, Field, Fields, Model, Shapes, or_null

BLOCK = Block("h.", ("attn.c_attn", "attn.c_proj"), ("ln_1", "ln_2"), ("mlp.c_fc", "mlp.c_proj"), transposed=False)


def inputs(config: Config) -> Shapes:
    yield "wte.weight", (config["vocab_size"], config["hidden_size"])
    yield "wpe.weight", (config["max_position_embeddings"], config["hidden_size"])


def embed(checkpoint: Checkpoint, ids: Array) -> Array:
    return checkpoint.array("wte.weight", ids) + embed_positions(checkpoint, "wpe.weight", np.arange(len(ids)))


def rules(config: Config, number: int) -> dict[str, Any]:
    return {"scale": scale(config, number), "mask": {"causal": {}} if config["is_causal"] else {}}


def scale(config: Config, number: int) -> bool | float:
    """Return the setting `scale` of a layer; some models also divide scores by the layer number, counted from 1."""
    divided: bool = config["scale_attn_weights"]
    if not config["scale_attn_by_inverse_layer_idx"]:
        return divided
    size = config["hidden_size"] // config["num_attention_heads"]
    return float((size**-0.5 if divided else 1) / (number + 1))


FIELDS = Fields(
    read={
        "vocab_size": Field(50257, SIZE),
        "max_position_embeddings": Field(1024, SIZE, "n_positions max_position_embeddings"),
        "hidden_size": Field(768, SIZE, "n_embd hidden_size"),
        "num_hidden_layers": Field(12, SIZE, "n_layer num_hidden_layers"),
        "num_attention_heads": Field(12, SIZE, "n_head num_attention_heads"),
        "intermediate_size": Field(None, or_null(SIZE), "n_inner"),
        "hidden_act": Field("gelu_new", ACTIVATION, "activation_function"),
        "layer_norm_eps": Field(1e-5, EPSILON, "layer_norm_epsilon"),
        "scale_attn_weights": Field(True, SWITCH),
        "scale_attn_by_inverse_layer_idx": Field(False, SWITCH),
        "is_causal": Field(True, SWITCH),
    },
    harmless="resid_pdrop embd_pdrop attn_pdrop summary_first_dropout is_decoder reorder_and_upcast_attn "
    "summary_use_proj summary_proj_to_labels summary_type summary_activation predict_special_tokens n_special n_ctx",
)
MODEL = Model(
    fields={"gpt2": FIELDS}, anchor="wte.weight", inputs=inputs, embed=embed, block=lambda config: BLOCK, rules=rules
)

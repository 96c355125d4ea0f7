"""The forward pass of all model families: norms, activations, and attention under the rules of a run."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.forms import pipeline
from attn_exp.forms.pipeline import Recipe
from attn_exp.forms.steps import join_heads, project, split
from attn_exp.problem.models._checkpoint import Checkpoint
from attn_exp.problem.models.model import Block, Config, Kind, Layer, Model, Shapes
from attn_exp.rules import make_all, make_masks
from attn_exp.rules.rules import Rules


def list_layer_shapes(config: Config, block: Block) -> Shapes:
    """Yield the name and the shape of each tensor of all layers; the shape None means that it must not exist."""
    width, heads, size = config["hidden_size"], config["num_attention_heads"], get_head_size(config)
    mlp_width, queries, keys = config["intermediate_size"] or 4 * width, heads * size, count_key_heads(config) * size
    (*side_names, output_name), (*wide_names, narrow_name) = block.attention, block.mlp
    outputs = (queries, keys, keys) if len(side_names) == 3 else (queries + 2 * keys,)
    # the biases of q, k and v, of the output, and of the MLP
    matrices = [(name, width, count, block.biases[0]) for name, count in zip(side_names, outputs, strict=True)]
    matrices.append((output_name, queries, width, block.biases[1]))
    matrices += [(name, width, mlp_width, block.biases[2]) for name in wide_names]
    matrices.append((narrow_name, mlp_width, width, block.biases[2]))
    for number in range(config["num_hidden_layers"]):
        prefix = f"{block.at}{number}."
        for name, rows, columns, biased in matrices:
            yield f"{prefix}{name}.weight", (columns, rows) if block.transposed else (rows, columns)
            yield f"{prefix}{name}.bias", (columns,) if biased else None
        for name in block.norms:
            yield from (
                list_norm_shapes(prefix + name, width) if block.centred else ((f"{prefix}{name}.weight", (width,)),)
            )


def list_norm_shapes(name: str, width: int) -> Shapes:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def get_head_size(config: Config) -> int:
    size: int | None = config.get("head_dim")
    return config["hidden_size"] // config["num_attention_heads"] if size is None else size


def count_key_heads(config: Config) -> int:
    count: int | None = config.get("num_key_value_heads")
    return config["num_attention_heads"] if count is None else count


def forward(family: Model, checkpoint: Checkpoint, ids: Array) -> Iterator[Layer]:
    """Yield the attention of each layer, in order; the rest of a layer is computed when the next one is requested."""
    config, block = checkpoint.config, family.block(checkpoint.config)
    hidden = family.embed(checkpoint, ids)
    for number in range(config["num_hidden_layers"]):
        part = checkpoint.at(f"{block.at}{number}.")
        first_norm, second_norm = (
            partial(layer_norm if block.centred else rms_norm, part=part, name=name, epsilon=config["layer_norm_eps"])
            for name in block.norms
        )
        x = first_norm(hidden) if block.norm_first else hidden
        layer = Layer(x, read_projections(part, block), config["num_attention_heads"], **family.rules(config, number))
        yield layer
        hidden = hidden + attend(layer)
        if block.norm_first:
            hidden = hidden + feed_forward(part, block, second_norm(hidden))
        else:
            hidden = first_norm(hidden)
            hidden = second_norm(hidden + feed_forward(part, block, hidden))


def feed_forward(part: Checkpoint, block: Block, x: Array) -> Array:
    """Return `f(x W) W'`, or `(f(x W) * (x V)) W'`, where f is the activation and each matrix has its bias."""
    wide, *gates, narrow = block.mlp
    value = ACTIVATIONS[part.config["hidden_act"]](linear(x, *read_matrix(part, block, wide)))
    for name in gates:
        value *= linear(x, *read_matrix(part, block, name))
    return linear(value, *read_matrix(part, block, narrow))


def read_matrix(part: Checkpoint, block: Block, name: str) -> tuple[Array, Array | None]:
    """Return the weight W `[m n]` and the bias b `[n]` of a part; b is None if the part has no bias."""
    weight, bias = part.array(f"{name}.weight"), f"{name}.bias"
    return weight.T if block.transposed else weight, part.array(bias) if part.has(bias) else None


def read_projections(part: Checkpoint, block: Block) -> dict[str, Array]:
    """Return the projections W and b under our names; if only some of them have a bias, the other biases are zero."""
    pairs = [read_matrix(part, block, name) for name in block.attention]
    if len(pairs) == 2:
        (weights, biases), output = pairs
        thirds = [None] * 3 if biases is None else np.split(biases, 3)
        pairs = [*zip(np.split(weights, 3, axis=1), thirds, strict=True), output]
    arrays = {f"W_{letter}": weight for letter, (weight, _) in zip("qkvo", pairs, strict=True)}
    if all(bias is None for _, bias in pairs):
        return arrays
    zeros = (np.zeros(weight.shape[1], weight.dtype) if bias is None else bias for weight, bias in pairs)
    return arrays | dict(zip(("b_q", "b_k", "b_v", "b_o"), zeros, strict=True))


def embed_positions(part: Checkpoint, name: str, numbers: Array) -> Array:
    """Return the position embedding of each token `[t m]`; `numbers` are the positions of the tokens.

    Raises:
        UserError: there are more tokens than the model has positions.
    """
    # RoBERTa skips the positions up to the padding id
    positions, skipped = part.config["max_position_embeddings"], int(numbers.max()) + 1 - len(numbers)
    if numbers.max() >= positions:
        raise UserError(f"{part.key}: {len(numbers)} tokens, but the model takes at most {max(0, positions - skipped)}")
    return part.array(name, numbers)


def attend(layer: Layer) -> Array:
    """Return the output of a layer's attention `[t m]`: `softmax(scale q k^T) v W_o + b_o`, heads side by side.

    The heads are computed one after another, because the logits of a long text may not fit into memory at once.
    """
    size = layer.arrays["W_q"].shape[1] // layer.head
    sides = (project(letter, layer.x, layer.arrays) for letter in "qkv")
    q, k, v = (split(side, side.shape[1] // size) for side in sides)
    indices = np.arange(len(layer.x))
    for position in make_all("position", layer.position):
        q, k = position.turn(q, indices), position.turn_key(k, indices)
    scale = (size**-0.5 if layer.scale else 1.0) if isinstance(layer.scale, bool) else layer.scale
    recipe = Recipe(Rules(scale=scale, masks=make_masks(layer.mask, "and") if layer.mask else ()))
    context = np.empty((*q.shape[:-1], v.shape[-1]), v.dtype)
    for head in range(len(q)):
        shared = slice(head * len(k) // len(q), head * len(k) // len(q) + 1)
        context[head] = pipeline.attend(recipe, q[head : head + 1], k[shared], v[shared]).context
    return project("o", join_heads(context), layer.arrays)


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    return x @ weight if bias is None else x @ weight + bias


def layer_norm(x: Array, part: Checkpoint, name: str, epsilon: float) -> Array:
    """Return `(x - mean) / sqrt(variance + epsilon) * weight + bias` of each row. Source: Ba et al. 2016."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("tm,tm->t", centred, centred)[:, None] / x.shape[1]
    scaled = centred * (1 / np.sqrt(variance + x.dtype.type(epsilon)))
    return np.asarray(scaled * part.array(f"{name}.weight") + part.array(f"{name}.bias"))


def rms_norm(x: Array, part: Checkpoint, name: str, epsilon: float) -> Array:
    """Return `x / sqrt(mean(x^2) + epsilon) * weight` of each row. Source: Zhang and Sennrich 2019."""
    mean = np.einsum("tm,tm->t", x, x)[:, None] / x.shape[1]
    return np.asarray(x / np.sqrt(mean + x.dtype.type(epsilon)) * part.array(f"{name}.weight"))


ODD = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
       -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
EVEN = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
        -1.42647390514189e-02)  # fmt: skip


def erf(x: Array) -> Array:
    """Return the error function, accurate to 3e-7, as `z P(z^2) / Q(z^2)` with z clipped to -4 and 4.

    Source: the coefficients of Eigen's `erf` for float32; NumPy has no such function.
    """
    z = np.clip(x, -4, 4)
    return z * polynomial(ODD, z * z) / polynomial(EVEN, z * z)


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Evaluate a polynomial by Horner's rule, the highest power first."""
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = value * x + x.dtype.type(coefficient)
    return value


def gelu(x: Array) -> Array:
    """Return `x (1 + erf(x / sqrt 2)) / 2`. Source: Hendrycks and Gimpel 2016."""
    return (erf(x * x.dtype.type(0.5**0.5)) + 1) * x * 0.5


def gelu_tanh(x: Array) -> Array:
    """Return `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, as in GPT-2. Source: as for `gelu`."""
    value = np.tanh((x * x * 0.044715 + 1) * x * (2 / np.pi) ** 0.5)
    return np.asarray((value + 1) * x * 0.5)


def silu(x: Array) -> Array:
    """Return `x / (1 + e^-x)`."""
    return np.asarray(x / (np.exp(-x) + 1))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


ACTIVATIONS = {
    "gelu": gelu, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "silu": silu, "swish": silu, "relu": relu
}  # fmt: skip
ACTIVATION = Kind(f"one of {', '.join(ACTIVATIONS)}", lambda value: isinstance(value, str) and value in ACTIVATIONS)

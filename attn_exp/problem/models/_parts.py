"""What forward passes are made of: norms, activations, and attention by the rules of a run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.forms import pipeline
from attn_exp.forms.pipeline import Recipe
from attn_exp.forms.steps import join_heads, project, split
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._fields import Kind
from attn_exp.problem.models.model import Layer, Shapes
from attn_exp.rules import masks, positions
from attn_exp.rules.rules import Rules


def dense(name: str, inputs: int, outputs: int, *, bias: bool = True) -> Shapes:
    """Yield the shapes of an `nn.Linear`, which stores its matrix turned."""
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,) if bias else None


def norm(name: str, width: int) -> Shapes:
    """Yield the shapes of a norm of weights and biases."""
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def places(part: Checkpoint, name: str, numbers: Array) -> Array:
    """Return the vector of each place `[t m]`.

    Raises:
        UserError: more tokens than the model has places for.
    """
    count, spare = part.rows(name), int(numbers.max()) + 1 - len(numbers)
    if numbers.max() >= count:
        raise UserError(f"{part.key}: {len(numbers)} tokens, but the model takes at most {max(0, count - spare)}")
    return part.array(name, numbers)


def attend(layer: Layer) -> Array:
    """Return what the attention of a layer gives `[t m]`: `softmax(scale q k^T) v W_o + b_o`, heads side by side.

    It is the pipeline, a head at a time: all logits of a long text may not fit into memory.
    """
    size = layer.arrays["W_q"].shape[1] // layer.head
    q, k, v = (split(side, side.shape[1] // size) for side in (project(one, layer.x, layer.arrays) for one in "qkv"))
    places = np.arange(len(layer.x))
    for position in positions(layer.position):
        q, k = position.turn(q, places), position.turn_key(k, places)
    scale = (size**-0.5 if layer.scale else 1.0) if isinstance(layer.scale, bool) else layer.scale
    recipe = Recipe(Rules(scale=scale, masks=masks(layer.mask, "and") if layer.mask else ()))
    context = np.empty((*q.shape[:-1], v.shape[-1]), v.dtype)
    for head in range(len(q)):
        shared = slice(head * len(k) // len(q), head * len(k) // len(q) + 1)
        context[head] = pipeline.attend(recipe, q[head : head + 1], k[shared], v[shared]).context
    return project("o", join_heads(context), layer.arrays)


def named(*pairs: tuple[Array, Array | None]) -> dict[str, Array]:
    """Return W and b of queries, keys, values and the output by our names; a b that one of them lacks is zero."""
    biased = any(bias is not None for _, bias in pairs)
    arrays = {f"W_{letter}": weight for letter, (weight, _) in zip("qkvo", pairs, strict=True)}
    if not biased:
        return arrays
    zeros = (np.zeros(weight.shape[1], weight.dtype) if bias is None else bias for weight, bias in pairs)
    return arrays | dict(zip(("b_q", "b_k", "b_v", "b_o"), zeros, strict=True))


def linear(x: Array, weight: Array, bias: Array | None) -> Array:
    """Return `x W + b`."""
    product: Array = x @ weight
    if bias is not None:
        product += bias
    return product


def layer_norm(x: Array, part: Checkpoint, name: str, epsilon: float) -> Array:
    """Return `(x - mean) / sqrt(variance + epsilon) * weight + bias` of each row. Source: Ba et al. 2016."""
    centred: Array = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("tm,tm->t", centred, centred)[:, None] / x.shape[1]
    centred *= 1 / np.sqrt(variance + x.dtype.type(epsilon))
    centred *= part.array(f"{name}.weight")
    centred += part.array(f"{name}.bias")
    return centred


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """Return `x / sqrt(mean(x^2) + epsilon) * weight` of each row. Source: Zhang and Sennrich 2019."""
    mean = np.einsum("tm,tm->t", x, x)[:, None] / x.shape[1]
    return np.asarray(x / np.sqrt(mean + x.dtype.type(epsilon)) * weight)


ODD = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
       -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
EVEN = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
        -1.42647390514189e-02)  # fmt: skip


def erf(x: Array) -> Array:
    """Return the error function to 3e-7, as `z P(z^2) / Q(z^2)` with z held between -4 and 4.

    Source: the coefficients of Eigen's `erf` for float32; NumPy has none.
    """
    z = np.clip(x, -4, 4)
    square = z * z
    z *= polynomial(ODD, square)
    z /= polynomial(EVEN, square)
    return z


def polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    """Return a polynomial by Horner's rule, the highest power first."""
    value = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        value *= x
        value += x.dtype.type(coefficient)
    return value


def gelu(x: Array) -> Array:
    """Return `x (1 + erf(x / sqrt 2)) / 2`. Source: Hendrycks and Gimpel 2016."""
    value = erf(x * x.dtype.type(0.5**0.5))
    value += 1
    value *= x
    value *= 0.5
    return value


def gelu_tanh(x: Array) -> Array:
    """Return `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`, as GPT-2 was trained. Source: as `gelu`."""
    value = x * x
    value *= 0.044715
    value += 1
    value *= x
    value *= (2 / np.pi) ** 0.5
    np.tanh(value, out=value)
    value += 1
    value *= x
    value *= 0.5
    return value


def silu(x: Array) -> Array:
    """Return `x / (1 + e^-x)`."""
    value = np.negative(x)
    np.exp(value, out=value)
    value += 1
    return np.asarray(np.divide(x, value, out=value))


def relu(x: Array) -> Array:
    """Return x where it is above 0, else 0."""
    return np.maximum(x, 0)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "gelu": gelu, "gelu_new": gelu_tanh, "gelu_pytorch_tanh": gelu_tanh, "silu": silu, "swish": silu, "relu": relu
}  # fmt: skip
ACTIVATION = Kind(f"one of {', '.join(ACTIVATIONS)}", lambda value: isinstance(value, str) and value in ACTIVATIONS)
"""How config.json names a function between two matrices."""

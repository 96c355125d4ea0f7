"""What the layers of PyTorch hold when they are new: the calls that each makes of the generator, in their order.

A `Linear` stores its weight `[outputs inputs]` and computes `x W^T + b`; what is returned here is turned, `[inputs
outputs]`, as the projections of a run have it.

Source: PyTorch, `torch/nn/init.py`, `torch/nn/modules/linear.py` and `activation.py`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from attn_exp.arrays import Array

if TYPE_CHECKING:
    from attn_exp.problem.generators.generator import Stream


def weight(stream: Stream, inputs: int, outputs: int) -> Array:
    """Return the matrix `[inputs outputs]` of a new `nn.Linear(inputs, outputs)`: uniform within `1 / sqrt(inputs)`."""
    spread = math.sqrt(2 / (1 + math.sqrt(5) ** 2)) / math.sqrt(inputs)  # the gain of a leaky ReLU of slope sqrt(5)
    return stream.uniform((outputs, inputs), -math.sqrt(3) * spread, math.sqrt(3) * spread).T


def bias(stream: Stream, inputs: int, outputs: int) -> Array:
    """Return the bias `[outputs]` of a new `nn.Linear(inputs, outputs)`, drawn right after its matrix."""
    return stream.uniform((outputs,), -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


def embedding(stream: Stream, rows: int, size: int) -> Array:
    """Return the table `[rows size]` of a new `nn.Embedding(rows, size)`."""
    return stream.normal((rows, size), 0.0, 1.0)


def xavier(stream: Stream, outputs: int, inputs: int) -> Array:
    """Return a matrix `[outputs inputs]`, uniform within `sqrt(6 / (inputs + outputs))`."""
    within = math.sqrt(3) * math.sqrt(2 / (inputs + outputs))
    return stream.uniform((outputs, inputs), -within, within)


def multi_head_attention(stream: Stream, size: int, biases: bool, source: int | None = None) -> dict[str, Array]:
    """Return the projections of a new `nn.MultiheadAttention(size, heads, bias=biases)`.

    Its output projection is drawn first, as any `Linear`; then one matrix `[3 size, size]` of queries, keys and
    values, uniform within `sqrt(6 / (size + 3 size))`. Every bias is zero, that of the output too, though it is drawn.
    With keys and values of another size, `kdim=source, vdim=source`, the three are drawn one after another.
    """
    output = weight(stream, size, size)
    if biases:
        bias(stream, size, size)
    if source in (None, size):
        sides = np.split(xavier(stream, 3 * size, size), 3)
    else:
        sides = [xavier(stream, size, inputs) for inputs in (size, source or 0, source or 0)]
    zeros = {f"b_{letter}": np.zeros(size, np.float32) for letter in "qkvo"} if biases else {}
    return {f"W_{letter}": side.T for letter, side in zip("qkv", sides, strict=True)} | {"W_o": output} | zeros

"""What a family of models is: the checkpoints it reads, and a forward pass that stops where a run wants to look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from attn_exp.arrays import Array
from attn_exp.problem.files.checkpoint import Checkpoint
from attn_exp.problem.models._fields import Config, Fields

Shapes = Iterator[tuple[str, tuple[int, ...] | None]]


@dataclass(frozen=True)
class Layer:
    """The attention of one layer: what goes in, its arrays, and the rules that it computes by.

    `x` `[t m]`: what W_q, W_k and W_v are multiplied with, after a norm where the layer has one before them.
    `arrays`: W_q `[m h*d]`, W_k and W_v `[m g*d]`, W_o `[h*d m]`, and b_q, b_k, b_v, b_o where it adds biases.
    `head`: query heads; key/value heads are as many as W_k holds.
    `scale`, `mask`, `position`: as the settings of a run say them.
    """

    x: Array
    arrays: Mapping[str, Array]
    head: int
    scale: bool | float = True
    mask: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """A family of models; a file holds one, as `MODEL`.

    A checkpoint comes with `config` held to `fields`: every field that is read is there, and of its kind; sizes
    are called alike in all families.


    `fields`: what config.json may say, for each `model_type` that it may have.
    `anchor`: the name of a tensor that every such checkpoint has; what stands before it there, all names begin with.
    `shapes`: yields every tensor that a checkpoint of these settings has, by its name after that prefix, and its shape;
    None where it must not have one.
    `forward`: yields the layers from the first on; what comes after one is computed when the next is asked for.
    `takes`: `words`, token ids `[t]`, or `patches` of a picture `[n m]`, or its pixels `[c y x]`.
    """

    fields: Mapping[str, Fields]
    anchor: str
    shapes: Callable[[Config], Shapes]
    forward: Callable[[Checkpoint, Array], Iterator[Layer]]
    takes: str = "words"

"""What a family of models is: the checkpoints it reads, how their layers are built, and what goes into the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attn_exp.arrays import Array
from attn_exp.problem.models._checkpoint import Checkpoint
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


class Block(NamedTuple):
    """What the parts of a layer are called, and how they are put together.

    `at`: what stands before the number of the layer.
    `attention`: the matrices of queries, keys, values and the output; or of the first three side by side, and the last.
    `norms`: the norms beside attention and MLP.
    `mlp`: a matrix whose outcome is bent, perhaps one whose outcome that is multiplied with, and the last.
    `biases`: whether queries, keys and values, the output, and the MLP have biases.
    `norm_first`: whether `h += part(norm(h))`, or else `h = norm(h + part(h))`.
    `centred`: whether norms take off the mean and add a bias.
    `stored_turned`: whether matrices lie as `nn.Linear` has them, `[outputs inputs]`.
    """

    at: str
    attention: tuple[str, ...]
    norms: tuple[str, str]
    mlp: tuple[str, ...]
    biases: tuple[bool, bool, bool] = (True, True, True)
    norm_first: bool = True
    centred: bool = True
    stored_turned: bool = True


@dataclass(frozen=True)
class Model:
    """A family of models; a file holds one, as `MODEL`.

    A checkpoint comes with `config` held to `fields`: every field that is read is there, of its kind, and called alike
    in all families.

    `fields`: what config.json may say, for each `model_type` that it may have.
    `anchor`: the name of a tensor that every such checkpoint has; what stands before it there, all names begin with.
    `inputs`: yields the tensors that `embed` reads, by their names after that prefix, and their shapes.
    `embed`: returns the vectors `[t m]` that go into the first layer.
    `block`: returns what a layer is built of.
    `rules`: returns `scale`, `mask` and `position` of the layer of that number, where they are not those of `Layer`.
    `takes`: `words`, token ids `[t]`, or `patches` of a picture `[n m]`, or its pixels `[c y x]`.
    """

    fields: Mapping[str, Fields]
    anchor: str
    inputs: Callable[[Config], Shapes]
    embed: Callable[[Checkpoint, Array], Array]
    block: Callable[[Config], Block]
    rules: Callable[[Config, int], dict[str, Any]] = lambda config, number: {}
    takes: str = "words"

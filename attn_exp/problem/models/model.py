"""What a family of models is: the checkpoints it reads, how their layers are built, and the input of the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attn_exp.arrays import Array, Arrays, Shape
from attn_exp.problem.models._checkpoint import Checkpoint
from attn_exp.problem.models._fields import Config, Fields

Shapes = Iterator[tuple[str, Shape | None]]


@dataclass(frozen=True)
class Layer:
    """The attention of one layer: its input, its arrays, and its rules.

    `x` `[t m]`: the input of W_q, W_k and W_v, after the norm if the layer has one before them.
    `arrays`: W_q `[m h*d]`, W_k and W_v `[m g*d]`, W_o `[h*d m]`, and b_q, b_k, b_v, b_o if it adds biases.
    `head`: query heads; W_k determines the number of key/value heads.
    `scale`, `mask`, `position`: as in the settings of a run.
    """

    x: Array
    arrays: Arrays
    head: int
    scale: bool | float = True
    mask: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)


class Block(NamedTuple):
    """The names of the parts of a layer, and how they are put together.

    `at`: the prefix of the layer number.
    `attention`: the matrices of queries, keys, values and output; or a fused one of the first three, and the last.
    `norms`: the norms of attention and MLP.
    `mlp`: the matrix before the activation, perhaps a gate matrix, and the last.
    `biases`: whether queries, keys and values, the output, and the MLP have biases.
    `norm_first`: whether `h += part(norm(h))`, or else `h = norm(h + part(h))`.
    `centred`: whether norms subtract the mean and add a bias.
    `stored_turned`: whether matrices are stored as in `nn.Linear`, `[outputs inputs]`.
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

    A checkpoint's `config` has been checked against `fields`: every field that is read is present, of its kind, and has
    the same name in all families.

    `fields`: what config.json may contain, for each `model_type`. `anchor`: the name of a tensor that every such
    checkpoint has; whatever precedes it is the prefix of all names. `inputs`: yields the tensors that `embed` reads, by
    their names after that prefix, and their shapes. `embed`: returns the vectors `[t m]` that enter the first layer.
    `block`: returns the structure of a layer. `rules`: returns `scale`, `mask` and `position` of the layer of that
    number, unless they are the defaults of `Layer`. `takes`: `words`, token ids `[t]`, or `patches` of a picture `[n
    m]`, or its pixels `[c y x]`.
    """

    fields: Mapping[str, Fields]
    anchor: str
    inputs: Callable[[Config], Shapes]
    embed: Callable[[Checkpoint, Array], Array]
    block: Callable[[Config], Block]
    rules: Callable[[Config, int], dict[str, Any]] = lambda config, number: {}
    takes: str = "words"

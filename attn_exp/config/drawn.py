"""Settings of what is drawn at random: one array, and the projections."""

# Annotations are read when the class is made, not kept as text, as in `schema`.

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from attn_exp.config.fields import array_or, named, section
from attn_exp.config.kinds import AS_IS, at_least, choice
from attn_exp.config.several import arrays, list_of, mapping_of, shape
from attn_exp.config.trained import LEFT

LARGEST_LEGACY_SEED = 2**32 - 1
PROJECTIONS = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")
DISTRIBUTIONS = ("normal", "uniform", "integers")
STREAMS = "streams"
"""The generator of every run that names no other: each array has a stream of its own."""


@dataclass(frozen=True)
class Draw:
    """An array drawn as a notebook draws it: by the run's generator, or by one of its own with a `seed` of its own.

    `shape` may have axes before rows and columns; `entry` says which of those matrices is meant. `low` and `high` are
    the bounds of uniform and whole numbers; `spread` and `mean` are multiplied with and added to any numbers. `rows`
    are the places of the rows that are taken, as from a table of embeddings. With `by_row` each row is a call of its
    own. `legacy_seed=0` is short for `generator=legacy seed=0`.
    """

    distribution: Annotated[str, choice(*DISTRIBUTIONS)]
    shape: Annotated[tuple[int, ...], shape()]
    generator: str | None = None
    seed: int | None = None
    legacy_seed: Annotated[int, at_least(0, most=LARGEST_LEGACY_SEED)] | None = None
    low: float | None = None
    high: float | None = None
    spread: float = 1.0
    mean: float = 0.0
    entry: Annotated[int, at_least(0)] = 0
    rows: Annotated[tuple[int, ...], list_of(at_least(0))] = ()
    by_row: bool = False


Array = Annotated[Any, array_or(Draw)]
DRAWS = named(section(Draw))
"""Arrays by their names, in the order in which they are drawn."""


@dataclass(frozen=True)
class Projections:
    """Where W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]` and their biases come from.

    `source` names the rule for every array that nothing below names: `normal`, `uniform`, `integers`, `identity`, the
    new layers `torch_linear` and `torch_mha`, `none` for problems that start at q, k and v, or `model` for those of the
    run's model. `given` holds a document's own arrays, `printed` the keys and values from which W_k and W_v are
    recovered. `file` holds arrays by their names, of which `names` may say which is which, and `prefix` how those begin
    that are meant; they and `given` are `turned` where they lie as `nn.Linear` keeps them. `order_per_head`, then
    `order`, are drawn one after another by the `generator` of `seed`, or the run's. `width`, `key_width`, `value_width`
    and `output_width` are the columns of W_q, W_k, W_v and W_o, where they are not those of x; each of the first three
    follows the one before it.
    """

    source: Annotated[str, choice(*DISTRIBUTIONS, "identity", "torch_linear", "torch_mha", "none", LEFT)] = "normal"
    file: str | None = None
    turned: bool = False
    prefix: str = ""
    names: Annotated[Mapping[str, str | None], mapping_of(AS_IS, *PROJECTIONS)] = field(default_factory=dict)
    spread: float | None = None
    columns: bool = False
    given: Annotated[Mapping[str, Any], arrays()] = field(default_factory=dict)
    printed: Annotated[Mapping[str, Any], arrays()] = field(default_factory=dict)
    distribution: Annotated[str, choice(*DISTRIBUTIONS)] | None = None
    low: float | None = None
    high: float | None = None
    generator: str | None = None
    seed: int | None = None
    legacy_seed: Annotated[int, at_least(0, most=LARGEST_LEGACY_SEED)] | None = None
    order_per_head: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    width: Annotated[int, at_least(1)] | None = None
    key_width: Annotated[int, at_least(1)] | None = None
    value_width: Annotated[int, at_least(1)] | None = None
    output_width: Annotated[int, at_least(1)] | None = None

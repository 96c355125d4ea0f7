"""Settings of the input: tokens and their vectors, random arrays, projections, and a trained model."""

# No `from __future__ import annotations` here: string annotations would have to be compiled again to be read.

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Annotated, Any

from attn_exp.config.kinds import (
    ANY_TEXT,
    ARRAYS,
    AS_IS,
    SHAPE,
    TEXT_OR_WORDS,
    TOKEN_NAMES,
    Kind,
    PositiveInt,
    array_or,
    at_least,
    by_name,
    choice,
    is_whole,
    list_of,
    list_of_numbers,
    mapping_of,
    optional,
    refuse,
    section,
)

LegacySeed = Annotated[int, at_least(0, most=2**32 - 1)]
PROJECTIONS = ("W_q", "W_k", "W_v", "W_o", "b_q", "b_k", "b_v", "b_o")
DISTRIBUTIONS = ("normal", "uniform", "integers")
DistributionName = Annotated[str, choice(*DISTRIBUTIONS)]
STREAMS = "streams"
"""The default generator: each array has its own stream."""

FROM_MODEL = "model"
"""The value of a setting that is taken from the run's model, as in `head=model`."""

MODEL_SCALARS = ("head", "scale", "bias")
"""The scalar settings that can have this value; `projections.source` and `embeddings.source` can have it too."""

MEMORY = "embeddings.memory"
"""The section of a second input, for cross-attention."""
FILES = (".csv", ".json", ".npy", ".npz", ".safetensors", ".tsv", ".txt")  # suffixes of files with arrays
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle", ".joblib")
"""Suffixes of pickle files, which are never read, but are not mistaken for words either."""
INDEX = ".safetensors.index.json"
"""The suffix of the index that maps each array to one of several safetensors files."""
EXPECTED = "a number of tokens, words, vectors such as [[1,0],[0,1]], a file, or settings such as {tokens: 3}"


@dataclass(frozen=True)
class Draw:
    """An array drawn as in a notebook: by the run's generator, or by its own `generator` and `seed`.

    - `shape`: rows and columns, perhaps after leading axes. `entry`: which matrix to use, if there are leading axes.
    - `low`, `high`: the bounds of uniform numbers and integers.
    - `spread`, `mean`: a factor for all numbers, and a number to add to them.
    - `rows`: the rows to use, as from an embedding table.
    - `by_row`: draw each row with a separate call.
    - `legacy_seed`: `legacy_seed=0` is short for `generator=legacy seed=0`.
    """

    distribution: DistributionName
    shape: Annotated[tuple[int, ...], SHAPE]
    generator: str | None = None
    seed: int | None = None
    legacy_seed: LegacySeed | None = None
    low: float | None = None
    high: float | None = None
    spread: float = 1.0
    mean: float = 0.0
    entry: Annotated[int, at_least(0)] = 0
    rows: Annotated[tuple[int, ...], list_of(at_least(0))] = ()
    by_row: bool = False


Array = Annotated[Any, array_or(Draw)]
DRAWS = by_name(section(Draw))
"""Arrays by name, in drawing order."""


def read_memory(value: Any, key: str) -> Any:
    """Read the settings of a second input, or a shorthand: a number of tokens, words, vectors, or a file."""
    return section(Embeddings).read(value if isinstance(value, Mapping) else spell_out_memory(value, key), key)


def spell_out_memory(value: Any, key: str) -> dict[str, Any]:
    if is_whole(value):
        return {"tokens": value}
    if isinstance(value, str):
        return {"file" if PurePath(value).suffix.lower() in FILES + PICKLES else "text": value}
    if not isinstance(value, list | tuple) or not value:
        return refuse(value, key, EXPECTED)
    return {"text" if all(isinstance(item, str) for item in value) else "vectors": value}


@dataclass(frozen=True)
class Embeddings:
    """The input of a run. It starts at exactly one stage: `vectors`, `q` and `k`, or `weights`.

    - `tokens`: names, their number, or a file of names.
    - `vectors`: x, `[t m]`, or `[m t]` if `columns` is set.
    - `distribution`: draw x from the run's seed, or with its own `generator` and `seed`, between `low` and `high`.
    - `file`: read x from a file, and from its entry `array` if there are several.
    - `text`: draw a vector for each of its words.
    - `source`: any other source, by name.
    - `memory`: a second input for cross-attention, whose tokens provide the keys and values.
    """

    tokens: Annotated[tuple[str, ...] | int | str, TOKEN_NAMES] | None = None
    vectors: Array = None
    d_model: PositiveInt | None = None
    distribution: DistributionName | None = None
    low: float | None = None
    high: float | None = None
    generator: str | None = None
    seed: int | None = None
    file: str | None = None
    text: Annotated[str | tuple[str, ...], TEXT_OR_WORDS] | None = None
    array: str | None = None
    columns: bool = False
    q: Array = None
    k: Array = None
    v: Array = None
    weights: Array = None
    source: Mapping[str, Any] = field(default_factory=dict)
    memory: Annotated["Embeddings | None", optional(Kind(read_memory, EXPECTED))] = None


@dataclass(frozen=True)
class Projections:
    """The weight matrices W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]` and their biases.

    - `source`: how to make every array that no other field gives. `normal`, `uniform` and `integers` draw it,
      `identity` makes identity matrices, `torch_linear` and `torch_mha` initialize it like a new layer, `none` is for
      problems that start at q, k and v, and `model` takes it from the run's model.
    - `given`: a document's own arrays, by name. `printed`: the keys and values from which W_k and W_v are recovered.
    - `file`: a file of arrays by name. `names`: maps our names to those in the file. `prefix`: the beginning of the
      names to read.
    - `transposed`: whether the arrays in `file` and `given` are stored as in `nn.Linear`.
    - `order_per_head`, `order`: arrays to draw one after another: first those of `order_per_head`, once for each head,
      then those of `order`. The `generator` with `seed` draws them, or by default the run's generator.
    - `width`, `key_width`, `value_width`, `output_width`: the numbers of columns of W_q, W_k, W_v and W_o, if they
      differ from x. `key_width` defaults to `width`, and `value_width` to `key_width`.
    """

    source: Annotated[str, choice(*DISTRIBUTIONS, "identity", "torch_linear", "torch_mha", "none", FROM_MODEL)] = (
        "normal"
    )
    file: str | None = None
    transposed: bool = False
    prefix: str = ""
    names: Annotated[Mapping[str, str | None], mapping_of(AS_IS, *PROJECTIONS)] = field(default_factory=dict)
    spread: float | None = None
    columns: bool = False
    given: Annotated[Mapping[str, Any], ARRAYS] = field(default_factory=dict)
    printed: Annotated[Mapping[str, Any], ARRAYS] = field(default_factory=dict)
    distribution: DistributionName | None = None
    low: float | None = None
    high: float | None = None
    generator: str | None = None
    seed: int | None = None
    legacy_seed: LegacySeed | None = None
    order_per_head: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    width: PositiveInt | None = None
    key_width: PositiveInt | None = None
    value_width: PositiveInt | None = None
    output_width: PositiveInt | None = None


def or_from_model(kind: Kind) -> Kind:
    """Accept what a kind accepts, or the word `model`: when the model is read, its own value replaces the word."""
    return Kind(lambda value, key: value if value == FROM_MODEL and isinstance(value, str) else kind.read(value, key))


@dataclass(frozen=True)
class Model:
    """A trained model, and the layer whose attention is computed; settings with the value `model` are taken from it.

    - `family`: the module that defines its names and shapes.
    - `path`: the folder of the checkpoint.
    - `text`, `tokens`, `patches`: the input, as text, as token ids, or as an image.
    - `layer`: counted from 0, as in checkpoints.
    """

    family: str | None = None
    path: str | None = None
    text: Annotated[str, ANY_TEXT] | None = None
    tokens: Annotated[tuple[int, ...], list_of_numbers(at_least(0), "token ids, such as [101,7592,102]")] | None = None
    patches: str | None = None
    layer: Annotated[int, at_least(0)] = 0

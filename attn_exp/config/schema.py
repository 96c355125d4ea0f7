"""Every setting of a run: accepted values, meaning and default, defined once on the field of a frozen dataclass."""

# No `from __future__ import annotations` here: string annotations would have to be compiled again to be read.

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_type_hints

from attn_exp.config.inputs import DRAWS, STREAMS, Draw, Embeddings, Model, Projections, or_from_model
from attn_exp.config.kinds import (
    ANY_SEED,
    AT_LEAST_0,
    FILE_NAME,
    FLAG,
    FOLDER,
    FROM_ZERO,
    MULTIPLIER,
    NUMBER,
    WORDS,
    PositiveInt,
    Says,
    array_or,
    at_least,
    between,
    choice,
    kind_of,
    mapping_of,
    optional,
    read_fields,
    refuse,
    words_of,
)

POOL = ("first", "mean")
ALIGN, JOIN = ("top_left", "bottom_right", "before_filler"), ("and", "or")


@dataclass(frozen=True)
class Variant:
    """A named form and the settings that it fixes; None means the run's setting."""

    form: str
    head: PositiveInt | None = None
    scale: Annotated[bool | float, MULTIPLIER] | None = None
    output_projection: bool = False
    mistake: Annotated[tuple[str, ...], WORDS] | None = None
    kv_head: PositiveInt | None = None
    align: Annotated[str, choice(*ALIGN)] | None = None
    mask: Mapping[str, Any] | None = None
    mask_join: Annotated[str, choice(*JOIN)] | None = None
    score: Mapping[str, Any] | None = None
    position: Mapping[str, Any] | None = None
    normalizer: str | None = None
    convention: str | None = None


@dataclass(frozen=True)
class Published:
    """A result printed in a document, and the stage of the run to compare it with.

    - `printed`: the digits exactly as printed, with any brackets. `decimals`: the number of decimals, to set if NumPy
      dropped trailing zeros.
    - `stage`: x, an array of the projections, or a stage of the trace of `variant`, by default the first variant.
    - `head`, `columns`, `row`, `first`: the part of the stage, selected in this order. `head` and `row` count from 1,
      `columns` transposes the stage, and `first` is the number of columns to keep.
    - `product`: compute the stage as a plain product: `@`, `matmul`, `dot`, or a `sum`.
    - `inputs`: arrays that replace the run's problem: q, k and v, or weights and v.
    - `rounded`: how far q, k and v may be off, because the document computed them from rounded numbers or rounded them.
    """

    quantity: str
    printed: str
    stage: str
    variant: str | None = None
    head: PositiveInt = 1
    columns: bool = False
    row: PositiveInt | None = None
    first: PositiveInt | None = None
    decimals: Annotated[int, at_least(0)] | None = None
    product: Annotated[str, choice("@", "matmul", "dot", "sum")] | None = None
    inputs: Annotated[Mapping[str, Any], mapping_of(array_or(Draw), "q", "k", "v", "weights")] = field(
        default_factory=dict
    )
    rounded: Annotated[Mapping[str, float], mapping_of(NUMBER, "q", "k", "v")] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Report:
    """The report that a run writes besides its results."""

    tables: bool = True
    figures: bool = True
    pages: bool = True
    depth: Annotated[str, choice("reading", "all"), Says("reading: hide ulp, operations and bytes; all: show them")] = (
        "all"
    )


@dataclass(frozen=True)
class Size:
    """The size of figures in inches; `font_size` is in points. Without a height, each figure is as tall as needed."""

    width: float
    height: float | None = None
    font_size: float = 8
    font: str = "DejaVu Sans"


PRESETS = {
    "paper": Size(width=6.3),  # the text width of an A4 page
    "slides": Size(width=13.333, height=7.5, font_size=21),  # 16:9, with the font size of slide text
    "poster": Size(width=18, font_size=26),  # half the width of a portrait A0 page, read from a few steps away
}
"""Figure sizes by where the figures are shown; add a line here for another preset."""


@dataclass(frozen=True)
class Figures:
    """The format, size and selection of figures; unset sizes come from the preset."""

    format: Annotated[
        tuple[str, ...], words_of("png", "svg", "pdf"), Says("png, svg, pdf, or several as [svg,pdf]")
    ] = ("svg",)
    preset: Annotated[str, choice(*PRESETS), Says("where the figures are shown: {preset}")] = "paper"
    width: Annotated[float, between(3, 20), Says("width of figures in inches", "the preset's")] | None = None
    height: (
        Annotated[float, between(2, 20), Says("height of figures in inches", "the preset's, or as needed")] | None
    ) = None
    font: Annotated[str, Says("font of the text in figures", "the preset's")] | None = None
    font_size: Annotated[float, between(4, 48), Says("font size of figures in points", "the preset's")] | None = None
    only: Annotated[tuple[str, ...], WORDS, Says("figures to draw, such as weights or [flow,weights]", "all")] = ()


@dataclass(frozen=True)
class Matters:
    """The smallest differences of metrics that matter; a sweep reports which settings exceed them."""

    entropy: Annotated[float, FROM_ZERO, Says("the smallest difference in entropy that matters, in nats")] = 0.1
    largest_weight: Annotated[float, FROM_ZERO, Says("the smallest difference in largest_weight that matters")] = 0.05
    max_diff: Annotated[float, FROM_ZERO, Says("the smallest max_diff that matters")] = 0.1
    cosine: Annotated[float, FROM_ZERO, Says("the smallest difference in cosine that matters")] = 0.05


@dataclass(frozen=True)
class Sweep:
    """How `-m` runs a sweep; the results of its points do not depend on these settings.

    - `zip`: keys whose values change together.
    - `skip`: an expression that is true for the points to leave out.
    - `address`: a running cluster for `engine` to join.
    - `chunk`: the number of points that a worker takes at once; None chooses it automatically.
    """

    name: Annotated[str, FILE_NAME, Says("name of the sweep's folder", "derived from the settings")] = ""
    zip: Annotated[tuple[str, ...], Says("keys whose values change together, such as [head,seed]")] = ()
    skip: Annotated[str, Says('skip the points for which this holds, such as "head > d_model"')] = ""
    dry_run: Annotated[bool, Says("true: show the axes, the points and the estimated time, but run nothing")] = False
    engine: Annotated[str, Says("where points are computed: {engine}")] = "process"
    workers: Annotated[int, at_least(1), Says("number of parallel workers", "one per processor")] | None = None
    address: Annotated[str, Says("address of a running Ray or Dask cluster to join")] | None = None
    chunk: Annotated[int, at_least(1), Says("points that each worker takes at a time", "automatic")] | None = None
    fail_fast: Annotated[bool, Says("true: stop at the first point that fails")] = False
    format: Annotated[str, choice("csv", "parquet"), Says("csv or parquet")] = "csv"
    plot: Annotated[tuple[str, ...], Says("plots to draw besides the usual ones, such as [heat,parallel]")] = ()
    matters: Matters = field(default_factory=Matters)


@dataclass(frozen=True, kw_only=True)
class Config:
    """The validated settings of one run; `Says` on a field is its meaning, as `--help` prints it.

    - `kv_head`: the number of key/value heads; None means as many as the input has.
    - `align`: how queries and keys are aligned; None means as in the convention.
    - `mask`, `score`, `position`: rules by name with their settings. `mask_join`: whether all masks must allow a key,
      or one is enough.
    - `weights`: which weights are kept: full matrices, blocks (a summary and a coarse map), or what each form keeps.
    """

    embeddings: Annotated[
        Embeddings, Says("the tokens and their vectors: from a document, `words`, `file`, `inline`, `random`")
    ]
    projections: Annotated[
        Projections,
        Says(
            "W_q, W_k, W_v, W_o and biases: `normal`, `uniform`, `identity`, `torch_linear`, from a document, `file`, "
            "`none`"
        ),
    ] = field(default_factory=Projections)
    seed: Annotated[int, ANY_SEED, Says("seed of all random arrays")] = 0
    generator: Annotated[
        str, Says("generator of random arrays: streams (one per array), or one for all: {generator}")
    ] = STREAMS
    draws: (
        Annotated[
            Mapping[str, Draw],
            optional(DRAWS),
            Says("the order in which one generator draws arrays, such as [x,W_q,W_k,W_v]", "none"),
        ]
        | None
    ) = None
    model: Model = field(default_factory=Model)
    head: Annotated[int, or_from_model(at_least(1)), Says("number of query heads, for variants that do not set it")] = 2
    past: Annotated[
        int,
        at_least(0),
        Says("how many of the first tokens are in the KV cache: they have keys and values, but no queries"),
    ] = 0
    scale: Annotated[
        bool | float,
        or_from_model(MULTIPLIER),
        Says("true: divide the scores by sqrt(d_head); false: do not; a number: multiply by it"),
    ] = True
    bias: Annotated[bool, or_from_model(FLAG), Says("true: add biases to the projections")] = False
    mistake: Annotated[
        tuple[str, ...], WORDS, Says("mistakes to make, one or several, such as [no_scale,causal_strict]", "none")
    ] = ()
    kv_head: (
        Annotated[
            int, at_least(1), Says("key/value heads; groups of query heads share them", "as many as the input has")
        ]
        | None
    ) = None
    kv_pool: Annotated[
        str,
        choice(*POOL),
        Says("first: keep the first kv_head key/value heads; mean: average each group, for trained heads"),
    ] = "first"
    align: (
        Annotated[
            str,
            choice(*ALIGN),
            Says("top_left, bottom_right or before_filler: how queries and keys are aligned", "the convention's"),
        ]
        | None
    ) = None
    mask: Mapping[str, Any] = field(default_factory=dict)
    mask_join: Annotated[str, choice(*JOIN), Says("and: every mask must allow a key; or: one is enough")] = "and"
    score: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)
    normalizer: Annotated[str, Says("function that turns logits into weights: {normalizer}")] = "softmax"
    convention: Annotated[str, Says("interpret masks as a library does: {convention}")] = "none"
    check: Annotated[tuple[str, ...], WORDS, Says("checks to run on every variant, one or more: {check}", "none")] = ()
    dtype: Annotated[
        tuple[str, ...],
        WORDS,
        Says(
            "dtypes in which to test every variant, such as [float16,bfloat16]; in a sweep, the dtype of each point",
            "float64",
        ),
    ] = ()
    metrics: Annotated[
        tuple[str, ...], WORDS, Says("additional metrics for every variant, such as [kl,gini,sink], or all", "none")
    ] = ()
    weights: Annotated[
        str,
        choice("auto", "full", "blocks"),
        Says(
            "which weights are kept: full matrices, blocks (a summary and a coarse map), or auto (what each form keeps)"
        ),
    ] = "auto"
    variant: Annotated[Mapping[str, Variant], Says("the rows to compare")]
    against: Annotated[str, Says("baseline row, with which all others are compared", "the first")] | None = None
    report: Annotated[Report, Says("`full`, `tables`, `none`")] = Report()
    figures: Figures = Figures()
    sweep: Sweep = Sweep()
    output_dir: Annotated[str, FOLDER, Says("folder that runs are written to")] = "outputs"
    title: Annotated[str, Says("heading of the report")] = ""
    notes: Annotated[tuple[str, ...], Says("sentences that the report prints")] = ()
    published: Annotated[tuple[Published, ...], Says("results printed in a document, to compare with the run's")] = ()
    strict: Annotated[bool, Says("true: exit code 1 if a published result disagrees; alias published.strict")] = False


def read_config(values: Mapping[str, Any]) -> Config:
    """Return the configuration for plain values.

    Raises:
        UserError: a key is unknown, or a value is invalid; the message says what was expected.
    """
    config = Config(**read_fields(Config, values, ""))
    check_seed(config.seed, config.generator)
    return config


def check_seed(seed: int, generator: str) -> None:
    """Refuse a negative seed if each array has its own stream; other generators check their own seeds."""
    if generator == STREAMS and seed < 0:
        refuse(seed, "seed", AT_LEAST_0)


def read_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate some settings of a run, by name; values under unknown names are returned unchanged.

    Raises:
        UserError: a value is invalid.
    """
    hints = get_type_hints(Config, include_extras=True)
    return {name: kind_of(hints.get(name, Any)).read(value, name) for name, value in values.items()}

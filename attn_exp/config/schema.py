"""Every setting of a run and its default: plain frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Draw:
    """An array drawn from NumPy's legacy generator, as documents do: `RandomState(legacy_seed)`."""

    distribution: str
    legacy_seed: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Embeddings:
    """Where the input comes from. Exactly one stage starts the problem: `vectors`, `q` and `k`, or `weights`.

    `tokens` are names, or how many there are. `vectors` is x, `[t m]`, or `[m t]` with `columns`. `distribution` draws
    x from the run's seed; `file` reads it from a .npy or .csv file.
    """

    tokens: tuple[str, ...] | int | None = None
    vectors: Any = None
    d_model: int | None = None
    distribution: str | None = None
    file: str | None = None
    columns: bool = False
    q: Any = None
    k: Any = None
    v: Any = None
    weights: Any = None


@dataclass(frozen=True)
class Projections:
    """Where W_q, W_k, W_v `[m h*d]`, W_o `[h*e m]` and their biases come from.

    `source` names the rule for every array that nothing below names: `normal`, `uniform`, `identity`, or `none` for
    problems that start at q, k and v. `given` holds a document's own arrays, `printed` the keys and values from which
    W_k and W_v are recovered. `order_per_head`, then `order`, are drawn from one legacy stream of `legacy_seed`.
    """

    source: str = "normal"
    spread: float | None = None
    columns: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)
    printed: Mapping[str, Any] = field(default_factory=dict)
    distribution: str | None = None
    legacy_seed: int | None = None
    order_per_head: tuple[str, ...] = ()
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Variant:
    """A form under a name, with the settings it pins; None follows the run."""

    form: str
    head: int | None = None
    scale: bool | float | None = None
    output_projection: bool = False
    mistake: str | None = None
    kv_head: int | None = None
    align: str | None = None
    mask: Mapping[str, Any] | None = None
    mask_join: str | None = None
    score: Mapping[str, Any] | None = None
    position: Mapping[str, Any] | None = None
    normalizer: str | None = None
    convention: str | None = None


@dataclass(frozen=True)
class Published:
    """One printed result of a document, and where a run finds the numbers to hold against it.

    `printed` holds the digits as the document shows them, in any brackets; `decimals` counts them where NumPy left all
    trailing zeros off. `stage` is x, an array of the projections, or a stage of the trace of `variant`, else of the
    first; of several heads, `head`. `columns` turns it; then `row` and the `first` columns are what is printed.
    `product` computes it as a plain product, written `@`, `matmul`, `dot`, or as a `sum`. `inputs` q, k, v or weights,
    v stand in for the run's problem. `rounded` says how far q, k, v may lie from the truth, as the document rounded it.
    """

    quantity: str
    printed: str
    stage: str
    variant: str | None = None
    head: int = 0
    columns: bool = False
    row: int | None = None
    first: int | None = None
    decimals: int | None = None
    product: str | None = None
    inputs: Mapping[str, Any] = field(default_factory=dict)
    rounded: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True)
class Report:
    """What a run writes besides its results."""

    tables: bool = True
    figures: bool = True
    pages: bool = True


@dataclass(frozen=True)
class Figures:
    """How figures are written: in which formats, and how many inches wide."""

    format: tuple[str, ...] = ("svg",)
    width: float = 6.3


@dataclass(frozen=True)
class Sweep:
    """How `-m` runs its points; none of it changes a result.

    `zip` names keys whose values move together, `skip` leaves out the points for which it holds. `address` is a running
    cluster of `engine`. `chunk` is how many points a worker takes at once; None chooses.
    """

    name: str = ""
    zip: tuple[str, ...] = ()
    skip: str = ""
    dry_run: bool = False
    engine: str = "process"
    workers: int | None = None
    address: str | None = None
    chunk: int | None = None
    fail_fast: bool = False
    format: str = "csv"


@dataclass(frozen=True, kw_only=True)
class Config:
    """The validated settings of one run.

    `kv_head`: key/value heads, None = as many as the input has; `align`: beside which key the first query stands;
    `mask`, `score`, `position`: rules by name with their settings; `mask_join`: all masks must allow, or any may.
    `weights`: what is kept of them, whole matrices, blocks (a summary and a coarse map), or what each form has anyway.
    """

    embeddings: Embeddings
    projections: Projections = Projections()
    seed: int = 0
    head: int = 2
    scale: bool | float = True
    bias: bool = False
    mistake: str = "none"
    kv_head: int | None = None
    align: str | None = None
    mask: Mapping[str, Any] = field(default_factory=dict)
    mask_join: str = "and"
    score: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)
    normalizer: str = "softmax"
    convention: str = "none"
    check: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    weights: str = "auto"
    variant: Mapping[str, Variant]
    report: Report = Report()
    figures: Figures = Figures()
    sweep: Sweep = Sweep()
    output_dir: str = "outputs"
    title: str = ""
    notes: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()

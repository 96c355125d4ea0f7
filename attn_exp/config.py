"""The schema of a run: plain frozen dataclasses, and the readers that turn a user's words into them.

Nothing here knows Hydra: `read` takes the plain mapping that any composition of `conf/` yields, checks every value, and
raises `UserError` with one line in the user's own words.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any


class UserError(ValueError):
    """A mistake of the user, told in one line; the command line prints it and exits with 2."""


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


def read(values: Mapping[str, Any]) -> Config:
    """Return the configuration that the plain values describe.

    Raises:
        UserError: an unknown key, or a value of the wrong kind, named with what was expected.
    """
    return Config(**read_fields(values, Config, READERS, ""))


def read_fields(values: Any, schema: type, readers: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read each value of a mapping with the reader of its key; keys that the schema lacks are refused."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path.rstrip('.')}={values}: expected settings, got a plain value")
    names = [each.name for each in fields(schema)]
    for key in values:
        if key not in names:
            raise UserError(unknown(f"{path}{key}", [f"{path}{name}" for name in names], "setting"))
    for each in fields(schema):
        if each.default is MISSING and each.default_factory is MISSING and each.name not in values:
            raise UserError(f"{path}{each.name} is missing")
    return {key: readers.get(key, as_is)(value, f"{path}{key}") for key, value in values.items()}


def unknown(word: str, choices: Sequence[str], kind: str) -> str:
    """Say that there is no such thing, and which one was perhaps meant."""
    near = difflib.get_close_matches(word, choices, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    known = f"choose one of {', '.join(choices)}" if choices else "there is none to choose"
    return f"unknown {kind} {word!r}; {hint}{known}"


def as_is(value: Any, key: str) -> Any:
    return value


def whole(least: int) -> Any:
    """Return a reader of whole numbers of at least `least`."""

    def read_whole(value: Any, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"{key}={shown(value)}: expected a whole number of at least {least}")
        return value

    return read_whole


def flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool):
        raise UserError(f"{key}={shown(value)}: expected true or false")
    return value


def number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key}={shown(value)}: expected a finite number")
    return float(value)


def scale(value: Any, key: str) -> bool | float:
    if isinstance(value, bool):
        return value
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"{key}={shown(value)}: expected true, false, or the multiplier as a number")
    return float(value)


def text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{key}={shown(value)}: expected a word")
    return value


def file_name(value: Any, key: str) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"([\w][\w. -]*)?", value):
        raise UserError(f"{key}={shown(value)}: expected a folder's name of letters, digits, dots and dashes")
    return value


def texts(value: Any, key: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise UserError(f"{key}={shown(value)}: expected a list of words, such as [a,b]")
    if any(word is None or isinstance(word, list | tuple | Mapping) for word in value):
        raise UserError(f"{key}={shown(value)}: expected a list of words, such as [a,b]")
    return tuple(shown(word) for word in value)


def words(value: Any, key: str) -> tuple[str, ...]:
    """Read one word or several; `none` is no word at all."""
    several = (value,) if isinstance(value, str) else () if value is None else texts(value, key)
    return tuple(word for word in several if word != "none")


def choice(*choices: str) -> Any:
    """Return a reader of one of these words."""

    def read_choice(value: Any, key: str) -> str:
        if value not in choices:
            raise UserError(unknown(shown(value), choices, key))
        return str(value)

    return read_choice


def words_of(*choices: str) -> Any:
    """Return a reader of one of these words, or of a list of them; each counts once."""
    read_choice = choice(*choices)

    def read_words(value: Any, key: str) -> tuple[str, ...]:
        words = [value] if isinstance(value, str) else texts(value, key)
        if not words:
            raise UserError(f"{key}=[]: expected at least one of {', '.join(choices)}")
        return tuple(dict.fromkeys(read_choice(word, key) for word in words))

    return read_words


def between(least: float, most: float) -> Any:
    """Return a reader of numbers from `least` to `most`."""

    def read_between(value: Any, key: str) -> float:
        found = number(value, key)
        if not least <= found <= most:
            raise UserError(f"{key}={shown(value)}: expected a number from {least:g} to {most:g}")
        return found

    return read_between


def optional(reader: Any) -> Any:
    """Return a reader that lets None through."""
    return lambda value, key: None if value is None else reader(value, key)


def named(schema: type, readers: Mapping[str, Any]) -> Any:
    """Return a reader of a mapping of names to settings."""

    def read_named(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={shown(value)}: expected a name and its settings")
        return {
            str(name): schema(**read_fields(each, schema, readers, f"{key}.{name}.")) for name, each in value.items()
        }

    return read_named


def section(schema: type, readers: Mapping[str, Any]) -> Any:
    """Return a reader of one group of settings."""
    return lambda value, key: schema(**read_fields(value, schema, readers, f"{key}."))


def mapping_of(readers: Mapping[str, Any]) -> Any:
    """Return a reader of a mapping that knows these keys only."""

    def read_mapping(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise UserError(f"{key}={shown(value)}: expected a mapping of {', '.join(readers)}")
        for name in value:
            if name not in readers:
                raise UserError(unknown(f"{key}.{name}", [f"{key}.{known}" for known in readers], "setting"))
        return {name: readers[name](each, f"{key}.{name}") for name, each in value.items()}

    return read_mapping


def each_of(reader: Any) -> Any:
    """Return a reader of a list, each item read by `reader`."""
    return lambda value, key: tuple(reader(item, f"{key}[{place}]") for place, item in enumerate(value or ()))


def mapping(value: Any, key: str) -> dict[str, Any]:
    """Read a mapping of names to settings; the registries check both."""
    if not isinstance(value, Mapping):
        raise UserError(f"{key}={shown(value)}: expected a name and its settings")
    return {str(name): {} if settings is None else settings for name, settings in value.items()}


def tokens(value: Any, key: str) -> tuple[str, ...] | int:
    if isinstance(value, bool | float):
        raise UserError(f"{key}={shown(value)}: expected a list of names, or how many")
    return whole(1)(value, key) if isinstance(value, int) else texts(value, key)


def folder(value: Any, key: str) -> str:
    if not text(value, key).strip():
        raise UserError(f"{key}=: expected a folder, such as outputs, or . for this one")
    return str(value)


def array_or_draw(value: Any, key: str) -> Any:
    """Read numbers as they are, or a mapping as a `Draw` of a matrix."""
    if not isinstance(value, Mapping):
        return value
    readers = {"distribution": choice("normal", "uniform"), "legacy_seed": whole(0), "shape": each_of(whole(1))}
    drawn = Draw(**read_fields(value, Draw, readers, f"{key}."))
    if len(drawn.shape) != 2:
        raise UserError(f"{key}.shape={list(drawn.shape)}: expected rows and columns, such as [3,4]")
    return drawn


def shown(value: Any) -> str:
    """Write a value as the user would have typed it."""
    if value is None or isinstance(value, bool):
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, list | tuple):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, Mapping):
        return f"{{{','.join(f'{name}:{shown(each)}' for name, each in value.items())}}}"
    return str(value)


EMBEDDINGS = {
    "tokens": optional(tokens),
    "vectors": array_or_draw,
    "d_model": optional(whole(1)),
    "distribution": optional(choice("normal", "uniform")),
    "file": optional(text),
    "columns": flag,
} | dict.fromkeys(("q", "k", "v", "weights"), array_or_draw)

PROJECTIONS = {
    "source": choice("normal", "uniform", "identity", "none"),
    "spread": optional(number),
    "columns": flag,
    "distribution": optional(choice("normal", "uniform")),
    "legacy_seed": optional(whole(0)),
    "order_per_head": texts,
    "order": texts,
}

RULES = {
    "kv_head": optional(whole(1)),
    "align": optional(choice("top_left", "bottom_right")),
    "mask": mapping,
    "mask_join": choice("and", "or"),
    "score": mapping,
    "position": mapping,
    "normalizer": text,
}

VARIANT = (
    {"convention": optional(text)}
    | {name: optional(reader) for name, reader in RULES.items()}
    | {
        "form": text,
        "head": optional(whole(1)),
        "scale": optional(scale),
        "output_projection": flag,
        "mistake": optional(text),
    }
)

PUBLISHED = {
    "quantity": text,
    "printed": text,
    "stage": text,
    "variant": optional(text),
    "head": whole(0),
    "columns": flag,
    "row": optional(whole(0)),
    "first": optional(whole(1)),
    "decimals": optional(whole(0)),
    "product": optional(choice("@", "matmul", "dot", "sum")),
    "inputs": mapping_of(dict.fromkeys(("q", "k", "v", "weights"), array_or_draw)),
    "rounded": mapping_of(dict.fromkeys("qkv", number)),
    "note": text,
}

SWEEP = {
    "name": file_name,
    "zip": texts,
    "skip": text,
    "dry_run": flag,
    "engine": choice("serial", "process", "ray", "dask"),
    "workers": optional(whole(1)),
    "address": optional(text),
    "chunk": optional(whole(1)),
    "fail_fast": flag,
    "format": choice("csv", "parquet"),
}

FIGURES = {"format": words_of("png", "svg", "pdf"), "width": between(3, 20)}

READERS = RULES | {
    "convention": text,
    "check": words,
    "dtype": words,
    "metrics": words,
    "weights": choice("auto", "full", "blocks"),
    "embeddings": section(Embeddings, EMBEDDINGS),
    "projections": section(Projections, PROJECTIONS),
    "variant": named(Variant, VARIANT),
    "report": section(Report, dict.fromkeys(("tables", "figures", "pages"), flag)),
    "figures": section(Figures, FIGURES),
    "seed": whole(0),
    "head": whole(1),
    "scale": scale,
    "bias": flag,
    "mistake": text,
    "sweep": section(Sweep, SWEEP),
    "output_dir": folder,
    "title": text,
    "notes": texts,
    "published": each_of(section(Published, PUBLISHED)),
}

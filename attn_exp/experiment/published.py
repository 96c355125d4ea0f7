"""Compare the results that a document prints with the results of a run.

A document is three YAML files: its embeddings, its projections, and an experiment that pins settings and lists the
printed results. A computed number may differ from a printed one by half a unit of its last digit, because the printed
number was rounded. This is the tolerance. If the printed inputs were rounded too, the tolerance is larger: it includes
how much the result can change while the inputs vary within their rounding. A result that no variant computes is
skipped. A result of the wrong size or value is reported as a disagreement and does not stop the run.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from attn_exp.arrays import Array
from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config, Published
from attn_exp.errors import UserError, brief, count_of, unknown
from attn_exp.experiment.executing import execute
from attn_exp.experiment.row import Agreement
from attn_exp.experiment.variant import Settled, settle
from attn_exp.forms.trace import Trace
from attn_exp.problem.problem import Problem, build
from attn_exp.problem.projections import BIASES, MATRICES

# Reading and writing numbers as documents print them

NUMBER = re.compile(r"(?>[-+\u2212]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+\u2212]?\d+)?)")
"""A decimal number; its minus sign is a hyphen or the typographic one."""

ATTRIBUTES = (
    r"\b(?:grad_fn|requires_grad|dtype|device|shape|size|layout|weak_type|sharding|name|path)\s*=\s*"
    r"(?:<[^<>]*>|\([^()]*\)|torch\.Size\([^()]*\)|'[^']*'|\"[^\"]*\"|[\w.:/+-]+)"
)
"""Attributes that PyTorch, JAX and TensorFlow print, such as `grad_fn=<SelectBackward0>` or `shape=(2, 3)`."""

PRINTED = re.compile(rf"{ATTRIBUTES}|[^\W\d²³¹]{NUMBER.pattern}|{NUMBER.pattern}(?=[^\W\d_²³¹])|({NUMBER.pattern})")
"""Matches an attribute, digits in a word, or a number. Only a number is in group 1; a footnote mark may follow it."""


def find_numbers(text: str) -> list[re.Match[str]]:
    """Return the numbers in printed text, but not digits in words or in attributes that libraries print."""
    return [found for found in PRINTED.finditer(text) if found[1]]


def strip_wrapper(text: str) -> str:
    """Return printed text without what a library writes around the numbers; other text is returned unchanged.

    For example, `tensor([[0.5, 0.5]], grad_fn=<MulBackward0>)` becomes `[[0.5, 0.5]]`.
    """
    text_alone = re.sub(ATTRIBUTES, "", text)
    first, last = text_alone.find("["), text_alone.rfind("]")
    is_wrapped = re.match(r"\s*(?:<|[A-Za-z_][\w. ]*[(:])", text) is not None
    return text_alone[first : last + 1] if is_wrapped and 0 <= first < last else text


def parse_numbers(text: str, digits: int | None = None) -> tuple[Array, Array]:
    """Return the numbers in printed text in reading order, and for each number half a unit of its last digit.

    NumPy prints all numbers of an array with as many decimals as the longest one needs, and then drops trailing zeros.
    So all numbers have as many decimals as the longest: next to 0.309, 0.16 means 0.160. A number with an exponent has
    its own last digit: 1.24e-13 is exact to 0.005e-13. If even the longest number lost zeros, `digits` gives the number
    of decimals.
    """
    numbers = [found[1].replace("\u2212", "-") for found in find_numbers(text)]
    formats = [count_digits(word) for word in numbers]
    decimals_of_all = most_decimals(formats) if digits is None else digits
    decimals_by_number = [decimals_of_all if power is None else decimals - power for decimals, power in formats]
    return np.array([float(word) for word in numbers]), np.array([float(f"0.5e{-last}") for last in decimals_by_number])


def replace_numbers(text: str, values: Array, digits: int | None = None) -> str:
    """Replace the numbers in printed text by `values`, with as many decimals as were printed, but at least `digits`."""
    digits_by_number = [count_digits(found[1]) for found in find_numbers(text)]
    decimals_of_all = max(most_decimals(digits_by_number), digits or 0)
    formats = (f".{decimals_of_all}f" if power is None else f".{decimals}e" for decimals, power in digits_by_number)
    numbers = map(format, values.tolist(), formats)
    return PRINTED.sub(lambda found: next(numbers) if found[1] else found[0], text)


def count_digits(word: str) -> tuple[int, int | None]:
    """Return the decimals and the exponent of a printed number: `1.24e-13 -> (2, -13)`, `0.5 -> (1, None)`."""
    number, mark, power = word.lower().partition("e")
    return len(number.partition(".")[2]), int(power) if mark else None


def most_decimals(digits: Sequence[tuple[int, int | None]]) -> int:
    return max((decimals for decimals, power in digits if power is None), default=0)


# Comparing them with a run

STAGES = ("x", *MATRICES, *BIASES, *(field.name for field in fields(Trace)))
"""The stages and matrices that a document may print."""

PRODUCTS: dict[str, Callable[[Array, Array], Array]] = {
    "@": operator.matmul,
    "matmul": np.matmul,
    "dot": np.dot,
    "sum": lambda left, right: np.stack([sum(row[j] * right[j] for j in range(len(right))) for row in left]),
}
"""Ways to compute a matrix product; `sum` adds the weighted rows of the second matrix one by one."""


def compare_with_document(
    config: Config, problem: Problem, variants: Sequence[Settled], traces: Mapping[str, Trace]
) -> tuple[Agreement, ...]:
    """Compare every published result in the configuration with the first variant that computes it.

    Variants that compute in a coarser dtype come last, since printed results may have more digits than that dtype.

    Raises:
        UserError: an entry names an unknown stage, or a head or row that does not exist.
    """
    # each run is a variant, its problem and its trace
    computed = [(variant, problem, traces[variant.name]) for variant in variants]
    computed.sort(key=lambda run: -run[0].computed_in.itemsize)
    agreements = []
    for entry in config.published:
        if entry.stage not in STAGES:
            raise UserError(unknown(entry.stage, STAGES, f"stage of published {entry.quantity}"))
        candidates = (run for run in computed if entry.variant in (None, run[0].name))
        with_inputs = (run_own_inputs(entry, config, run[0]) if entry.inputs else run for run in candidates)
        for variant, inputs, trace in with_inputs:
            array = find_array(entry, inputs, trace)
            if array is not None:
                agreements.append(compare_entry(entry, array, find_radius(entry, variant, trace)))
                break
    return tuple(agreements)


def run_own_inputs(entry: Published, config: Config, variant: Settled) -> tuple[Settled, Problem, Trace]:
    """Run a variant with one head on the inputs of an entry, instead of the document's inputs."""
    own_config = replace(
        config, embeddings=Embeddings(**entry.inputs), projections=Projections(source="none"), draws=None
    )
    problem = build(own_config)
    bind = None if variant.own is None else variant.own.bind
    settled = settle(variant.name, replace(config.variant[variant.name], head=1), own_config, problem, bind)
    return settled, problem, execute(settled, problem)


def compare_entry(entry: Published, array: Array, radius: Array | float | None) -> Agreement:
    text = " ".join(entry.printed.split())
    printed, half_units = parse_numbers(text, entry.decimals)
    if not printed.size:
        raise UserError(f"published {entry.quantity}: printed={brief(text)!r} contains no number")
    values = select_printed(array, entry)
    if values.size != printed.size:
        counts = f"{values.size} numbers, but {printed.size} are printed"
        return Agreement(entry.quantity, text, counts, np.nan, np.nan, False, entry.note)
    # how much each result can change because the inputs are printed rounded
    widening = select_printed(np.broadcast_to(0.0 if radius is None else radius, array.shape), entry)
    difference, tolerance = np.abs(values - printed), half_units + widening
    worst = int(np.argmax(np.where(np.isnan(difference), np.inf, difference / tolerance)))
    return Agreement(
        quantity=entry.quantity,
        printed=text,
        computed=replace_numbers(text, values, entry.decimals),
        largest_difference=float(difference[worst]),
        tolerance=float(tolerance[worst]),
        agrees=bool((difference <= tolerance).all()),
        note=entry.note if radius is None else describe_rounding(entry, float(widening.max())),
    )


def find_array(entry: Published, problem: Problem, trace: Trace) -> Array | None:
    """Return the array that an entry shows; None if the run does not have it.

    The array is x, the memory, a projection or a stage of the trace. If the entry names one of `PRODUCTS`, that product
    computes the array: `q k^T` of each head for scores, otherwise `weights v`.
    """
    if not entry.product:
        arrays = {"x": problem.x, "memory": problem.memory, **problem.projections} | dict(trace.stages())
        return arrays.get(entry.stage)
    left, right = (trace.q, trace.k) if entry.stage == "scores" else (trace.weights, trace.v)
    if left is None or right is None:
        return None
    right = right.swapaxes(-1, -2) if entry.stage == "scores" else right
    return np.stack([PRODUCTS[entry.product](*operands) for operands in zip(left, right, strict=True)])


def select_printed(array: Array, entry: Published) -> Array:
    if array.ndim == 3:
        if entry.head > len(array):
            raise UserError(
                f"published {entry.quantity}: head={entry.head}, "
                f"but the run has {count_of(len(array), 'head')}, numbered from 1"
            )
        array = array[entry.head - 1]
    array = np.atleast_2d(array)
    array = array.T if entry.columns else array
    if entry.row is not None and entry.row > len(array):
        raise UserError(f"published {entry.quantity}: row={entry.row}, but rows are numbered 1 to {len(array)}")
    array = array if entry.row is None else array[[entry.row - 1]]
    return array[:, : entry.first].reshape(-1)


def find_radius(entry: Published, settled: Settled, trace: Trace) -> Array | float | None:
    """Return the radius of each number of a stage: how much it can change while q, k and v vary within their rounding.

    With radii `r` of q and k, `q k^T` changes by at most `|q| r_k + r_q |k| + r_q r_k`. A weight is largest if its own
    logit is at the top of its range and all others are at the bottom. Since weights sum to 1, a change in them shifts
    the context by at most the distance of the values from their mean. The radii may be too large, but never too small.
    With several heads, rules, W_o or mistakes, the radius is not computed: it is what the entry gives for this stage,
    or None.
    """
    rules, arrays = settled.rules, {name: array[0] for name, array in trace.stages() if array.ndim == 3}
    is_ruled = rules.masks or rules.scores or settled.output_projection or settled.mistakes
    is_plain = settled.head == 1 and rules.normalizer.exponential and not is_ruled
    is_input = STAGES.index(entry.stage) < STAGES.index("scores")
    if not entry.rounded or not is_plain or is_input or not {"q", "k", "weights"} <= arrays.keys():
        return entry.rounded.get(entry.stage)
    q, k, weights = (np.abs(arrays[name]) for name in ("q", "k", "weights"))
    q_radius, k_radius = (np.full_like(side, entry.rounded.get(name, 0.0)) for name, side in (("q", q), ("k", k)))
    scores = q @ k_radius.T + q_radius @ k.T + q_radius @ k_radius.T
    logits = abs(settled.multiplier) * scores
    largest_share, smallest_share = weights * np.exp(logits), weights * np.exp(-logits)
    upper = largest_share / (largest_share + smallest_share.sum(axis=-1, keepdims=True) - smallest_share)
    lower = smallest_share / (smallest_share + largest_share.sum(axis=-1, keepdims=True) - largest_share)
    weight_radius = np.maximum(upper - weights, weights - lower)
    radii = {"scores": scores, "logits": logits, "capped": logits, "masked": logits, "weights": weight_radius}
    if entry.stage in radii or "v" not in arrays:
        return radii.get(entry.stage)
    v = arrays["v"]
    return np.asarray(
        weight_radius @ np.abs(v - v.mean(axis=0))
        + (weights + weight_radius) @ np.full_like(v, entry.rounded.get("v", 0.0))
    )


def describe_rounding(entry: Published, widening: float) -> str:
    inputs = " and ".join(f"{name} within {radius:g}" for name, radius in entry.rounded.items())
    return f"{entry.note} The inputs are rounded ({inputs}), which can change the result by {widening:.2g}.".strip()

"""How fair grades are: python benchmarks/classroom.py [--names Ada,Alan] [--table] [--said]

Answer files as students fill them, each with what a fair teacher would say of it, written down before the program was
asked. Sheets are handed out, filled in by plain NumPy, written as CSV and graded by `attn-exp grade`; the
table of grades is then held against the teacher: the points, the words that must be there, and those that must not.

A fair teacher takes a point for each number that does not follow from the numbers before it, and none for numbers that
are right and written otherwise: coarser, cut, in percent, with rows and columns exchanged.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from attn_exp.diagnosis.classroom.paper import Paper  # noqa: E402 - from the checkout
from attn_exp.runs.classroom.grades import grade_answers  # noqa: E402
from attn_exp.runs.classroom.sheets import composer, read_key, write_sheets  # noqa: E402

Array = NDArray[Any]
Made = dict[str, Array]
Step = Callable[[Made, "Given"], Array]
Edit = Callable[[Made, "Given"], None]
Write = Callable[[str, float], str]

NAMES = ("Ada", "Alan", "Grace", "Emmy", "Kurt")
DRAWN = ("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=4")
SHEETS = {
    "one": (*DRAWN, "variant=[matrix]"),
    "heads": (*DRAWN, "head=2", "mask=causal", "variant=[multi_head]"),
    "rope": (*DRAWN, "position=rope", "variant=[matrix]"),
}
"""The sheets that are handed out: one head, two heads under a causal mask, and turned positions."""
ORDER = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")
CLOSE, CLEAR = 0.0051, 0.03
"""A number nearer than the first to what follows is no error, beyond the second it is one."""


@dataclass(frozen=True)
class Given:
    """What a sheet starts from: x, the matrices, what is right for the sides, and how many heads."""

    x: Array
    matrices: Mapping[str, Array]
    right: Mapping[str, Array]
    heads: int
    hidden: Array | None
    scale: float
    last: bool


def softmax(logits: Array, axis: int = -1) -> Array:
    """Return the shares of `exp`."""
    with np.errstate(all="ignore"):
        powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    shares: Array = np.nan_to_num(powers / powers.sum(axis=axis, keepdims=True))
    return shares


def shares(logits: Array) -> Array:
    """Return the parts of a row's sum; noughts where that is nought, as nobody can divide by it."""
    total = logits.sum(axis=-1, keepdims=True)
    return np.where(np.abs(total) < CLOSE, 0.0, logits / np.where(np.abs(total) < CLOSE, 1.0, total))


def turned(array: Array) -> Array:
    """Return matrices with rows and columns exchanged."""
    return np.swapaxes(array, -1, -2)


def split(flat: Array, heads: int) -> Array:
    """Cut `[t m]` into heads `[h t d]`."""
    return flat.reshape(len(flat), heads, -1).transpose(1, 0, 2)


def joined(heads: Array) -> Array:
    """Put heads `[h t d]` side by side, `[1 t m]`."""
    return heads.transpose(1, 0, 2).reshape(1, heads.shape[1], -1)


def side(name: str) -> Step:
    """Return the step that projects x."""
    return lambda made, given: (
        given.right[name] if given.x is None else split(given.x @ given.matrices[f"W_{name}"], given.heads)
    )


def finished(made: Made, given: Given) -> Array:
    """Return the output of the context that stands there, or of the weights where no box holds one."""
    context = joined(made["context"])
    return context @ given.matrices["W_o"] if given.last else context


STEPS: dict[str, Step] = {
    "q": lambda made, given: given.right["q"],
    "k": lambda made, given: given.right["k"],
    "v": lambda made, given: given.right["v"],
    "scores": lambda made, given: made["q"] @ turned(made["k"]),
    "logits": lambda made, given: made["scores"] * given.scale,
    "masked": lambda made, given: (
        made["logits"] if given.hidden is None else np.where(given.hidden, -np.inf, made["logits"])
    ),
    "weights": lambda made, given: softmax(made["masked"]),
    "context": lambda made, given: made["weights"] @ made["v"],
    "output": finished,
}
"""What is right at each box, from the numbers that stand before it."""


def plainly(stage: str, number: float) -> str:
    """Write a number to two decimals."""
    return f"{number:.2f}" if np.isfinite(number) else str(number)


@dataclass(frozen=True)
class Case:
    """An answer file: what the student does, and what a fair teacher says.

    `steps` are computed otherwise, and what follows goes on from them; `edits` change what is written and nothing goes
    on from that. `rounds` is how a number is rounded before one goes on, `writes` how it is written. `lost` are the
    points that the teacher takes beside those of the `steps`, None for what is left over, and `must` what is said.
    """

    name: str
    teacher: str
    must: str = ""
    never: str = ""
    sheet: str = "one"
    steps: Mapping[str, Step] = field(default_factory=dict)
    edits: tuple[Edit, ...] = ()
    rounds: Callable[[Array], Array] = lambda array: np.round(array, 2)
    writes: Write = plainly
    text: Callable[[str], str] = lambda text: text
    lost: tuple[int, int] = (0, 0)
    free: tuple[str, ...] = ()
    other: str = ""


def moved(stage: str, place: tuple[int, int, int], change: Callable[[float], float]) -> dict[str, Step]:
    """Return the step of a slip from which one goes on."""

    def step(made: Made, given: Given) -> Array:
        array = np.array(STEPS[stage](made, given))
        array[place] = change(float(array[place]))
        return array

    return {stage: step}


def slip(stage: str, place: tuple[int, int, int], change: Callable[[float], float]) -> Edit:
    """Return the edit of a slip from which nothing goes on."""

    def edit(made: Made, given: Given) -> None:
        made[stage][place] = change(float(made[stage][place]))

    return edit


def exchange(stage: str, axis: int, one: int, other: int) -> Edit:
    """Return the edit that exchanges two rows (axis 1) or columns (axis 2)."""

    def edit(made: Made, given: Given) -> None:
        array = made[stage]
        first, second = (np.take(array, place, axis=axis).copy() for place in (one, other))
        index = [slice(None)] * 3
        for place, values in ((one, second), (other, first)):
            index[axis] = place  # type: ignore[call-overload] - a place among slices
            array[tuple(index)] = values

    return edit


def turn(*stages: str) -> Edit:
    """Return the edit that writes square boxes with rows and columns exchanged."""

    def edit(made: Made, given: Given) -> None:
        for stage in stages:
            made[stage] = turned(made[stage]).copy()

    return edit


def times(stage: str, factor: float) -> Edit:
    """Return the edit that writes a box in another unit."""

    def edit(made: Made, given: Given) -> None:
        made[stage] = made[stage] * factor

    return edit


def emptied(*stages: str) -> Edit:
    """Return the edit that leaves boxes empty."""

    def edit(made: Made, given: Given) -> None:
        for stage in stages:
            made[stage] = np.full(made[stage].shape, np.nan)

    return edit


def in_cell(stage: str, row: int, column: int, put: str) -> Callable[[str], str]:
    """Return what writes a text into a cell of the first block of a stage."""

    def change(text: str) -> str:
        lines = list(csv.reader(io.StringIO(text)))
        start = next(at for at, line in enumerate(lines) if line and line[0].split()[0] == stage)
        lines[start + 1 + row][1 + column] = put
        out = io.StringIO()
        csv.writer(out).writerows(lines)
        return out.getvalue()

    return change


def every_block_turned(text: str) -> str:
    """Write every block with tokens as columns."""
    lines = list(csv.reader(io.StringIO(text)))
    blocks, block = [], []
    for line in [*lines, []]:
        if any(line):
            block.append(line)
        elif block:
            blocks += [*map(list, zip(*block, strict=True)), []]
            block = []
    out = io.StringIO()
    csv.writer(out).writerows(blocks)
    return out.getvalue()


def german(text: str) -> str:
    """Write a table as a German spreadsheet does."""
    return text.replace(",", ";").replace(".", ",")


def cut(array: Array) -> Array:
    """Cut numbers after two decimals."""
    return np.trunc(np.round(array * 100, 6)) / 100


def one_decimal(array: Array) -> Array:
    return np.round(array, 1)


def written_to_one(stage: str, number: float) -> str:
    return f"{number:.1f}" if np.isfinite(number) else str(number)


def written_cut(stage: str, number: float) -> str:
    return f"{float(cut(np.array(number))):.2f}" if np.isfinite(number) else str(number)


def exactly(array: Array) -> Array:
    return array


def a_bit(number: float) -> float:
    return number + 0.7


def other_digits(number: float) -> float:
    """Return a number whose last two digits are exchanged; one that reads the same so is another."""
    digits = f"{number:.2f}"
    swapped = float(f"{digits[:2]}{digits[3]}{digits[2]}")
    return swapped if abs(swapped - number) > CLEAR else number + 0.2


def lost_sign(made: Made, given: Given) -> Array:
    """Return k, of which the largest number has the other sign."""
    array = np.array(STEPS["k"](made, given))
    place = np.unravel_index(np.argmax(np.abs(array)), array.shape)
    array[place] = -array[place]
    return array


def to_one(array: Array) -> Array:
    """Round shares to two decimals, and move the largest of each row so that it sums to 1."""
    rounded = np.round(array, 2)
    largest = rounded.argmax(axis=-1)[..., None]
    left = np.round(1 - rounded.sum(axis=-1, keepdims=True), 2)
    np.put_along_axis(rounded, largest, np.take_along_axis(rounded, largest, axis=-1) + left, axis=-1)
    return rounded


def without_signs(stage: str) -> dict[str, Step]:
    """Return the step of a box whose minus signs were all left out."""
    return {stage: lambda made, given: np.abs(STEPS[stage](made, given))}


def one_row(stage: str, row: int, step: Step) -> dict[str, Step]:
    """Return the step of a box, one row of which is made otherwise."""

    def mixed(made: Made, given: Given) -> Array:
        array = np.array(STEPS[stage](made, given))
        array[:, row] = step(made, given)[:, row]
        return array

    return {stage: mixed}


NO_SCALE: dict[str, Step] = {"logits": lambda made, given: made["scores"]}
OVER_COLUMNS: dict[str, Step] = {"weights": lambda made, given: softmax(made["masked"], -2)}
OF_SCORES: dict[str, Step] = {"weights": lambda made, given: softmax(made["scores"])}
NO_SUM: dict[str, Step] = {"weights": lambda made, given: np.exp(made["masked"])}
TIMES_X: dict[str, Step] = {"context": lambda made, given: made["weights"] @ given.x[None]}
NOBODYS = np.array([[[0.11, 0.23, 0.66], [0.31, 0.48, 0.21], [0.57, 0.14, 0.29]]])
SLIP, UNKNOWN = r"slip", r"no known mistake"
A_NAME = r"\b(scale|softmax|weights|mask|values|queries|heads|projection|no)_[a-z_]+"
"""Names of mistakes: a student who made none is not given one."""

CASES = (
    # Right, and written in one way or another
    Case("right", "All is right.", r"all right|^$", A_NAME),
    Case("three decimals", "All is right, more exactly than asked.", r"all right|^$", A_NAME, rounds=exactly,
         writes=lambda stage, number: f"{number:.3f}"),
    Case("german", "All is right, with commas and semicolons.", r"all right|^$", A_NAME, text=german),
    Case("one decimal", "Right, but rounded too coarsely: one decimal instead of two.", r"one decimal|1 decimal",
         A_NAME, rounds=exactly, writes=written_to_one),
    Case("one decimal, gone on", "Right, but every step rounded to one decimal.", r"one decimal|1 decimal", A_NAME,
         rounds=one_decimal, writes=written_to_one),
    Case("weights to one decimal", "The weights are rounded too coarsely; the rest follows.", r"one decimal|1 decimal",
         A_NAME, steps={"weights": lambda made, given: np.round(STEPS["weights"](made, given), 1)}, free=("weights",),
         writes=lambda stage, number: f"{number:.1f}" if stage == "weights" else plainly(stage, number)),
    Case("cut", "Right, but cut after two decimals instead of rounded.", r"\bcut\b", A_NAME, rounds=exactly,
         writes=written_cut),
    Case("cut, gone on", "Right, but cut at every step.", r"\bcut\b", A_NAME, rounds=cut),
    Case("percent", "Right; the weights are in percent.", r"percent", A_NAME, edits=(times("weights", 100),)),
    Case("percent signs", "Right; the weights are in percent, and say so.", r"percent|all right|^$", A_NAME,
         writes=lambda stage, number: f"{100 * number:.0f} %" if stage == "weights" else plainly(stage, number)),
    Case("all turned", "Right, with tokens as columns everywhere.", r"columns", A_NAME, text=every_block_turned),
    Case("weights turned", "Right; the box of the weights has rows and columns exchanged.", r"rows and columns", A_NAME,
         edits=(turn("weights"),)),
    Case("scores turned", "Right; the box of the scores has rows and columns exchanged.", r"rows and columns", A_NAME,
         edits=(turn("scores"),)),
    Case("half done", "What is there is right; the rest is missing.", r"missing", A_NAME,
         edits=(emptied("logits", "weights", "output"),), lost=(30, 30)),
    Case("empty", "Nothing was filled in.", r"missing|nothing|empty", A_NAME, edits=(emptied(*ORDER),), lost=(75, 75)),
    Case("minus zero", "All is right; a zero has a sign.", r"all right|^$", A_NAME,
         writes=lambda stage, number: re.sub(r"^0\.00$", "-0.00", plainly(stage, number))),
    # A cell that nobody can read is that cell
    Case("ca.", "One cell says 'ca. 0.5'; the rest is right.", r"ca\. 0\.5", A_NAME,
         text=in_cell("weights", 0, 1, "ca. 0.5"), lost=(1, 1)),
    Case("either", "One cell says '0.3 or 0.4'; the rest is right.", r"0\.3 or 0\.4", A_NAME,
         text=in_cell("weights", 1, 1, "0.3 or 0.4"), lost=(1, 1)),
    Case("two unreadable", "Two cells hold a word and a root; the rest is right.", r"(?s)sqrt.*forgot|forgot.*sqrt",
         A_NAME, text=lambda text: in_cell("q", 0, 0, "forgot")(in_cell("logits", 1, 1, "3/sqrt(4)")(text)),
         lost=(2, 2)),
    Case("a formula", "One cell holds '=1/3' as a spreadsheet does; the rest is right.", r"", A_NAME,
         text=in_cell("weights", 2, 0, "=1/3"), lost=(0, 1)),
    Case("unreadable and no scale", "The scale is missing, and one cell cannot be read.", r"(?s)no_scale.*ca\. 2",
         steps=NO_SCALE, text=in_cell("output", 0, 1, "ca. 2"), lost=(1, 1)),
    # Slips
    Case("slip in scores", "One slip, from which all follows.", rf"{SLIP}.*row t2, key t1|{SLIP}.*t2", A_NAME,
         steps=moved("scores", (0, 1, 0), lambda number: number + 1)),
    Case("two slips", "Two slips, in the scores and in the output.", rf"(?s){SLIP}.*row t2.*row t3", A_NAME,
         steps=moved("scores", (0, 1, 0), lambda number: number + 1) | moved("output", (0, 2, 1), a_bit)),
    Case("two in one box", "Two slips in the logits.", rf"(?s){SLIP}.*row t1.*row t3", A_NAME,
         steps={"logits": lambda made, given: STEPS["logits"](made, given)
                + np.array([[[0.5, 0, 0], [0, 0, 0], [0, 0, 0.7]]])}),
    Case("three slips", "Three slips in three boxes.", rf"(?s){SLIP}.*row t1.*row t2.*row t3", A_NAME,
         steps=moved("q", (0, 0, 3), lambda number: number + 2) | moved("logits", (0, 1, 1), a_bit)
         | moved("output", (0, 2, 0), lambda number: number - 0.6)),
    Case("sign", "A sign is lost in k.", rf"{SLIP}.*sign|sign", A_NAME,
         steps={"k": lost_sign}),
    Case("digits exchanged", "0.72 stands for 0.27: a slip in the weights that went no further.", SLIP, A_NAME,
         edits=(slip("weights", (0, 0, 0), other_digits),), lost=(1, 1)),
    Case("point", "The point is in the wrong place in one weight.", SLIP, A_NAME,
         edits=(slip("weights", (0, 1, 2), lambda number: 10 * max(number, 0.05)),), lost=(1, 1)),
    Case("copied wrongly", "v has a number wrongly copied; the output is right.", rf"{SLIP}.*t3", A_NAME,
         edits=(slip("v", (0, 2, 2), lambda number: number + 3),), lost=(1, 1)),
    Case("columns exchanged", "Two columns of the scores are exchanged; what follows is right.",
         r"columns.*t2.*t3|columns t2 and t3", A_NAME, edits=(exchange("scores", 2, 1, 2),), lost=(1, 6)),
    Case("rows exchanged", "Two rows of the logits are exchanged; what follows is right.", r"rows.*t1.*t2", A_NAME,
         edits=(exchange("logits", 1, 0, 1),), lost=(1, 6)),
    Case("columns of v exchanged, gone on", "Two columns of v are exchanged, the output has them so too.",
         r"columns.*1.*4", A_NAME, steps={"v": lambda made, given: STEPS["v"](made, given)[..., [3, 1, 2, 0]]}),
    # One mistake
    Case("no scale", "The scale is missing; all else follows.", r"no_scale", steps=NO_SCALE),
    Case("by d", "Divided by d instead of its root.", r"scale_by_d\b",
         steps={"logits": lambda made, given: made["scores"] * given.scale**2}),
    Case("multiplied", "Multiplied by the root of d.", r"scale_multiplied",
         steps={"logits": lambda made, given: made["scores"] / given.scale}),
    Case("over columns", "The softmax is over the columns.", r"softmax_over_queries", steps=OVER_COLUMNS),
    Case("softmax of the scores", "The logits are right, the softmax is of the scores.", r"softmax.*scores",
         steps=OF_SCORES),
    Case("exp without the sum", "exp is there, the division is not.", r"(exp|divided).*(sum|divided)", steps=NO_SUM),
    Case("shares without exp", "The logits are divided by their sum, without exp.", r"sum_normalized|normalizer=sum",
         steps={"weights": lambda made, given: shares(made["logits"])}),
    Case("A x", "The weights are times x instead of v.", r"\bx\b", steps=TIMES_X),
    Case("A k", "The weights are times k instead of v.", r"values_from_keys|\bk\b",
         steps={"context": lambda made, given: made["weights"] @ made["k"]}),
    Case("A q", "The weights are times q instead of v.", r"values_from_queries|\bq\b|queries",
         steps={"context": lambda made, given: made["weights"] @ made["q"]}),
    Case("A turned", "The weights are transposed in the product.", r"weights_transposed",
         steps={"context": lambda made, given: turned(made["weights"]) @ made["v"]}),
    Case("logits times v", "The logits are times v: the weights were forgotten.", r"logits|no_softmax",
         steps={"context": lambda made, given: made["logits"] @ made["v"]}),
    Case("q q", "Queries are compared with queries.", r"keys_from_queries|queries",
         steps={"scores": lambda made, given: made["q"] @ turned(made["q"])}),
    Case("k q", "The scores are k q^T.", r"queries_keys_swapped|rows and columns",
         steps={"scores": lambda made, given: made["k"] @ turned(made["q"])}),
    Case("W turned", "q is x times W_q transposed.", r"projection_transposed|transposed",
         steps={"q": lambda made, given: split(given.x @ given.matrices["W_q"].T, given.heads)}),
    Case("powers of ten", "10 to the logit is taken instead of e to it.", r"\b10\b",
         steps={"weights": lambda made, given: softmax(made["masked"] * np.log(10))}),
    Case("one sum for all", "All rows are divided by the sum of the first row.", r"first row",
         steps={"weights": lambda made, given: np.exp(made["masked"]) / np.exp(made["masked"])[:, :1].sum(-1)}),
    Case("the largest takes all", "The largest logit of each row gets all the weight.", r"largest",
         steps={"weights": lambda made, given: (made["masked"].argmax(-1)[..., None] == np.arange(3)).astype(float)}),
    Case("no scale, output empty", "The scale is missing, and the output was left out.",
         r"(?s)(?=.*no_scale)(?=.*empty.*output)", steps=NO_SCALE, edits=(emptied("output"),), lost=(12, 12)),
    Case("no signs in k", "All minus signs of k are lost.", r"sign|all right|^$", steps=without_signs("k")),
    Case("no signs in scores", "All minus signs of the scores are lost.", r"sign|all right|^$",
         steps=without_signs("scores")),
    Case("W_q for all", "q, k and v are all x W_q.", r"(?s)(?=.*k is made with W_q)(?=.*v is made with W_q)",
         steps={name: lambda made, given: split(given.x @ given.matrices["W_q"], given.heads) for name in "kv"}),
    Case("one row without scale", "In the second row alone the scale is missing.", r"(?s)(?=.*scale)(?=.*t2)",
         steps=one_row("logits", 1, NO_SCALE["logits"])),
    Case("one row over columns", "In the last row alone the softmax is over the columns.",
         r"(?s)(?=.*softmax_over_queries)(?=.*t3)", steps=one_row("weights", 2, OVER_COLUMNS["weights"])),
    Case("shares to one", "Right; rows of weights were moved so that they sum to 1.", r"sum to 1|all right|^$", A_NAME,
         steps={"weights": lambda made, given: to_one(STEPS["weights"](made, given))}, free=("weights",)),
    # Several things at once
    Case("no scale and a slip", "The scale is missing, and there is a slip in the output.",
         rf"(?s)no_scale.*{SLIP}.*t2", steps=NO_SCALE | moved("output", (0, 1, 0), a_bit)),
    Case("a slip, then no sum", "A slip in q, and exp without the sum.", rf"(?s)(?=.*{SLIP})(?=.*sum)",
         steps=moved("q", (0, 1, 1), lambda number: number + 1) | NO_SUM),
    Case("no scale, over columns", "Two mistakes: no scale, softmax over columns.",
         r"(?s)(?=.*no_scale)(?=.*softmax_over_queries)", steps=NO_SCALE | OVER_COLUMNS),
    Case("no scale, A x", "Two mistakes: no scale, and x for v.", r"(?s)(?=.*no_scale)(?=.*\bx\b)",
         steps=NO_SCALE | TIMES_X),
    Case("no scale, one decimal", "The scale is missing, and all is rounded to one decimal.",
         r"(?s)(?=.*no_scale)(?=.*(one|1) decimal)", steps=NO_SCALE, rounds=one_decimal, writes=written_to_one),
    Case("two slips and no sum", "Slips in q and in the output, and exp without the sum.",
         rf"(?s)(?=.*{SLIP})(?=.*t1)(?=.*t3)(?=.*sum)",
         steps=moved("q", (0, 0, 0), lambda number: number + 1) | NO_SUM | moved("output", (0, 2, 0), a_bit)),
    # Somebody else's numbers, or nobody's
    Case("another's", "These are the numbers of another student's sheet.", r"{other}", A_NAME, other="right",
         lost=(75, 75)),
    Case("another's mistake", "Copied from another student, mistake and all.", r"{other}", other="no scale",
         lost=(75, 75)),
    Case("nobody's weights", "Nobody knows where the weights come from; the output follows.", rf"{UNKNOWN}|not known",
         A_NAME, steps={"weights": lambda made, given: NOBODYS}),
    Case("noughts", "Noughts everywhere, so that something stands there.", rf"{UNKNOWN}|not known", A_NAME,
         edits=tuple(times(stage, 0.0) for stage in ORDER), lost=(30, 75), free=ORDER),
    # Heads and masks, positions
    Case("heads right", "All is right.", r"all right|^$", A_NAME, sheet="heads"),
    Case("mask ignored", "The mask was not used.", r"(causal|mask)_ignored", sheet="heads",
         steps={"masked": lambda made, given: made["logits"]}),
    Case("mask of noughts", "Hidden logits are 0 instead of minus infinity.",
         r"mask_multiplied|mask_small_fill|0 instead", sheet="heads",
         steps={"masked": lambda made, given: np.where(given.hidden, 0.0, made["logits"])}),
    Case("masked right, weights not", "The box of the mask is right, the softmax is of the logits before it.",
         r"logits|mask", sheet="heads", steps={"weights": lambda made, given: softmax(made["logits"])}),
    Case("heads in the wrong order", "The second head stands first in the output.", r"heads_reversed", sheet="heads",
         steps={"output": lambda made, given: finished({"context": made["context"][::-1]}, given)}),
    Case("no W_o", "The last matrix was forgotten.", r"no_output_projection|W_o", sheet="heads",
         steps={"output": lambda made, given: joined(made["context"])}),
    Case("two slips in two heads", "A slip in each head.", rf"(?s){SLIP}.*head 1.*head 2", A_NAME, sheet="heads",
         steps=moved("q", (0, 1, 0), lambda number: number + 1) | moved("context", (1, 2, 1), a_bit)),
    Case("one head without scale", "In the second head alone the scale is missing.", r"(?s)(?=.*scale)(?=.*head 2)",
         sheet="heads",
         steps={"logits": lambda made, given: np.stack([made["scores"][0] * given.scale, made["scores"][1]])}),
    Case("one head twice", "The context of the first head stands for both.", r"head 1", sheet="heads",
         steps={"output": lambda made, given: finished({"context": made["context"][[0, 0]]}, given)}),
    Case("no scale, W_o forgotten", "Two mistakes, in two heads' logits and in the output.",
         r"(?s)(?=.*no_scale)(?=.*(no_output_projection|W_o))", sheet="heads",
         steps=NO_SCALE | {"output": lambda made, given: joined(made["context"])}),
    Case("rope right", "All is right.", r"all right|^$", A_NAME, sheet="rope"),
    Case("rope without turning", "q and k were not turned.", r"position_missing|not turned|positions", sheet="rope",
         steps={name: lambda made, given, name=name: (given.x @ given.matrices[f"W_{name}"])[None] for name in "qk"}),
    Case("rope, no sum and a slip", "exp without the sum, and a slip in the scores.", rf"(?s)(?=.*{SLIP})(?=.*sum)",
         sheet="rope", steps=moved("scores", (0, 2, 2), lambda number: number + 1) | NO_SUM),
)  # fmt: skip


def given_by(paper: Paper) -> Given:
    """Return what a sheet starts from."""
    settled, problem = paper.sheet.settled, paper.sheet.problem
    right = {name: np.round(np.asarray(paper.exact[name]), 6) for name in ("q", "k", "v")}
    count = len(problem.tokens)
    hidden = (
        np.triu(np.ones((count, count), bool), 1) if any(blank.stage == "masked" for blank in paper.blanks) else None
    )
    last = bool(settled.output_projection)
    x = np.asarray(problem.x)
    return Given(x, problem.projections, right, settled.head, hidden, float(settled.multiplier), last)


def filled(paper: Paper, case: Case) -> tuple[Made, tuple[int, int]]:
    """Return the boxes `[h rows columns]` of a student, and the fewest and most points that a fair teacher takes."""
    given, asked = given_by(paper), {blank.stage for blank in paper.blanks}
    made: Made = {}
    low, high = case.lost
    for stage in ORDER:
        right = STEPS[stage](made, given)
        computed = case.steps.get(stage, STEPS[stage])(made, given)
        made[stage] = np.array(computed if stage in "qkv" and stage not in asked else case.rounds(computed), float)
        seen = "output" if stage == "context" and stage not in asked else stage
        if stage in case.steps and stage not in case.free and seen in asked:
            with np.errstate(invalid="ignore"):
                apart = np.where(made[stage] == right, 0.0, np.nan_to_num(np.abs(made[stage] - right), posinf=9.0))
            coarse = 0.1 if case.rounds is one_decimal else 0.0
            low += int((apart > CLEAR + coarse).sum())
            high += int((apart > CLOSE).sum())
    for edit in case.edits:
        edit(made, given)
    return made, (low, high)


def table(paper: Paper, made: Made, case: Case) -> str:
    """Return the file that a student hands in."""
    out = io.StringIO()
    lines = csv.writer(out)
    for blank in paper.blanks:
        for head, numbers in enumerate(made[blank.stage]):
            name = f"{blank.stage} head {head + 1}" if len(blank.right) > 1 else blank.stage
            lines.writerow([name, *blank.columns])
            for row, line in zip(blank.rows, numbers, strict=True):
                cells = ("" if np.isnan(number) else case.writes(blank.stage, float(number)) for number in line)
                lines.writerow([row, *cells])
            lines.writerow([])
    return case.text(out.getvalue())


@dataclass(frozen=True)
class Judged:
    """What became of a case: whether a fair teacher would sign it, and why not."""

    case: Case
    student: str
    trouble: str
    said: str
    points: str


def judged(case: Case, student: str, home: Path, keys: Mapping[str, Mapping[str, Paper]]) -> Judged:
    """Hand in one case as one student, and hold the grade against the teacher."""
    papers = keys[case.sheet]
    other = next(name for name in papers if name != student)
    folder = home / case.sheet / "in"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    source = papers[other if case.other else student]
    taken = next((one for one in CASES if one.name == case.other), case)
    made, lost = filled(source, taken)
    lost = case.lost if case.other else lost
    (folder / f"{student}.csv").write_text(table(source, made, taken), encoding="utf-8")
    if case.other:
        (folder / f"{other}.csv").write_text(table(source, made, taken), encoding="utf-8")
    with contextlib.redirect_stdout(io.StringIO()):
        grade_answers([str(folder), str(home / case.sheet / "class" / "key")])
    with (home / case.sheet / "class" / "grades" / "grades.csv").open(encoding="utf-8", newline="") as file:
        line = next(line for line in csv.DictReader(file) if line["student"] == student)
    said = f"{line.get('mistake', '')} {line.get('what it is', '')}".strip()
    return Judged(case, student, trouble_with(case, line, said, lost, other), said, f"{line['points']} of {line['of']}")


def trouble_with(case: Case, line: Mapping[str, str], said: str, lost: tuple[int, int], other: str) -> str:
    """Return what a fair teacher would object to; nothing where all is fair."""
    if not line["points"]:
        return "no points: the file was not read"
    taken = int(line["of"]) - int(line["points"])
    trouble = [] if lost[0] <= taken <= lost[1] else [f"{taken} points lost, fair are {lost[0]} to {lost[1]}"]
    must = case.must.replace("{other}", other)
    trouble += [] if re.search(must, said, re.IGNORECASE) else [f"not said: {must}"]
    trouble += [f"said: {case.never}"] if case.never and re.search(case.never, said) else []
    return "; ".join(trouble)


def every(names: Sequence[str], only: str = "") -> list[Judged]:
    """Hand out the sheets, and return what became of each case for each student."""
    with tempfile.TemporaryDirectory() as folder:
        keys = handed_out(Path(folder))
        return [judged(case, name, Path(folder), keys) for name in names for case in CASES if only in case.name]


def handed_out(home: Path) -> dict[str, dict[str, Paper]]:
    """Write the sheets of a class into a folder, and return them by kind and name."""
    keys: dict[str, dict[str, Paper]] = {}
    composed, before = composer(typed=False), Path.cwd()
    for sheet, words in SHEETS.items():
        (home / sheet).mkdir()
        os.chdir(home / sheet)
        try:
            Path("names.csv").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
            write_sheets([*words, "names=names.csv", "to=class"])
        finally:
            os.chdir(before)
        places = {name: home / sheet / "class" / "key" / f"{name}.json" for name in NAMES}
        keys[sheet] = {name: read_key(place).paper(composed) for name, place in places.items()}
    return keys


def main(words: Sequence[str] | None = None) -> None:
    """Print what is not fair, and how many are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="Ada", help=f"whose numbers are filled in, of {', '.join(NAMES)}")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument(
        "--table", action="store_true", help="print the cases with what a fair teacher says, and no more"
    )
    parser.add_argument("--said", action="store_true", help="print what is said of each")
    asked = parser.parse_args(words)
    if asked.table:
        for case in CASES:
            print(f"{case.sheet:6} {case.name:28} {case.teacher}")
        return
    found = every(asked.names.split(","), asked.only)
    for one in found:
        if asked.said or one.trouble:
            mark = "UNFAIR" if one.trouble else "fair"
            print(f"{mark:7}{one.student:6} {one.case.name}: {one.points}: {one.said}")
            print(f"{'':14}{one.trouble}" if one.trouble else "", end="\n" if one.trouble else "")
    fair = sum(not one.trouble for one in found)
    print(f"{fair} of {len(found)} as a fair teacher would")


if __name__ == "__main__":
    main()

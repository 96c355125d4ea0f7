"""How fair grades are: python benchmarks/classroom.py [--names Ada,Alan] [--only NAME] [--said]

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
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from attn_exp.diagnosis.classroom.paper import Paper
from attn_exp.runs.grades import grade_answers
from attn_exp.runs.sheets import make_composer, read_keys, write_sheets

Array = NDArray[Any]
Step = Callable[[dict[str, Any]], Array]
"""Computes a stage from the stages before it, x, the matrices, and the settings of the sheet."""
Edit = Callable[[Array], Array]

NAMES = (
    "Ada", "Alan", "Grace", "Emmy", "Kurt", "Sofia", "Carl", "Maria", "Leon", "Hedy", "Evan", "Rosa", "Noor", "Paul",
    "Lise", "Omar", "Jean", "Mary", "Ravi", "Edith", "Hugo", "Vera", "Ivan", "Tove",
)  # fmt: skip
DRAWN = ("embeddings=random", "embeddings.tokens=3", "embeddings.d_model=4")
SHEETS = {
    "one": (*DRAWN, "variant=[matrix]"),
    "heads": (*DRAWN, "head=2", "mask=causal", "variant=[multi_head]"),
    "rope": (*DRAWN, "position=rope", "variant=[matrix]"),
}
ORDER = ("q", "k", "v", "scores", "logits", "masked", "weights", "context", "output")
CLOSE, CLEAR = 0.0051, 0.03
"""A number nearer than the first to what follows is no error, beyond the second it is one."""


def softmax(logits: Array, axis: int = -1) -> Array:
    with np.errstate(all="ignore"):
        powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
        return np.asarray(np.nan_to_num(powers / powers.sum(axis=axis, keepdims=True)))


def shares(logits: Array) -> Array:
    """Divide by the sum of a row; zero where that is zero, as nobody can divide by it."""
    total = logits.sum(axis=-1, keepdims=True)
    return np.where(np.abs(total) < CLOSE, 0.0, logits / np.where(np.abs(total) < CLOSE, 1.0, total))


def turned(array: Array) -> Array:
    return np.swapaxes(array, -1, -2)


def emptied(array: Array) -> Array:
    return np.full(array.shape, np.nan)


def split(flat: Array, heads: int) -> Array:
    """Cut `[t m]` into heads `[h t d]`."""
    return flat.reshape(len(flat), heads, -1).transpose(1, 0, 2)


def joined(heads: Array) -> Array:
    """Put heads `[h t d]` side by side, `[1 t m]`."""
    return heads.transpose(1, 0, 2).reshape(1, heads.shape[1], -1)


def finished(m: dict[str, Any]) -> Array:
    return joined(m["context"]) @ m["W_o"] if m["projected"] else joined(m["context"])


STEPS: dict[str, Step] = {
    "q": lambda m: m["right q"],
    "k": lambda m: m["right k"],
    "v": lambda m: m["right v"],
    "scores": lambda m: m["q"] @ turned(m["k"]),
    "logits": lambda m: m["scores"] * m["scale"],
    "masked": lambda m: np.where(m["hidden"], -np.inf, m["logits"]),
    "weights": lambda m: softmax(m["masked"]),
    "context": lambda m: m["weights"] @ m["v"],
    "output": finished,
}
"""What is right at each box, from the numbers that stand before it."""


def plainly(stage: str, number: float) -> str:
    return f"{number:.2f}" if np.isfinite(number) else str(number)


def to_one_decimal(stage: str, number: float) -> str:
    return f"{number:.1f}" if np.isfinite(number) else str(number)


def cut_off(stage: str, number: float) -> str:
    return plainly(stage, float(cut(np.array(number))))


def cut(array: Array) -> Array:
    return np.trunc(np.round(array * 100, 6)) / 100


@dataclass(frozen=True)
class Case:
    """An answer file: what the student does, and what a fair teacher says.

    `steps` are computed otherwise, and what follows goes on from them; `edits` change what is written and nothing goes
    on from that. `rounds` is how a number is rounded before one goes on, `writes` how it is written. `lost` are the
    points that the teacher takes beside those of the `steps`, and `must` what is said. `slack`: how far a number may be
    off beside `CLEAR`. `other`: the case of another student that is handed in.
    """

    name: str
    teacher: str
    must: str = ""
    never: str = ""
    sheet: str = "one"
    steps: Mapping[str, Step] = field(default_factory=dict)
    edits: Mapping[str, Edit] = field(default_factory=dict)
    rounds: Edit = lambda array: np.round(array, 2)
    writes: Callable[[str, float], str] = plainly
    text: Callable[[str], str] = lambda text: text
    lost: tuple[int, int] = (0, 0)
    slack: float = 0.0
    free: tuple[str, ...] = ()
    other: str = ""


def then(stage: str, edit: Edit) -> dict[str, Step]:
    return {stage: lambda m: edit(np.array(STEPS[stage](m)))}


def changed(place: tuple[int, int, int], change: Callable[[float], float]) -> Edit:

    def edit(array: Array) -> Array:
        array = array.copy()
        array[place] = change(float(array[place]))
        return array

    return edit


def in_cell(stage: str, row: int, column: int, put: str) -> Callable[[str], str]:

    def change(text: str) -> str:
        lines = [line.split(",") for line in text.splitlines()]
        start = next(at for at, line in enumerate(lines) if line[0].startswith(stage))
        lines[start + 1 + row][1 + column] = put
        return "\n".join(map(",".join, lines))

    return change


def german(text: str) -> str:
    return text.replace(",", ";").replace(".", ",")


def a_bit(number: float) -> float:
    return number + 0.7


def other_digits(number: float) -> float:
    digits = f"{number:.2f}"
    swapped = float(f"{digits[:2]}{digits[3]}{digits[2]}")
    return swapped if abs(swapped - number) > CLEAR else number + 0.2


def lost_sign(array: Array) -> Array:
    return np.where(np.abs(array) == np.abs(array).max(), -array, array)


NO_SCALE: dict[str, Step] = {"logits": lambda m: m["scores"]}
OVER_COLUMNS: dict[str, Step] = {"weights": lambda m: softmax(m["masked"], -2)}
OF_SCORES: dict[str, Step] = {"weights": lambda m: softmax(m["scores"])}
NO_SUM: dict[str, Step] = {"weights": lambda m: np.exp(m["masked"])}
TIMES_X: dict[str, Step] = {"context": lambda m: m["weights"] @ m["x"][None]}
NOBODYS = np.array([[[0.11, 0.23, 0.66], [0.31, 0.48, 0.21], [0.57, 0.14, 0.29]]])
SLIP, UNKNOWN = r"slip", r"no known mistake"
A_NAME = r"\b(scale|softmax|weights|mask|values|queries|heads|projection|no)_[a-z_]+"
"""Names of mistakes: a student who made none is not given one."""

CASES = (
    # Right, and written in one way or another
    Case("right", "All is right.", r"all right|^$", A_NAME),
    Case("three decimals", "All is right, more exactly than asked.", r"all right|^$", A_NAME, rounds=np.asarray,
         writes=lambda stage, number: f"{number:.3f}"),
    Case("german", "All is right, with commas and semicolons.", r"all right|^$", A_NAME, text=german),
    Case("one decimal", "Right, but rounded too coarsely: one decimal instead of two.", r"one decimal|1 decimal",
         A_NAME, rounds=np.asarray, writes=to_one_decimal),
    Case("one decimal, gone on", "Right, but every step rounded to one decimal.", r"one decimal|1 decimal", A_NAME,
         rounds=lambda a: np.round(a, 1), slack=0.1,
         writes=to_one_decimal),
    Case("weights to one decimal", "The weights are rounded too coarsely; the rest follows.", r"one decimal|1 decimal",
         A_NAME, steps=then("weights", lambda a: np.round(a, 1)), free=("weights",),
         writes=lambda stage, number: f"{number:.1f}" if stage == "weights" else plainly(stage, number)),
    Case("cut", "Right, but cut after two decimals instead of rounded.", r"\btruncated\b", A_NAME, rounds=np.asarray,
         writes=cut_off),
    Case("percent", "Right; the weights are in percent.", r"percent", A_NAME, edits={"weights": lambda a: 100 * a}),
    Case("weights turned", "Right; the box of the weights has rows and columns exchanged.", r"rows and columns", A_NAME,
         edits={"weights": turned}),
    Case("empty", "Nothing was filled in.", r"missing|nothing|empty", A_NAME,
         edits=dict.fromkeys(ORDER, emptied), lost=(75, 75)),
    # A cell that nobody can read is that cell
    Case("ca.", "One cell says 'ca. 0.5'; the rest is right.", r"ca\. 0\.5", A_NAME,
         text=in_cell("weights", 0, 1, "ca. 0.5"), lost=(1, 1)),
    Case("a formula", "One cell holds '=1/3' as a spreadsheet does; the rest is right.", r"", A_NAME,
         text=in_cell("weights", 2, 0, "=1/3"), lost=(0, 1)),
    Case("unreadable and no scale", "The scale is missing, and one cell cannot be read.", r"(?s)no_scale.*ca\. 2",
         steps=NO_SCALE, text=in_cell("output", 0, 1, "ca. 2"), lost=(1, 1)),
    # Slips
    Case("slip in scores", "One slip, from which all follows.", rf"{SLIP}.*row t2, key t1|{SLIP}.*t2", A_NAME,
         steps=then("scores", changed((0, 1, 0), lambda number: number + 1))),
    Case("two slips", "Two slips, in the scores and in the output.", rf"(?s){SLIP}.*row t2.*row t3", A_NAME,
         steps=then("scores", changed((0, 1, 0), lambda number: number + 1))
         | then("output", changed((0, 2, 1), a_bit))),
    Case("three slips", "Three slips in three boxes.", rf"(?s){SLIP}.*row t1.*row t2.*row t3", A_NAME,
         steps=then("q", changed((0, 0, 3), lambda number: number + 2)) | then("logits", changed((0, 1, 1), a_bit))
         | then("output", changed((0, 2, 0), lambda number: number - 0.6))),
    Case("sign", "A sign is lost in k.", rf"{SLIP}.*sign|sign", A_NAME,
         steps=then("k", lost_sign)),
    Case("digits exchanged", "0.72 stands for 0.27: a slip in the weights that went no further.", SLIP, A_NAME,
         edits={"weights": changed((0, 0, 0), other_digits)}, lost=(1, 1)),
    Case("point", "The point is in the wrong place in one weight.", SLIP, A_NAME,
         edits={"weights": changed((0, 1, 2), lambda number: 10 * max(number, 0.05))}, lost=(1, 1)),
    Case("copied wrongly", "v has a number wrongly copied; the output is right.", rf"{SLIP}.*t3", A_NAME,
         edits={"v": changed((0, 2, 2), lambda number: number + 3)}, lost=(1, 1)),
    Case("columns exchanged", "Two columns of the scores are exchanged; what follows is right.",
         r"columns.*t2.*t3|columns t2 and t3", A_NAME, edits={"scores": lambda a: a[..., [0, 2, 1]]}, lost=(1, 6)),
    Case("rows exchanged", "Two rows of the logits are exchanged; what follows is right.", r"rows.*t1.*t2", A_NAME,
         edits={"logits": lambda a: a[:, [1, 0, 2]]}, lost=(1, 6)),
    # One mistake
    Case("no scale", "The scale is missing; all else follows.", r"no_scale", steps=NO_SCALE),
    Case("by d", "Divided by d instead of its root.", r"scale_by_d\b",
         steps={"logits": lambda m: m["scores"] * m["scale"]**2}),
    Case("over columns", "The softmax is over the columns.", r"softmax_over_queries", steps=OVER_COLUMNS),
    Case("softmax of the scores", "The logits are right, the softmax is of the scores.", r"softmax.*scores",
         steps=OF_SCORES),
    Case("exp without the sum", "exp is there, the division is not.", r"(exp|divided).*(sum|divided)", steps=NO_SUM),
    Case("shares without exp", "The logits are divided by their sum, without exp.", r"sum_normalized|normalizer=sum",
         steps={"weights": lambda m: shares(m["logits"])}),
    Case("A x", "The weights are times x instead of v.", r"\bx\b", steps=TIMES_X),
    Case("A turned", "The weights are transposed in the product.", r"weights_transposed",
         steps={"context": lambda m: turned(m["weights"]) @ m["v"]}),
    Case("logits times v", "The logits are times v: the weights were forgotten.", r"logits|no_softmax",
         steps={"context": lambda m: m["logits"] @ m["v"]}),
    Case("q q", "Queries are compared with queries.", r"keys_from_queries|queries",
         steps={"scores": lambda m: m["q"] @ turned(m["q"])}),
    Case("k q", "The scores are k q^T.", r"queries_keys_swapped|rows and columns",
         steps={"scores": lambda m: m["k"] @ turned(m["q"])}),
    Case("W turned", "q is x times W_q transposed.", r"projection_transposed|transposed",
         steps={"q": lambda m: split(m["x"] @ m["W_q"].T, m["heads"])}),
    Case("the largest takes all", "The largest logit of each row gets all the weight.", r"largest",
         steps={"weights": lambda m: (m["masked"].argmax(-1)[..., None] == np.arange(3)).astype(float)}),
    Case("no scale, output empty", "The scale is missing, and the output was left out.",
         r"(?s)(?=.*no_scale)(?=.*empty.*output)", steps=NO_SCALE, edits={"output": emptied}, lost=(12, 12)),
    Case("no signs in k", "All minus signs of k are lost.", r"sign|all right|^$", steps=then("k", np.abs)),
    Case("W_q for all", "q, k and v are all x W_q.", r"(?s)(?=.*k is computed with W_q)(?=.*v is computed with W_q)",
         steps={name: lambda m: split(m["x"] @ m["W_q"], m["heads"]) for name in "kv"}),
    Case("one row without scale", "In the second row alone the scale is missing.", r"(?s)(?=.*scale)(?=.*t2)",
         steps=then("logits", lambda a: a * np.array([1, 2, 1])[:, None])),
    Case("one row over columns", "In the last row alone the softmax is over the columns.",
         r"(?s)(?=.*softmax_over_queries)(?=.*t3)", steps={"weights": lambda m: np.where(
             np.arange(3)[:, None] == 2, softmax(m["masked"], -2), softmax(m["masked"]))}),
    # Several things at once
    Case("no scale and a slip", "The scale is missing, and there is a slip in the output.",
         rf"(?s)no_scale.*{SLIP}.*t2", steps=NO_SCALE | then("output", changed((0, 1, 0), a_bit))),
    Case("a slip, then no sum", "A slip in q, and exp without the sum.", rf"(?s)(?=.*{SLIP})(?=.*sum)",
         steps=then("q", changed((0, 1, 1), lambda number: number + 1)) | NO_SUM),
    Case("no scale, A x", "Two mistakes: no scale, and x for v.", r"(?s)(?=.*no_scale)(?=.*\bx\b)",
         steps=NO_SCALE | TIMES_X),
    # Somebody else's numbers, or nobody's
    Case("another's", "These are the numbers of another student's sheet.", r"{other}", A_NAME, other="right",
         lost=(75, 75)),
    Case("nobody's weights", "Nobody knows where the weights come from; the output follows.", rf"{UNKNOWN}|not known",
         A_NAME, steps={"weights": lambda m: NOBODYS}),
    Case("noughts", "Noughts everywhere, so that something stands there.", rf"{UNKNOWN}|not known", A_NAME,
         edits=dict.fromkeys(ORDER, lambda a: 0.0 * a), lost=(30, 75), free=ORDER),
    # Heads and masks, positions
    Case("heads right", "All is right.", r"all right|^$", A_NAME, sheet="heads"),
    Case("mask ignored", "The mask was not used.", r"(causal|mask)_ignored", sheet="heads",
         steps={"masked": lambda m: m["logits"]}),
    Case("mask of noughts", "Hidden logits are 0 instead of minus infinity.",
         r"mask_multiplied|mask_small_fill|0 instead", sheet="heads",
         steps={"masked": lambda m: np.where(m["hidden"], 0.0, m["logits"])}),
    Case("masked right, weights not", "The box of the mask is right, the softmax is of the logits before it.",
         r"logits|mask", sheet="heads", steps={"weights": lambda m: softmax(m["logits"])}),
    Case("heads in the wrong order", "The second head stands first in the output.", r"heads_reversed", sheet="heads",
         steps={"output": lambda m: finished(m | {"context": m["context"][::-1]})}),
    Case("no W_o", "The last matrix was forgotten.", r"no_output_projection|W_o", sheet="heads",
         steps={"output": lambda m: joined(m["context"])}),
    Case("two slips in two heads", "A slip in each head.", rf"(?s){SLIP}.*head 1.*head 2", A_NAME, sheet="heads",
         steps=then("q", changed((0, 1, 0), lambda number: number + 1)) | then("context", changed((1, 2, 1), a_bit))),
    Case("one head without scale", "In the second head alone the scale is missing.", r"(?s)(?=.*scale)(?=.*head 2)",
         sheet="heads",
         steps={"logits": lambda m: np.stack([m["scores"][0] * m["scale"], m["scores"][1]])}),
    Case("rope right", "All is right.", r"all right|^$", A_NAME, sheet="rope"),
    Case("rope without turning", "q and k were not turned.", r"position_missing|not turned|positions", sheet="rope",
         steps={"q": lambda m: (m["x"] @ m["W_q"])[None], "k": lambda m: (m["x"] @ m["W_k"])[None]}),
)  # fmt: skip


def start_of(paper: Paper) -> dict[str, Any]:
    """Return what a sheet starts from: x, the matrices, and what is right for q, k and v."""
    settled, problem = paper.sheet.settled, paper.sheet.problem
    masked = any(blank.stage == "masked" for blank in paper.blanks)
    right = {f"right {name}": np.round(np.asarray(paper.exact[name]), 6) for name in "qkv"}
    return right | dict(problem.projections) | {
        "x": np.asarray(problem.x), "heads": settled.head, "scale": float(settled.multiplier),
        "projected": bool(settled.output_projection), "hidden": masked & np.triu(np.ones((3, 3), bool), 1),
    }  # fmt: skip


def filled(paper: Paper, case: Case) -> tuple[dict[str, Any], tuple[int, int]]:
    """Return the boxes `[h rows columns]` of a student, and the fewest and most points that a fair teacher takes."""
    made, asked = start_of(paper), {blank.stage for blank in paper.blanks}
    low, high = case.lost
    for stage in ORDER:
        right = STEPS[stage](made)
        computed = case.steps.get(stage, STEPS[stage])(made)
        made[stage] = np.array(computed if stage in "qkv" and stage not in asked else case.rounds(computed), float)
        seen = "output" if stage == "context" and stage not in asked else stage
        if stage in case.steps and stage not in case.free and seen in asked:
            with np.errstate(invalid="ignore"):
                apart = np.where(made[stage] == right, 0.0, np.nan_to_num(np.abs(made[stage] - right), posinf=9.0))
            low += int((apart > CLEAR + case.slack).sum())
            high += int((apart > CLOSE).sum())
    return made | {stage: edit(made[stage]) for stage, edit in case.edits.items()}, (low, high)


def table(paper: Paper, made: Mapping[str, Array], case: Case) -> str:
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


class Judged(NamedTuple):
    """What a fair teacher would object to in a grade (nothing where all is fair), what was said, and the points."""

    trouble: str
    said: str
    points: str


def judged(case: Case, student: str, home: Path, keys: Mapping[str, Mapping[str, Paper]]) -> Judged:
    papers, place = keys[case.sheet], home / case.sheet / "class"
    other = next(name for name in papers if name != student)
    taken = next((one for one in CASES if one.name == case.other), case)
    source = papers[other if case.other else student]
    made, lost = filled(source, taken)
    lost = case.lost if case.other else lost
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        for name in (student, other) if case.other else (student,):
            Path(folder, f"{name}.csv").write_text(table(source, made, taken), encoding="utf-8")
        grade_answers([folder, str(place / "key.json")])
    with (place / "grades" / "grades.csv").open(encoding="utf-8", newline="") as file:
        line = next(line for line in csv.DictReader(file) if line["student"] == student)
    said = f"{line.get('mistake', '')} {line.get('what it is', '')}".strip()
    must = case.must.replace("{other}", other)
    points = int(line["of"]) - int(line["points"] or -99)
    trouble = {
        f"{points} points lost, fair are {lost[0]} to {lost[1]}": not lost[0] <= points <= lost[1],
        f"not said: {must}": not re.search(must, said, re.IGNORECASE),
        f"said: {case.never}": bool(case.never and re.search(case.never, said)),
    }
    found = "; ".join(text for text, is_so in trouble.items() if is_so)
    return Judged(found, said, f"{line['points']} of {line['of']}")


def handed_out(home: Path) -> dict[str, dict[str, Paper]]:
    """Write the sheets of a class into a folder, and return them by kind and name."""
    composed, keys = make_composer(typed=False), dict[str, dict[str, Paper]]()
    for sheet, words in SHEETS.items():
        place = home / sheet
        place.mkdir()
        with contextlib.chdir(place):
            Path("names.csv").write_text("\n".join(NAMES) + "\n", encoding="utf-8")
            write_sheets([*words, "stages=all", "names=names.csv", "to=class"])
        keys[sheet] = {name: key.paper(composed) for name, key in read_keys(place / "class/key.json").items()}
    return keys


def main() -> None:
    """Print what is not fair, and how many are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", default="Ada", help=f"whose numbers are filled in, of {', '.join(NAMES)}; or all")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--said", action="store_true", help="print what is said of each")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys = handed_out(Path(folder))
        names = NAMES if asked.names == "all" else asked.names.split(",")
        pairs = [(case, name) for name in names for case in CASES if asked.only in case.name]
        found = [judged(case, name, Path(folder), keys) for case, name in pairs]
    for (case, student), one in zip(pairs, found, strict=True):
        if asked.said or one.trouble:
            print(f"{'UNFAIR' if one.trouble else 'fair':7}{student:6} {case.name}: {one.points}: {one.said}")
            print(f"{'':14}{case.teacher} {one.trouble}")
    print(f"{sum(not one.trouble for one in found)} of {len(found)} as a fair teacher would")


if __name__ == "__main__":
    main()

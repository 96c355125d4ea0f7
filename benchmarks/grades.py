"""How long grading takes: python benchmarks/grades.py [--answers 200] [--base CHECKOUT]

Hands out sheets, fills them in by plain NumPy, twelve of thirteen wrongly, and times `attn-exp grade` as a whole
command, by the clock and in processor time. The goal is 200 answers in under 10 s. With `--base` the same answers are
graded by that checkout too.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from attn_exp.diagnosis.classroom.paper import Paper  # noqa: E402 - from the checkout
from attn_exp.runs.classroom.sheets import composer, read_key  # noqa: E402
from benchmarks.processor import described  # noqa: E402

Array = NDArray[Any]
DRAWN = ("embeddings=random", "embeddings.tokens=4", "embeddings.d_model=4")
CLASSES = {
    "a sheet per student": ("{answers}", *DRAWN, "variant=[matrix]"),
    "two heads and a mask, a sheet per student": ("{answers}", *DRAWN, "variant=[multi_head]", "head=2", "mask=causal"),
    "two heads and a mask, one sheet": ("1", *DRAWN, "variant=[multi_head]", "head=2", "mask=causal"),
}
"""Classes: how many sheets, and the settings of each."""
WAYS = (
    "no scale", "scale by d", "scale times", "over queries", "no mask", "mask late", "keys as values", "swapped",
    "nobody's mask", "no scale and a slip", "weights of nobody", "slip", "right",
)  # fmt: skip
"""What a student does: the first eight are mistakes all the way down; the next three are looked for last."""


def softmax(logits: Array, axis: int) -> Array:
    powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
    shares: Array = powers / powers.sum(axis=axis, keepdims=True)
    return shares


def filled(paper: Paper, way: str, source: np.random.Generator) -> dict[str, Array]:
    """Return the boxes `[h rows columns]` of one student, each rounded as the sheet asks."""
    problem, heads, digits = paper.sheet.problem, paper.sheet.settled.head, paper.digits
    given = [np.asarray(array) for array in (problem.q, problem.k, problem.v)]
    q, k, v = (np.round(array.reshape(len(array), heads, -1).transpose(1, 0, 2), digits) for array in given)
    if way == "swapped":
        q, k = k, q
    made = {"q": q, "k": k, "v": v, "scores": np.round(q @ k.transpose(0, 2, 1), digits)}
    usual = q.shape[-1] ** -0.5
    factor = {"no scale": 1.0, "no scale and a slip": 1.0, "scale by d": usual**2, "scale times": 1 / usual}
    made["logits"] = np.round(made["scores"] * factor.get(way, usual), digits)
    if way == "slip":
        made["logits"][0, 1, 0] += 0.3
    masked = any(blank.stage == "masked" for blank in paper.blanks)
    later = np.triu(np.ones(made["logits"].shape[1:], bool), 1)
    hidden = later & (masked or way == "nobody's mask")
    made["masked"] = np.where(hidden & (way not in ("no mask", "mask late")), -np.inf, made["logits"])
    with np.errstate(all="ignore"):
        weights = np.nan_to_num(softmax(made["masked"], -2 if way == "over queries" else -1))
    weights = np.where(hidden & (way == "mask late"), 0.0, weights)
    made["weights"] = np.round(source.uniform(size=weights.shape) if way == "weights of nobody" else weights, digits)
    made["context"] = np.round(made["weights"] @ (k if way == "keys as values" else v), digits)
    if way == "no scale and a slip":
        made["context"][0, 1, 0] += 0.3
    joined = made["context"].transpose(1, 0, 2).reshape(len(q[0]), -1)
    mixed = joined @ problem.projections["W_o"] if paper.sheet.settled.output_projection else joined
    made["output"] = np.round(mixed, digits)[None]
    return made


def written(paper: Paper, made: dict[str, Array], path: Path) -> None:
    """Write one student's answers.csv."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        for blank in paper.blanks:
            for head, numbers in enumerate(made[blank.stage]):
                name = f"{blank.stage} head {head + 1}" if len(blank.right) > 1 else blank.stage
                lines.writerow([name, *blank.columns])
                lines.writerows([row, *map(str, line)] for row, line in zip(blank.rows, numbers, strict=True))
                lines.writerow([])


def command(checkout: Path, folder: Path, *words: str) -> tuple[float, float]:
    """Run attn-exp of a checkout in a folder, and return the seconds that it took, by the clock and of processors."""
    begin, start = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    subprocess.run(
        [sys.executable, "-m", "attn_exp", *words], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - begin, end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def handed(folder: Path, sheets: int, settings: tuple[str, ...], answers: int) -> None:
    """Hand out sheets, and fill in so many answers."""
    seeds = [f"seed=range(0,{sheets})"] if sheets > 1 else ["seed=3"]
    command(ROOT, folder, "sheet", *settings, *seeds, "to=class")
    keys = sorted((folder / "class" / "key").glob("*.json"))
    composed = composer(typed=False)
    (folder / "in").mkdir()
    for number in range(answers):
        place = keys[number % len(keys)]
        paper = read_key(place).paper(composed)
        made = filled(paper, WAYS[number % len(WAYS)], np.random.default_rng(number))
        written(paper, made, folder / "in" / (f"{place.stem}.csv" if len(keys) > 1 else f"student{number:03}.csv"))


def main() -> None:
    """Print the seconds of each class."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=200)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    print(described())
    record = {}
    for name, (sheets, *settings) in CLASSES.items():
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home)
            handed(folder, int(sheets.format(answers=asked.answers)), tuple(settings), asked.answers)
            checkouts = {"now": ROOT} | ({} if asked.base is None else {"base": asked.base})
            took = {who: command(place, folder, "grade", "in", "class/key") for who, place in checkouts.items()}
            record[name] = took
            told = (f"{who} {clock:.1f} s ({work:.1f} s of processors)" for who, (clock, work) in took.items())
            print(f"{name}: {', '.join(told)}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

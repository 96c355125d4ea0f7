"""Whatever somebody may have done to the contents of a run: arrays, rows and parts of other shapes, types and runs.

Where `outputs` harms files as bytes, these stay files that can be read, and their seals are taken off or made anew:
what they hold no longer fits what the run says of itself.
"""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp.runs import trust
from attn_exp.sweeps.parts import digest_of
from tools.fuzz._folders import attempted, tried, twist
from tools.fuzz._processes import LOAD, done_once, kept_folder

PLAIN = ["report=none", "output_dir=outputs"]
CHECKS = "check=[conventions,invariants,geometry,heads,mask,measures,precision]"
RUNS = {
    "plain": [],
    "checked": ["variant=[matrix,looped]", "mask=causal", CHECKS, "dtype=[float32]", "metrics=[entropy]"],
    "late": ["embeddings=inline", "projections=none", "embeddings.q=[[1,2],[3,4]]", "embeddings.k=[[1,2],[3,4],[5,6]]"],
    "ready": ["embeddings=inline", "projections=none", "embeddings.weights=[[0.5,0.5],[1,0]]",
              "embeddings.v=[[1,2],[3,4]]", "variant=[matrix]"],
    "blocks": ["embeddings=random", "embeddings.tokens=80", "variant=[matrix,blockwise]", "weights=blocks"],
    "past": ["embeddings=random", "embeddings.tokens=5", "past=2", "variant=[matrix,decode]", "mask=causal"],
    "printed": ["experiment=attention_basics"],
}  # fmt: skip
SWEEP = ["-m", "variant=[matrix]", "seed=0,1,2", "head=1,2", "report=none", "sweep.name=s", "sweep.engine=serial",
         "sweep.chunk=2"]  # fmt: skip
Harm = Callable[[random.Random, Path], None]


@cache
def pattern() -> Path:
    """Make a run of each kind and a sweep once, and return the folder that holds them."""
    folder = kept_folder("tampered-")
    for name, words in RUNS.items():
        done_once(folder, [*words, *PLAIN])
        (new,) = (path for path in (folder / "outputs" / "runs").iterdir() if path.name not in RUNS)
        new.rename(new.with_name(name))
    done_once(folder, SWEEP)
    return folder


# What becomes of one array, or of one table

ODD: list[Callable[[random.Random, Any], Any]] = [
    lambda chance, array: array[:-1],
    lambda chance, array: array[..., :-1],
    lambda chance, array: array.T,
    lambda chance, array: array[None],
    lambda chance, array: array.ravel(),
    lambda chance, array: array[:0],
    lambda chance, array: np.concatenate([array, array]),
    lambda chance, array: array.astype(chance.choice(["f4", "i8", "?", "c16", "f2", "U3", "S2", "M8[s]"])),
    lambda chance, array: np.array(chance.choice([0, -1, 1e308, np.nan, "x", 2**62])),
    lambda chance, array: np.full_like(array, chance.choice([np.nan, np.inf, -np.inf, 1e308, -7])),
    lambda chance, array: np.zeros(chance.choice([(0,), (1,), (1, 1), (2, 0, 3), (1,) * 20])),
    lambda chance, array: np.asfortranarray(array[..., ::-1]),
]
CELLS = [
    "", "nan", "-1", "1e400", "9" * 5000, "true", "x" * 200_000, "=1+1", "\ud7ff", "0", "1.5", "a,b", "a\nb", "a\rb",
    "float16", "looped", "matrix", "A", "bit-identical", "scores", "\x1b[31m", "__class__", "../x",
]  # fmt: skip


def twist_array(chance: random.Random, run: Path) -> None:
    """Change, take away, add or exchange arrays."""
    with np.load(run / "results.npz") as stored:
        arrays = dict(stored)
    one, other = chance.choice(list(arrays)), chance.choice(list(arrays))
    kind = chance.randrange(8)
    try:
        if kind == 0:
            del arrays[one]
        elif kind == 1:
            arrays[one], arrays[other] = arrays[other], arrays[one]
        elif kind == 2:
            arrays[chance.choice(["W_x", "b_v", "other/weights", "matrix/summary/heat", "memory", "W_o"])] = arrays[one]
        else:
            arrays[one] = chance.choice(ODD)(chance, arrays[one])
    except (ValueError, TypeError, IndexError, OverflowError):
        return
    np.savez(run / "results.npz", **arrays)


def twist_table(chance: random.Random, run: Path) -> None:
    path = chance.choice(sorted(run.glob("*.csv")))
    lines = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    place, kind = chance.randrange(len(lines)), chance.randrange(8)
    column = chance.randrange(len(lines[0]))
    if kind == 0:
        del lines[place]
    elif kind == 1:
        lines.insert(place, lines[-1])
    elif kind == 2:
        lines[1:] = chance.sample(lines[1:], len(lines) - 1)
    elif kind == 3:
        lines = [line[:column] + line[column + 1 :] for line in lines]
    elif kind == 4:
        lines = [[*line, chance.choice(CELLS)] for line in lines]
    else:
        lines[place][column] = chance.choice(CELLS)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    path.write_text(text.getvalue(), "utf-8")


def swap_file(chance: random.Random, run: Path) -> None:
    other = run.with_name(chance.choice(list(RUNS)))
    names = sorted({path.name for path in run.iterdir() if path.is_file()} & {path.name for path in other.iterdir()})
    name = chance.choice(names)
    shutil.copyfile(other / name, run / name) if other != run else None


HARMS: list[Harm] = [twist_array, twist_array, twist_array, twist_table, twist_table, twist, swap_file]


def unseal(chance: random.Random, run: Path) -> None:
    """Take the seal off a run, or make it anew, as somebody would who knows how."""
    try:
        about = json.loads((run / "run.json").read_text("utf-8"))
        sealed = about.pop("files", {})
        about.pop("seal", None)
        if chance.random() < 0.5:
            about = trust.add_seal(about, run, [name for name in sealed if (run / name).is_file()])
    except (ValueError, AttributeError, OSError, TypeError, KeyError):
        return
    (run / "run.json").write_text(json.dumps(about), "utf-8")


def twist_part(chance: random.Random, sweep: Path) -> None:
    path = chance.choice(sorted((sweep / "parts").iterdir()))
    usual = csv.field_size_limit(2**24)  # it may have got a long cell before
    lines = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline="")))
    csv.field_size_limit(usual)
    place = chance.randrange(len(lines))
    column = chance.randrange(len(lines[0]))
    if chance.random() < 0.3:
        lines.insert(place, chance.choice(lines))
    elif chance.random() < 0.3:
        del lines[place]
    elif chance.random() < 0.3:
        del lines[place][column]
    else:
        lines[place][column] = chance.choice(CELLS)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    data = text.getvalue().encode()
    chunk = path.name[:24]
    path.unlink()
    (path.parent / f"{chunk}-{digest_of(chunk, data)}.csv").write_bytes(data)


def attempt(seed: int) -> str | None:
    """Tamper with a run or a sweep, try a command that reads it, and return what fell."""
    chance = random.Random(seed)
    with attempted(pattern() / "outputs") as here:
        run, place = chance.choice(list(RUNS)), "outputs/sweeps/s"
        if chance.random() < 0.2:
            for _ in range(chance.choice((1, 1, 2))):
                twist_part(chance, here / place)
            words = chance.choice([["report", place], ["collect", place], ["status", place], ["compare", place, place],
                                   ["rerun", place, "3"], [LOAD, place], SWEEP])  # fmt: skip
            done = "twist_part"
        else:
            place = f"outputs/runs/{run}"
            harms = [chance.choice(HARMS) for _ in range(chance.choice((1, 1, 2)))]
            for harm in harms:
                harm(chance, here / place)
            unseal(chance, here / place)
            words = chance.choice([["report", place], ["report", place, "report.depth=reading"], ["rerun", place],
                                   ["runs"], ["compare", place, "outputs/runs/plain"], ["open", place], [LOAD, place],
                                   ["index"], ["report", place, "figures.format=svg"]])  # fmt: skip
            done = f"{run}, {'+'.join(harm.__name__ for harm in harms)}"
        fell = tried(here, words)
        return fell and f"{done}, {' '.join(words)}: {fell}"

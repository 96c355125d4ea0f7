"""How often a sweep's verdicts are true: python benchmarks/answers.py [--sweeps 2000] [--quick]

Sweeps are drawn whose truth is known, and go through the code that answers a real sweep: from a `Cube` to `Effect`
rows. For each kind the table shows in how many sweeps of 100 any row is false, how many of the true effects are found,
in how many sweeps a row is a mean over an interaction without saying so, and how many 95 % intervals cover the truth.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from attn_exp.sweeps.effects import MATTERS, NO, YES, Effect
from attn_exp.sweeps.rows import Cube
from attn_exp.sweeps.summary import analyse_effects

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

VARIANTS = ("one", "two")
FLAG = ("true", "false")
SEEDS = ((2, 4), (5, 9), (10, 30))
"""How many seeds a sweep has: drawn from each of these ranges as often."""

NOISES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "lognormal": lambda rng, shape: rng.lognormal(size=shape) - math.exp(0.5),
    "t of 3": lambda rng, shape: rng.standard_t(3, size=shape),
}
"""Noise of mean 0 of one row."""


@dataclass(frozen=True)
class Truth:
    """The mean of the entropy by level of `a`, by `b` (true, false), `[levels, 2]`; variants are alike."""

    levels: tuple[str, ...]
    means: Array

    @property
    def depends(self) -> bool:
        return bool(np.ptp(self.means[:, 0] - self.means[:, 1]) > 0)


def no_effect(rng: np.random.Generator) -> Truth:
    """Neither setting does anything."""
    return Truth(("1", "2", "4"), np.zeros((3, 2)))


def one_effect(rng: np.random.Generator) -> Truth:
    """`b` moves the metric by as much everywhere."""
    return Truth(("1", "2", "4"), np.array([[rng.uniform(0.5, 4) * rng.choice((-1, 1)), 0.0]] * 3))


def interaction(rng: np.random.Generator) -> Truth:
    """`b` does nothing at the first level of `a`, and the more the further."""
    return Truth(("1", "2", "4"), np.outer([0, 0.5, 1], [rng.uniform(2, 8) * rng.choice((-1, 1)), 0.0]))


def slight_interaction(rng: np.random.Generator) -> Truth:
    """`b` moves the metric a little more the larger `a`."""
    return Truth(("1", "2", "4"), np.outer([0.8, 0.9, 1], [rng.uniform(4, 20) * rng.choice((-1, 1)), 0.0]))


def interaction_that_stops(rng: np.random.Generator) -> Truth:
    """`b` does nothing at the first level of `a`, and the same at all others."""
    return Truth(("1", "2", "4", "8"), np.outer([0, 1, 1, 1], [rng.uniform(2, 8) * rng.choice((-1, 1)), 0.0]))


def peak_at_one(rng: np.random.Generator) -> Truth:
    """`a` raises the metric up to a level in the middle, and lowers it from there, at one value of `b`."""
    return Truth(("1", "2", "3", "4", "5"), peak(rng).means * np.array([1.0, 0.0]))


def peak(rng: np.random.Generator) -> Truth:
    """`a` raises the metric up to a level in the middle, and lowers it from there."""
    height, top = rng.uniform(1, 6), int(rng.integers(1, 4))
    rise = np.concatenate([np.linspace(0, height, top + 1), np.linspace(height, 0.2 * height, 5 - top)[1:]])
    return Truth(("1", "2", "3", "4", "5"), np.repeat(rise[:, None], 2, axis=1))


KINDS: dict[str, tuple[Callable[[np.random.Generator], Truth], tuple[str, ...]]] = {
    "no effect": (no_effect, ("normal",)),
    "one effect": (one_effect, ("normal",)),
    "interaction": (interaction, ("normal",)),
    "slight interaction": (slight_interaction, ("normal",)),
    "interaction that stops": (interaction_that_stops, ("normal",)),
    "up and down": (peak, ("normal",)),
    "up and down at one value": (peak_at_one, ("normal",)),
    "heavy tails, no effect": (no_effect, ("exponential", "lognormal", "t of 3")),
    "heavy tails, one effect": (one_effect, ("exponential", "lognormal", "t of 3")),
}
"""How the truth of a sweep is drawn, and which noises it may have."""


def draw_sweep(truth: Truth, seeds: int, noise: Draw, rng: np.random.Generator) -> Cube:
    """Return a sweep: each row is the truth, what its seed adds to all rows alike, and noise of its own."""
    shape = (len(truth.levels), 2, len(VARIANTS), seeds)
    seed = 3 * rng.normal(size=(1, 1, 1, seeds))
    numbers = {
        "entropy": truth.means[:, :, None, None] + seed + noise(rng, shape),
        "largest_weight": seed + noise(rng, shape),
    }
    resolved = np.broadcast_to(np.arange(2 * len(truth.levels)).reshape(-1, 2, 1, 1), shape)
    names, levels = ("a", "b", "variant"), (truth.levels, FLAG, VARIANTS)
    settings: tuple[dict[str, str], ...] = ({},) * int(resolved.max() + 1)
    return Cube(names, levels, tuple(map(str, range(seeds))), numbers, resolved, np.zeros(shape, int), settings)


def find_true_effect(truth: Truth, row: Effect) -> float:
    if row.metric != "entropy" or row.setting == "variant":
        return 0.0
    other, _, label = row.at.partition("=")
    if row.setting == "b":
        effects = truth.means[:, FLAG.index(row.end)] - truth.means[:, FLAG.index(row.start)]
        return float(effects[truth.levels.index(label)] if other == "a" else effects.mean())
    ends = truth.means[truth.levels.index(row.end)] - truth.means[truth.levels.index(row.start)]
    return float(ends[FLAG.index(label)] if other == "b" else ends.mean())


def is_true(truth: Truth, row: Effect) -> bool:
    """Return whether what a row says of its effect is true: its sign, its verdict and where the metric turns."""
    effect = find_true_effect(truth, row)
    if row.verdict.startswith("depends"):
        others = row.verdict.removeprefix("depends on ").split(" and ")
        named = row.metric == "entropy" and others == [{"a": "b", "b": "a"}.get(row.setting)]
        return truth.depends and named and (not row.sign or row.sign * effect > 0)
    if row.verdict == YES and "est at" in row.note:
        means = truth.means.mean(axis=1) * (1 if "highest" in row.note else -1)
        turn = truth.levels.index(row.note.partition(" at ")[2].partition(";")[0])
        return row.sign * effect > 0 and abs(turn - int(np.argmax(means))) <= 1
    return row.sign * effect > 0 if row.sign else row.verdict != NO or abs(effect) <= MATTERS[row.metric]


def judge(truth: Truth, rows: Sequence[Effect]) -> tuple[list[str], int, int, int]:
    """Return the rows that are false, how many effects there are, how many are found, and how many rows are a mean
    over an effect that depends on the other setting."""
    wrong = [str(row) for row in rows if not is_true(truth, row)]
    found = {(row.setting, "est at" in row.note) for row in rows if row.sign and row.metric == "entropy"}
    plain = [row for row in rows if row.verdict == YES and row.metric == "entropy" and row.setting != "variant"]
    hidden = sum(truth.depends and " over " not in row.note for row in plain)
    wanted = set()
    if truth.depends or np.ptp(truth.means, axis=1).max() > 0:
        wanted.add(("b", False))
    elif np.ptp(truth.means) > 0:
        wanted.add(("a", True))
    return wrong, len(wanted), len(wanted & found), hidden


def count_covering(truth: Truth, rows: Sequence[Effect]) -> tuple[int, int]:
    covering = [row.low <= find_true_effect(truth, row) <= row.high for row in rows if not math.isnan(row.low)]
    return len(covering), sum(covering)


def counted(seed: int, kind: str, seeds: tuple[int, int]) -> tuple[Counter[str], list[str]]:
    """Draw one sweep of a kind; return what its answers are worth, and the rows that are false."""
    rng = np.random.default_rng([seed, list(KINDS).index(kind), seeds[0]])
    make, noises = KINDS[kind]
    truth = make(rng)
    noise = NOISES[noises[rng.integers(len(noises))]]
    rows = analyse_effects(draw_sweep(truth, int(rng.integers(seeds[0], seeds[1] + 1)), noise, rng), {}).effects
    wrong, effects, found, hidden = judge(truth, rows)
    intervals, covering = count_covering(truth, rows)
    return Counter(
        sweeps=1, false=bool(wrong), effects=effects, found=found, hidden=bool(hidden), intervals=intervals,
        covering=covering,
    ), wrong  # fmt: skip


def table(sweeps: int, workers: int = 2) -> Iterator[tuple[str, tuple[int, int], Counter[str], list[str]]]:
    """Yield what was counted of each kind with so many seeds, and some rows that are false."""
    with ProcessPoolExecutor(workers) as pool:
        for kind, seeds in product(KINDS, SEEDS):
            every = range(sweeps // len(SEEDS))
            counts, wrong = zip(*pool.map(partial(counted, kind=kind, seeds=seeds), every, chunksize=50), strict=True)
            yield kind, seeds, sum(counts, Counter()), [row for rows in wrong for row in rows][:5]


def share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def main(words: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=2000, help="sweeps of each kind")
    parser.add_argument("--quick", action="store_true", help="60 sweeps of each kind")
    parser.add_argument("--wrong", action="store_true", help="show some of the false rows")
    asked = parser.parse_args(words)
    print(f"{'kind':26}{'seeds':>8}{'sweeps':>8}{'any false':>11}{'found':>8}{'hidden':>8}{'covered':>9}   of 100")
    for kind, seeds, count, wrong in table(60 if asked.quick else asked.sweeps):
        pairs = (("false", "sweeps"), ("found", "effects"), ("hidden", "sweeps"), ("covering", "intervals"))
        false, found, hidden, covered = (share(count[part], count[whole]) for part, whole in pairs)
        head = f"{kind:26}{f'{seeds[0]}-{seeds[1]}':>8}{count['sweeps']:>8}"
        print(f"{head}{false:>11}{found:>8}{hidden:>8}{covered:>9}")
        for row in wrong if asked.wrong else ():
            print(f"    {row}")


if __name__ == "__main__":
    main()

"""How well `attn-exp check` names mistakes: python benchmarks/check.py [--only names,pairs,seeds,...] [--seeds 200]

`--world FOLDER [--only even|odd|PIECE,...] [--csv FILE]` asks the code of others instead, as `world.py` beside it says.

The functions are those of `tests/zoo`, written apart from the catalogue, and the libraries that are installed. Prints
what was named, what was not, and which processor this is. Each seed is a whole check, every question of it, with other
numbers.
"""

from __future__ import annotations

import argparse
import inspect
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # as a check's child

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import world  # noqa: E402 - beside this file; some environments have another package called benchmarks

import attn_exp  # noqa: E402 - from the checkout
from attn_exp.diagnosis.asking.request import parse_request  # noqa: E402
from attn_exp.diagnosis.judging.check import check  # noqa: E402
from attn_exp.errors import UncalledError  # noqa: E402
from attn_exp.experiment.verdict import Verdict, make_unfinished  # noqa: E402
from attn_exp.forms import NAMES, form  # noqa: E402
from attn_exp.forms._operator import attention  # noqa: E402
from attn_exp.mistakes.precision import round_to_half  # noqa: E402
from attn_exp.own_code import describe_function  # noqa: E402
from tests.zoo.case import Case, names_said  # noqa: E402
from tests.zoo.cases import CASES  # noqa: E402
from tests.zoo.cheats import CHEATS as PLAIN_CHEATS  # noqa: E402
from tests.zoo.odd_cases import ODD  # noqa: E402
from tests.zoo.odd_cheats import CHEATS as ODD_CHEATS  # noqa: E402
from tests.zoo.odd_right import RIGHT as ODD_RIGHT  # noqa: E402
from tests.zoo.pairs import PAIRS  # noqa: E402
from tests.zoo.rights import RIGHT  # noqa: E402

if find_spec("torch"):
    from tests.zoo.odd_right_torch import RIGHT as ODD_TORCH
else:
    ODD_TORCH = []

CHEATS = [*PLAIN_CHEATS, *ODD_CHEATS]
EVERY_RIGHT = [*RIGHT, *ODD_RIGHT, *ODD_TORCH]
SEEDS, CHUNK = 200, 20
"""Seeds in all, and how many of one function are asked before the next one's turn."""


def named(place: int) -> tuple[str, bool, str]:
    """Return what one wrong function is called, and whether that is its mistake alone."""
    return judged(CASES[place], CASES[place].function)


def in_bfloat16(place: int) -> tuple[str, bool, str]:
    """Return the same of its answer rounded to bfloat16."""
    return judged(CASES[place], halved(CASES[place].function))


def both_named(place: int) -> tuple[str, bool, str]:
    """Return what a pair of mistakes is called, and whether both are named."""
    case = PAIRS[place]
    verdict = checked(case.function, case.settings)
    names = names_said(verdict)
    return case.name, sorted(names) == sorted(case.mistake.split("+")), "+".join(names)


def odd_named(place: int) -> tuple[str, bool, str]:
    """Return what one wrong function in an odd style is called."""
    return judged(ODD[place], ODD[place].function)


def checked(function: Callable[..., Any], settings: Iterable[str], *more: str) -> Verdict:
    """Check a function; among the settings may be how it wants its arrays."""
    own = describe_function(function)
    try:
        return check(own, parse_request([*settings, *more]))
    except UncalledError as error:
        return make_unfinished(own.name, str(error), " ".join(settings))


def judged(case: Case, function: Callable[..., Any]) -> tuple[str, bool, str]:
    """Return a case of the zoo in words, whether it is named as it should be, and the names that were said."""
    verdict = checked(function, case.settings)
    names = names_said(verdict)
    right = len(names) == 1 and names[0] in (case.mistake, *case.same_as)
    return f"{case.name} {' '.join(case.settings)}", right, "+".join(names)


def halved(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function with its answer rounded to bfloat16; a module's class stays as it is."""
    if inspect.isclass(function):
        return function

    @wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        output = function(*arguments, **keywords)
        if hasattr(output, "detach"):
            import torch  # noqa: PLC0415 - the function has imported torch

            return output.to(torch.bfloat16)
        return round_to_half(np.asarray(output, np.float64), "bfloat16") if isinstance(output, np.ndarray) else output

    return wrapped


def passes(place: int) -> tuple[str, bool, str]:
    """Return whether one right function passes."""
    case = EVERY_RIGHT[place]
    verdict = checked(case.function, case.settings)
    return f"{name_of(case)} {' '.join(case.settings)}", not verdict.is_wrong, verdict.computes


def name_of(case: Case) -> str:
    return str(getattr(case.function, "__name__", type(case.function).__name__))


def found(place: int) -> tuple[str, bool, str]:
    """Return whether one cheat is found."""
    verdict = attn_exp.check(CHEATS[place].make())
    return str(CHEATS[place].name), not verdict.passed, verdict.computes


def lent() -> list[tuple[str, Any, tuple[str, ...]]]:
    """Return the libraries that are here, our own forms, and twenty right functions of each kind, with settings."""
    functions: list[tuple[str, Any, tuple[str, ...]]] = []
    if find_spec("torch"):
        from torch import nn  # noqa: PLC0415 - only where it is installed

        functions += [
            (
                "torch scaled_dot_product_attention",
                nn.functional.scaled_dot_product_attention,
                ("convention=torch_sdpa",),
            ),
            ("torch MultiheadAttention", nn.MultiheadAttention, ("convention=torch_mha", "bias=true", "head=3")),
        ]
    if find_spec("jax"):
        import jax  # noqa: PLC0415

        functions.append(("jax dot_product_attention", jax.nn.dot_product_attention, ("convention=jax",)))
    if find_spec("keras") and find_spec("torch"):
        functions.append(("keras Attention", of_keras(), ("layout=htd", "scale=false", "takes=torch")))
    for name in NAMES:
        if form(name).reference == "logits" and (form(name).library is None or find_spec(str(form(name).library))):
            functions.append((f"form={name}", ours(name), OF_FORM.get(name, ())))
    twenty = [*RIGHT[:20], *ODD_RIGHT[:20]]
    return functions + [(name_of(case), case.function, case.settings) for case in twenty]


def of_keras() -> Callable[..., Any]:
    """Return a layer of Keras in the wrapper that docs/check.md shows."""
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras  # noqa: PLC0415 - only where it is installed

    layer = keras.layers.Attention(dtype="float64")

    def function(q: Any, k: Any, v: Any) -> Any:
        return layer([q, v, k])

    return function


OF_FORM = {"decode": ("mask=causal",), "onnxruntime": ("dtype=float32",)}


def ours(name: str) -> Callable[..., Any]:
    """Return `attention` in one of our forms."""

    def function(q: Any, k: Any, v: Any) -> Any:
        return attention(q, k, v, form=name, is_causal=name == "decode")

    return function


def over_seeds(unit: tuple[int, range]) -> tuple[str, bool, str]:
    """Return whether one right function passes at some seeds, each a whole check."""
    place, seeds = unit
    name, function, settings = lent()[place]
    for seed in seeds:
        verdict = checked(function, settings, f"seed={seed}")
        if verdict.is_wrong:
            return name, False, f"seed={seed}: {verdict.computes}"
    return name, True, ""


def all_seeds(count: int) -> Iterator[tuple[str, bool, str]]:
    """Yield whether each right function passes at every seed; tell how far it is."""
    chunks = [range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK)]
    units = [(place, seeds) for seeds in chunks for place in range(len(lent()))]
    failed: dict[str, str] = {}
    with ProcessPoolExecutor(2) as pool:
        for (_, seeds), (name, right, said) in zip(units, pool.map(over_seeds, units), strict=True):
            if not right:
                failed.setdefault(name, said)
            print(f"\r    up to seed {seeds[-1]}: {name}{'' if right else ' ' + said:40}", end="", file=sys.stderr)
    for name, _, settings in lent():
        yield f"{name} {' '.join(settings)}", name not in failed, failed.get(name, "")


def times() -> Iterator[tuple[str, bool, str]]:
    """Yield how long the check of a NumPy function takes, whole and quick."""
    case = next(case for case in RIGHT if not case.settings)
    wrong = next(case for case in CASES if case.mistake == "softmax_over_queries")
    for name, function, quick, goal in (
        ("a right NumPy function", case.function, False, 10.0),
        ("a wrong NumPy function", wrong.function, False, 10.0),
        ("a right one, quick", case.function, True, 2.0),
        ("a wrong one, quick", wrong.function, True, 2.0),
    ):
        taken = []
        for _ in range(5):
            start = perf_counter()
            attn_exp.check(function, quick=quick)
            taken.append(perf_counter() - start)
        median = statistics.median(taken)
        yield f"{name}: {median:.2f} s (goal {goal:g})", median < goal, f"{max(taken):.2f} at most"


def every(task: Callable[[int], tuple[str, bool, str]], count: int) -> Iterable[tuple[str, bool, str]]:
    """Do a task for each place, two at a time."""
    with ProcessPoolExecutor(2) as pool:
        yield from pool.map(task, range(count))


PARTS: dict[str, tuple[str, float, Callable[[], Iterable[tuple[str, bool, str]]]]] = {
    "names": ("wrong functions named alone", 0.97, lambda: every(named, len(CASES))),
    "bfloat16": ("the same, answers in bfloat16", 0.90, lambda: every(in_bfloat16, len(CASES))),
    "pairs": ("pairs of the fifteen commonest", 0.80, lambda: every(both_named, len(PAIRS))),
    "odd": ("wrong functions in odd styles named alone", 0.97, lambda: every(odd_named, len(ODD))),
    "right": ("right functions pass", 1.0, lambda: every(passes, len(EVERY_RIGHT))),
    "seeds": ("libraries, our forms, right functions pass at every seed", 1.0, lambda: all_seeds(SEEDS)),
    "cheats": ("cheats are found", 1.0, lambda: every(found, len(CHEATS))),
    "time": ("in time", 1.0, times),
}


def main() -> None:
    """Measure what was asked for, print each part with what failed, and exit with 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description="How well attn-exp check names mistakes.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each library and right function")
    parser.add_argument("--only", default="", help=f"parts, of {', '.join(PARTS)}; of a folder even, odd or names")
    parser.add_argument("--world", type=Path, help="a folder of other people's code, with its truth.csv")
    parser.add_argument("--csv", type=Path, help="where the verdict on each file of that folder is written")
    parser.add_argument("--verdicts", type=Path, help="where these verdicts are kept whole, for tools/world.py")
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    missed, arguments = False, parser.parse_args()
    if arguments.world is not None:
        world.measure(arguments.world, arguments.only, arguments.csv, arguments.verdicts)
        return
    for name in (arguments.only or ",".join(PARTS)).split(","):
        title, goal, part = PARTS[name]
        part = part if name != "seeds" else lambda: all_seeds(arguments.seeds)
        results = list(part())
        good = sum(right for _, right, _ in results)
        missed |= good < goal * len(results)
        print(f"{title}: {good} of {len(results)} ({good / len(results):.1%}, goal {goal:.0%})", flush=True)
        for what, right, said in results:
            if not right or name == "time":
                print(f"    {'' if right else 'not: '}{what} -> {said or 'nothing'}", flush=True)
    sys.exit(missed)


if __name__ == "__main__":
    main()

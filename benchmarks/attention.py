"""How fast attention is, in ratios of one interleaved run: python benchmarks/attention.py [--quick] [--only full]

Every part prints its figures; the goals come last, each with what was measured and whether it is met. The figures go to
`outputs/benchmarks/attention.csv`. The run starts itself again without `OPENBLAS_CORETYPE` and
`OPENBLAS_L2_SIZE`: they can hold the BLAS below what the processor can do. `--one-core` keeps everybody on one core and
counts processor time, which other work on the machine disturbs least. Most parts pause before each contender, so that
no threads of another still spin; `turns` does not, and `first` starts a process for each.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import astuple, fields
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
if __name__ == "__main__":
    if any(pin in os.environ for pin in PINS):
        os.execve(sys.executable, [sys.executable, *sys.argv], {k: v for k, v in os.environ.items() if k not in PINS})
    if "--one-core" in sys.argv:  # before any library counts the cores
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    sys.path.insert(0, str(ROOT))

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import attn_exp
from attn_exp.forms import blockwise
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.softcap import Softcap
from benchmarks.bench import Array, Bench, Figure, Goal, drawn, mean
from benchmarks.beside import decoding, first_calls, in_turns
from benchmarks.contenders import CONTENDERS, Call, one_expression, ours, pytorch
from benchmarks.processor import described


def contest(bench: Bench, causal: bool) -> None:
    part = "causal" if causal else "full"
    torch: list[float] = []
    runtime: list[float] = []
    for dtype in ("float32", "float64"):
        for shape in bench.shapes:
            arrays = drawn(shape, dtype)
            calls = {who: call for who, make in CONTENDERS.items() if (call := make(*arrays, causal)) is not None}
            ratios = bench.time(part, shape, calls, dtype, 0.5 + 0.5 / shape[2] if causal else 1.0)
            torch += [1 / ratios["PyTorch"]] if "PyTorch" in ratios else []
            runtime += [1 / ratios["ONNX Runtime"]] if "ONNX Runtime" in ratios and shape[2] >= 512 else []
    against_torch = {"Zen 4": 1.0, "Intel": 1.0} if causal else {"Zen 4": 1.1, "Intel": 1.15}
    against_runtime = {"AMD": 0.60, "Intel": 1.0} if causal else {"AMD": 1.10, "Intel": 1.0}
    bench.goal(f"{part}, geometric mean, ours / PyTorch", against_torch, mean(torch))
    if not causal:
        bench.goal("the worst of them", {"AMD": 1.15}, max(torch, default=None))
    bench.goal(f"{part}, 512 tokens and more, float32, ours / ONNX Runtime", against_runtime, mean(runtime))


def window(bench: Bench) -> None:
    """A sliding window of 256 keys against everything, at 16,384 tokens."""
    shape, length = (1, 1, 16384, 64), 64**-0.5
    arrays = drawn(shape)
    calls: dict[str, Call] = {
        "full": lambda: blockwise.attend(*arrays, Rules(length)),
        "window": lambda: blockwise.attend(*arrays, Rules(length, masks=(Window(255, 0),))),
    }
    bench.goal("window 256 at 16,384 tokens, ours / our full", 0.06, bench.time("window", shape, calls)["window"])


def rules(bench: Bench) -> None:
    """What grouped heads, padding, ALiBi and a soft-cap cost."""
    for shape in ((1, 8, 1024, 64), (1, 8, 2048, 64)):
        arrays, scale = drawn(shape), shape[3] ** -0.5
        calls: dict[str, Call] = {
            "plain": partial(blockwise.attend, *arrays, Rules(scale)),
            "grouped": partial(blockwise.attend, *drawn(shape, heads=2), Rules(scale)),
            "padding": partial(blockwise.attend, *arrays, Rules(scale, masks=(Padding(shape[2] - 5),))),
            "ALiBi": partial(blockwise.attend, *arrays, Rules(scale, scores=(Alibi(),))),
            "soft-cap": partial(blockwise.attend, *arrays, Rules(scale, scores=(Softcap(30.0),))),
        }
        ratios = bench.time("rules", shape, calls)
        for name in ("grouped", "padding", "ALiBi", "soft-cap"):
            bench.goal(f"{name} at {shape[2]} tokens, ours / ours without", 1.3, ratios[name])


def small(bench: Bench) -> None:
    """Three tokens of four dimensions against the textbook line."""
    q, k, v = (each[0, 0] for each in drawn((1, 1, 3, 4), "float64"))

    def textbook() -> Array:
        logits = q @ k.T / np.sqrt(q.shape[-1])
        powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
        return np.asarray(powers / powers.sum(axis=-1, keepdims=True) @ v)

    ratios = bench.time("small", (1, 1, 3, 4), {"textbook": textbook, "ours": ours(q, k, v, False)}, "float64")
    bench.goal("3 tokens, 4 dimensions, ours / the NumPy one-liner", 2.0, ratios["ours"])


MEMORY = """
import sys
import numpy as np
import attn_exp

def status(key):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(key))

q, k, v = (np.random.default_rng(i).standard_normal((1, 1, 65536, 64), np.float32) for i in range(3))
attn_exp.attention(q[:, :, :1], k[:, :, :1], v[:, :, :1], form="blockwise")
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
out = attn_exp.attention(q, k, v, is_causal=len(sys.argv) > 1)
print(status("VmHWM") - before - out.nbytes / 2**20)
"""
"""Linux alone forgets a process's largest resident memory on request; elsewhere this part fails."""


def memory(bench: Bench) -> None:
    """The resident memory of a process of its own, beyond inputs and output."""
    for name, arguments in (("full", []), ("causal", ["causal"])):
        process = [sys.executable, "-c", MEMORY, *arguments]
        mebibytes = float(subprocess.run(process, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
        print(f"memory   {name}, 65,536 tokens, one head, float32: {mebibytes:.1f} MiB beyond inputs and output")
        bench.goal(f"memory beyond inputs and output, 65,536 tokens, {name}, MiB", 128, mebibytes)


def accuracy(bench: Bench) -> None:
    """Our error over PyTorch's, both against float64."""
    worst = []
    for shape in ((1, 8, 64, 64), (1, 8, 512, 64), (1, 8, 2048, 64), (4, 12, 197, 64), (1, 1, 4096, 128)):
        for spread in (1, 4):
            q, k, v = drawn(shape)
            q = q * np.float32(spread)
            for causal in (False, True):
                line = one_expression(*(each.astype(np.float64) for each in (q, k, v)), causal)
                torch = pytorch(q, k, v, causal)
                if line is None or torch is None:
                    continue
                truth = line()
                mine, theirs = (np.abs(np.asarray(each()) - truth).max() for each in (ours(q, k, v, causal), torch))
                worst.append(float(mine / theirs))
                what = f"{shape!s:18} spread {spread} {'causal' if causal else 'full'}"
                print(f"accuracy {what:36} {mine:.1e} / {theirs:.1e}")
    bench.goal("accuracy: our error over PyTorch's, geometric mean", 2, mean(worst))
    bench.goal("accuracy: our error over PyTorch's, the worst", 2, max(worst, default=None))


def lengths(bench: Bench, longest: int) -> None:
    """One head from 64 tokens on: time, and working memory as NumPy asks for it."""
    bound = attn_exp.keep_memory(0)  # what is kept would not be counted
    for length in (2**power for power in range(6, 17) if 2**power <= longest):
        call = ours(*drawn((1, 1, length, 64)), False)
        bench.time("length", (1, 1, length, 64), {"ours": call})
        tracemalloc.start()
        out = call()
        mebibytes = (tracemalloc.get_traced_memory()[1] - out.nbytes) / 2**20
        tracemalloc.stop()
        print(f"         {bench.figures[-1].gigaflops:.0f} GF/s, working memory {mebibytes:.2f} MiB")
    attn_exp.keep_memory(bound)


def show_libraries() -> None:
    """Print the kernels and threads of every BLAS and OpenMP that is loaded."""
    with threadpool_limits():
        for pool in threadpool_info():
            keys = ("internal_api", "version", "architecture", "threading_layer", "num_threads")
            print(
                "library ", ", ".join(f"{key} {pool[key]}" for key in keys if key in pool), Path(pool["filepath"]).name
            )


def show_goals(goals: list[Goal]) -> None:
    print(f"\nprocessor {described()}; goals are those of its generation or its maker")
    print(f"{'what':76} {'goal':>7} {'measured':>9}  met")
    for goal in goals:
        hoped = "-" if goal.goal is None else f"{goal.goal:g}"
        measured = "-" if goal.measured is None else f"{goal.measured:.3f}"
        print(f"{goal.what:76} {hoped:>7} {measured:>9}  {goal.met}")


def save(bench: Bench, folder: Path) -> None:
    """Write the figures and the goals."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, kind, rows in (("attention", Figure, bench.figures), ("attention_goals", Goal, bench.goals)):
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[each.name for each in fields(kind)], *map(astuple, rows)])


def main() -> None:
    """Run the parts that are asked for."""
    parts: dict[str, Callable[[Bench], None]] = {
        "full": lambda bench: contest(bench, causal=False),
        "causal": lambda bench: contest(bench, causal=True),
        "window": window,
        "rules": rules,
        "small": small,
        "memory": memory,
        "accuracy": accuracy,
        "first": first_calls,
        "turns": in_turns,
        "decode": decoding,
        "length": lambda bench: lengths(bench, 8192 if options.quick else 65536),
    }
    parser = argparse.ArgumentParser(description="How fast attention is, in ratios of one interleaved run.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, up to 2,048 tokens")
    parser.add_argument("--only", default=",".join(parts), help=f"some of {', '.join(parts)}")
    parser.add_argument("--folder", type=Path, default=ROOT / "outputs" / "benchmarks")
    parser.add_argument("--one-core", action="store_true", help="everybody on one core, in processor time")
    options = parser.parse_args()
    bench = Bench(options.quick, options.one_core)
    pytorch(*drawn((1, 1, 1, 1)), False)  # loads the library, so that it is shown
    print(f"processor {described()}")
    show_libraries()
    for name in options.only.split(","):
        parts[name](bench)
    show_goals(bench.goals)
    save(bench, options.folder)


if __name__ == "__main__":
    main()

"""Attention as programs meet it: in the first calls of a process, in turns with PyTorch, and token by token."""

from __future__ import annotations

import statistics
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import attn_exp
from benchmarks.bench import Bench, drawn, mean
from benchmarks.contenders import Call, interleaved, ours, pytorch

ROOT = Path(__file__).resolve().parent.parent

FIRST = """
import sys, time
import numpy as np
who, tokens, causal, count = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "causal", int(sys.argv[4])
arrays = [np.random.default_rng(seed).standard_normal((1, 8, tokens, 64), np.float32) for seed in range(3)]
if who == "ours":
    from attn_exp import attention
else:
    import torch
    attention, arrays = torch.nn.functional.scaled_dot_product_attention, [torch.from_numpy(array) for array in arrays]
attention(*arrays, is_causal=causal)
clock = time.process_time if sys.argv[5] == "process" else time.perf_counter
start = clock()
for _ in range(count):
    attention(*arrays, is_causal=causal)
print((clock() - start) / count)
"""
"""What a process of its own does: one call that loads what is needed, and then so many that count."""


def first_calls(bench: Bench) -> None:
    if not find_spec("torch"):
        return
    for tokens in (64, 128, 256):
        spent: dict[str, list[float]] = {"ours": [], "PyTorch": []}
        for _ in range(bench.rounds):
            for who, times in spent.items():
                clock = "process" if bench.one_core else "wall"
                words = (who, str(tokens), "full", "1000", clock)
                done = subprocess.run(
                    [sys.executable, "-c", FIRST, *words], check=True, capture_output=True, text=True, cwd=ROOT
                )
                times.append(float(done.stdout))
        ratios = bench.note("first", (1, 8, tokens, 64), {who: min(times) for who, times in spent.items()})
        bench.goal(
            f"the first thousand calls of a process, {tokens} tokens, ours / PyTorch", 1.5, 1 / ratios["PyTorch"]
        )


def in_turns(bench: Bench) -> None:
    """One call of ours, one of PyTorch's, and so on without a pause, as in a program that uses both."""
    for causal in (False, True):
        part = "turns, causal" if causal else "turns"
        all_ratios = list[float]()
        for shape in bench.shapes:
            arrays = drawn(shape)
            theirs = pytorch(*arrays, causal)
            if theirs is None:
                return
            calls = {"ours": ours(*arrays, causal), "PyTorch": theirs}
            all_ratios.append(1 / bench.note(part, shape, turns(bench, calls))["PyTorch"])
        which = "causal" if causal else "full"
        bench.goal(
            f"in turns without pauses, {which}, float32, ours / PyTorch",
            {"Zen 4": 1.0 if causal else 1.1, "Intel": 1.0 if causal else 1.15},
            mean(all_ratios),
        )


def turns(bench: Bench, calls: dict[str, Call]) -> dict[str, float]:
    times: dict[str, list[float]] = {who: [] for who in calls}
    start = bench.clock()
    while bench.clock() - start < 2 * bench.rounds * bench.burst or len(times["ours"]) < 5:
        for who, call in calls.items():
            before = bench.clock()
            call()
            times[who].append(bench.clock() - before)
    return {who: statistics.median(some) for who, some in times.items()}


DECODED = [(32, 8, 8192, 128), (32, 8, 1024, 128), (8, 1, 16384, 64), (1, 1, 65536, 128)]
"""Query heads, key/value heads, keys and head size of one query."""


def decoding(bench: Bench) -> None:
    """One query over many keys, and query heads that share key/value heads."""
    for heads, groups, keys, size in DECODED:
        rng = np.random.default_rng(0)
        q = rng.standard_normal((1, heads, 1, size), np.float32)
        k, v = (rng.standard_normal((1, groups, keys, size), np.float32) for _ in range(2))
        calls: dict[str, Call] = {"ours": partial(attn_exp.attention, q, k, v)}
        if find_spec("torch"):
            import torch  # noqa: PLC0415 - where it is installed

            theirs = torch.nn.functional.scaled_dot_product_attention
            calls["PyTorch"] = partial(theirs, *map(torch.from_numpy, (q, k, v)), enable_gqa=True)
        shape = (heads, groups, keys, size)
        ratios = bench.note("decode", shape, interleaved(calls, bench.rounds, bench.burst, bench.clock))
        measured = 1 / ratios["PyTorch"] if "PyTorch" in ratios else None
        bench.goal(f"one query, {heads} heads over {groups}, {keys:,} keys of {size}, ours / PyTorch", 1.2, measured)

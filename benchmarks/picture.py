"""The plot of a benchmark: everybody's time over ours, and our time over the length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def draw(figures: Sequence[Any], path: Path) -> bool:
    """Draw one bar per contender and shape for each part, and the length on log-log axes; say if there were any."""
    parts = [part for part in ("full", "causal") if any(each.part == part for each in figures)]
    line = [each for each in figures if each.part == "length"]
    if not parts and not line:
        return False
    picture = Figure(figsize=(12, 3.4 * (len(parts) + bool(line))), layout="constrained")
    axes = picture.subplot_mosaic([[part] * 3 for part in parts] + [["time", "memory", "rate"]] * bool(line))
    for part in parts:
        bars(axes[part], part, [each for each in figures if each.part == part and each.who not in ("looped", "ours")])
    if line:
        lengths = [int(each.shape.strip("()").split(", ")[2]) for each in line]
        curve(axes["time"], lengths, [each.milliseconds for each in line], "milliseconds")
        curve(axes["memory"], lengths, [each.mebibytes for each in line], "MiB of working memory")
        curve(axes["rate"], lengths, [each.gigaflops for each in line], "GF/s")
    picture.savefig(path, dpi=120)
    return True


def curve(axis: Any, lengths: Sequence[int], numbers: Sequence[float], what: str) -> None:
    """Draw a number over the length on log-log axes, its slope from 2,048 tokens on in the title."""
    long = [place for place, length in enumerate(lengths) if length >= 2048]
    axis.loglog(lengths, numbers, "o-")
    axis.set(title="one head, size 64, float32", xlabel="tokens", ylabel=what)
    axis.grid(alpha=0.3)
    if len(long) > 1:
        slope = np.polyfit(np.log([lengths[i] for i in long]), np.log([numbers[i] for i in long]), 1)[0]
        axis.set(title=f"one head, size 64, float32: slope {slope:.2f}")


def bars(axis: Any, part: str, figures: Sequence[Any]) -> None:
    """Draw times over ours; above 1 the other one is slower."""
    places = list(dict.fromkeys((each.dtype, each.shape) for each in figures))
    names = list(dict.fromkeys(each.who for each in figures))
    for offset, name in enumerate(names):
        mine = [each for each in figures if each.who == name]
        left = [places.index((each.dtype, each.shape)) + 0.8 * (offset + 0.5) / len(names) - 0.4 for each in mine]
        axis.bar(left, [each.to_ours for each in mine], 0.8 / len(names), label=name)
    axis.axhline(1, color="black", linewidth=1)
    axis.set_xticks(range(len(places)), [f"{shape}\n{dtype}" for dtype, shape in places], fontsize=6)
    axis.set(title=f"{part}: time over ours", yscale="log")
    axis.legend(fontsize=7)

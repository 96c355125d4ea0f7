"""The plot of a benchmark: everybody's time over ours, and our time over the length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw(figures: Sequence[Any], path: Path) -> None:
    """Draw one bar per contender and shape for each part, and the length on log-log axes."""
    parts = [part for part in ("full", "causal") if any(each.part == part for each in figures)]
    picture = Figure(figsize=(12, 3.4 * (len(parts) + 1)), layout="constrained")
    axes = picture.subplots(len(parts) + 1, 1, squeeze=False)[:, 0]
    for axis, part in zip(axes, parts, strict=False):
        bars(axis, part, [each for each in figures if each.part == part and each.who not in ("looped", "ours")])
    line = [each for each in figures if each.part == "length"]
    lengths = [int(each.shape.strip("()").split(", ")[2]) for each in line]
    axes[-1].loglog(lengths, [each.milliseconds for each in line], "o-")
    axes[-1].set(title="one head, size 64, float32", xlabel="tokens", ylabel="milliseconds")
    axes[-1].grid(alpha=0.3)
    picture.savefig(path, dpi=120)


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

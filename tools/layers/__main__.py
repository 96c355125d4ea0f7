"""Writes layers of attention with a mistake or none: python -m tools.layers FOLDER [--only KIND ...] [--count N]

A kind is a file beside this one: its `MISTAKES` are the names of the catalogue that it can make, and its `written(seed,
mistake)` returns a file. What is true of each is known before anything is checked, and stands in `truth.csv`:
`benchmarks/check.py --world FOLDER` counts what the check makes of them. Half of them are right.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import pkgutil
from pathlib import Path
from typing import Any

from tools.layers._written import ALIKE, Written

HERE = Path(__file__).parent


def kinds() -> list[str]:
    """Return the names of all kinds."""
    return sorted(one.name for one in pkgutil.iter_modules([str(HERE)]) if not one.name.startswith("_"))


def made(kind: str, seed: int) -> tuple[Written, str]:
    """Return what a kind writes of a seed, and which names of the catalogue are true of it; an odd seed's is right."""
    module: Any = importlib.import_module(f"tools.layers.{kind}")
    mistake = "" if seed % 2 else module.MISTAKES[seed // 2 % len(module.MISTAKES)]
    return module.written(seed, mistake), ALIKE.get(mistake, mistake)


def main() -> None:
    """Write the files and what is true of them."""
    parser = argparse.ArgumentParser(prog="python -m tools.layers", description="Write layers whose truth is known.")
    parser.add_argument("folder", type=Path, help="where they are written")
    parser.add_argument("--only", nargs="+", choices=kinds(), default=kinds(), help="these kinds (all)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--count", type=int, default=100, help="how many of each kind, half of them right (100)")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for kind in given.only:
        for seed in range(given.first, given.first + given.count):
            one, true = made(kind, seed)
            file = f"{seed:06}_{kind}_{true.partition('|')[0] or 'right'}.py"
            (given.folder / file).write_text(one.source, encoding="utf-8")
            rows.append({
                "file": file, "name": one.name, "right_or_wrong": "bug" if true else "right", "expected": true,
                "words": one.words, "framework": one.framework,
            })  # fmt: skip
    with (given.folder / "truth.csv").open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

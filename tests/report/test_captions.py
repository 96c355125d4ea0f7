"""What stands above a stage is true of its variant: the page of each says what it computes, and not what others do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import attn_exp
from attn_exp.experiment.executing import find_departures
from attn_exp.experiment.metrics.logits import split_weights
from attn_exp.experiment.row import find_settled
from attn_exp.report.walk import Step, steps
from attn_exp.runs.execution import Result
from tests.report.render import page_of
from tests.report.test_report import a_run


def said(*words: str, variant: str = "matrix") -> dict[str, Step]:
    """Return the stages of a variant of a run, by name."""
    comparison = attn_exp.run(f"variant=[{variant}]", *words).comparison
    return {step.stage: step for step in steps(comparison, variant)}


def caption(step: Step) -> str:
    """Return what stands above a stage, in one line."""
    return f"{step.explained.meaning} {step.explained.formula} ({step.note})"


@pytest.mark.long
def test_minus_infinity_is_said_where_a_mask_closes_and_a_bias_where_a_rule_adds() -> None:
    assert said("mask=causal")["masked"].explained.formula == "M = L, -inf where masked"
    assert "infinity" not in caption(said("score=alibi")["masked"])
    assert said("score=alibi")["masked"].explained.formula == "M = L + bias"
    assert said("score=alibi", "mask=causal")["masked"].explained.formula == "M = L + bias, -inf where masked"


@pytest.mark.parametrize(
    ("mistake", "words", "where"),
    [
        ("no_scale", (), {"logits"}),
        ("values_from_keys", (), {"context"}),
        ("softmax_over_queries", (), {"weights"}),
        ("half_accumulation", (), {"scores", "context"}),  # two of its products
        ("mask_small_fill", ("mask=causal",), {"masked"}),
        ("qkv_order", (), {"q", "v"}),  # the order [v k q]: keys stay what they are
        ("no_max_subtraction", (), set()),  # with scores that do not overflow it is the same function
    ],
)
def test_a_mistake_is_said_where_it_is_made(mistake: str, words: tuple[str, ...], where: set[str]) -> None:
    walked = said(f"mistake={mistake}", *words)
    wrong = {stage for stage, step in walked.items() if f"mistake={mistake}" in step.explained.meaning}
    assert wrong == where
    for stage in where:
        step = walked[stage]
        assert step.explained.formula.startswith("right: ") and "<mtext>right:&#160;</mtext>" in step.explained.mathml


def test_the_scale_of_the_definition_is_not_said_of_a_mistake() -> None:
    step = said("mistake=no_scale")["logits"]
    assert step.note == "right: c = 1/sqrt(d) = 1/sqrt(4) = 0.5"
    assert np.array_equal(step.tables[0].matrix, said()["scores"].tables[0].matrix)


def result(*words: str) -> Result:
    """Return a run of one variant."""
    return attn_exp.run("variant=[matrix]", *words)


@pytest.mark.parametrize("stage", ["q", "k", "v", "scores", "logits", "masked", "weights", "context", "output"])
def test_any_stage_that_does_not_follow_is_found(stage: str) -> None:
    comparison = result("mask=causal", "score=softcap").comparison
    settled, trace = find_settled(comparison, "matrix"), comparison.traces["matrix"]
    assert find_departures(settled, comparison.problem, trace) == ()
    moved = trace.replace(**{stage: getattr(trace, stage) + 0.25})
    assert find_departures(settled, comparison.problem, moved)[0] == stage


@pytest.mark.long
def test_a_function_of_ones_own_is_not_said_to_follow_the_definition(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n\n\ndef attention(q, k, v):\n    powers = np.exp(q @ np.swapaxes(k, -1, -2))\n"
        "    weights = powers / powers.sum(axis=-1, keepdims=True)\n    return weights @ v, weights / 2\n\n\n"
        "def right(q, k, v):\n    a = 2 * attention(q / np.sqrt(q.shape[-1]), k, v)[1]\n    return a @ v, a\n",
        encoding="utf-8",
    )
    forms = (f"variant.mine.form={path}:attention", f"variant.right.form={path}:right")
    comparison = attn_exp.run("variant=[matrix,mine,right]", *forms, "head=1").comparison
    walked = {step.stage: step for step in steps(comparison, "mine")}
    assert walked["weights"].wrong and not any(step.wrong for step in steps(comparison, "right"))
    assert caption(walked["context"]) == "This function departs from the definition here. right: C = A V ()"


@pytest.mark.parametrize("mistake", ["no_scale", "scale_by_d"])
def test_the_page_begins_with_the_weights_that_the_mistake_gave(mistake: str) -> None:
    """The slider stands at what the scores were multiplied by, and the picture says what was done."""
    made = result(f"mistake={mistake}").comparison
    found = split_weights(made, "matrix")
    trace = made.traces["matrix"]
    assert found is not None and trace.scores is not None and trace.weights is not None
    assert found.own == pytest.approx({"no_scale": 1.0, "scale_by_d": 0.25}[mistake])
    powers = np.exp(found.own * found.scores)
    assert np.allclose(powers / powers.sum(axis=-1, keepdims=True), trace.weights)
    page = page_of(a_run(made))
    assert f">{mistake}</text>" in page and "× c = " not in page


def test_logits_that_are_no_multiple_of_the_scores_have_no_slider() -> None:
    assert split_weights(result("mistake=softcap_before_scale", "score=softcap").comparison, "matrix") is None


def test_weights_are_called_random_if_their_queries_or_keys_are() -> None:
    assert "from random numbers" in page_of(a_run(attn_exp.run().comparison))
    assert "from random numbers" not in page_of(a_run(attn_exp.run(W_q=np.eye(4), W_k=np.eye(4)).comparison))

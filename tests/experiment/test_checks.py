"""The checks a user can run, and that each of them can find something."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp import forms
from attn_exp import rules as all_rules
from attn_exp.arrays import Array
from attn_exp.config.spelling import Repeat
from attn_exp.experiment.checks.check import Finding
from attn_exp.experiment.measuring import describe_closeness, measure_distance
from attn_exp.experiment.metrics.errors import ulp_distances
from attn_exp.experiment.metrics.logits import gradient, split_weights
from attn_exp.experiment.row import Run, Timing
from attn_exp.forms import matrix
from attn_exp.forms.trace import Trace
from attn_exp.report.sentences import summary
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.alibi import Alibi
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.softcap import Softcap
from attn_exp.runs import store
from tests.compose import comparison
from tests.refusal import refusal

CROSS = (
    "embeddings=inline", "projections=none", "embeddings.vectors=null", "embeddings.q=[[1,0],[0,1],[1,1]]",
    "embeddings.k=[[1,0],[0,1],[1,1],[2,0]]", "embeddings.v=[[1,2],[3,4],[5,6],[7,9]]", "head=1",
)  # fmt: skip


def check(name: str, *overrides: str) -> Finding:
    return next(each for each in comparison(*overrides).checks if each.name == name)


def verdicts(*overrides: str) -> dict[tuple[str, str], str]:
    return {(each.variant, each.invariant): each.holds for each in check("invariants", *overrides).records}


EVERYTHING = "variant=[looped,matrix,multi_head,multi_query,decode,linear,linear_recurrent]"


def test_only_weights_of_a_softmax_have_a_multiplier() -> None:
    assert split_weights(comparison("mask=causal"), "matrix") and not split_weights(
        comparison("normalizer=sigmoid"), "matrix"
    )


@pytest.mark.long
@pytest.mark.parametrize(
    "rules",
    ["mask=causal", "mask=[causal,window] score=[alibi,softcap,sink]", "mask=causal position=rope score=t5",
     "mask=[causal,array]", "mask=none", "mask=padding normalizer=sigmoid", "mask=causal normalizer=sparsemax",
     "position=sinusoidal mask=[causal,document]"],
)  # fmt: skip
def test_every_invariant_holds_for_every_variant(rules: str) -> None:
    found = verdicts("check=invariants", EVERYTHING, *rules.split())
    assert "no" not in found.values()
    assert "yes" in found.values()


def test_rotary_positions_lose_their_meaning_behind_a_kernel() -> None:
    """A turned query goes through elu + 1 before the product: linear attention sees more than the distance."""
    found = verdicts("check=invariants", EVERYTHING, "position=rope", "mask=causal")
    assert {each for each, word in found.items() if word == "no"} == {
        ("linear", "rope shift"),
        ("linear_recurrent", "rope shift"),
    }


def test_rope_shift_does_not_apply_to_additive_scores() -> None:
    """The tanh of a rotated query plus a rotated key depends on both positions, not on their distance alone."""
    found = verdicts("check=invariants", "variant=[matrix]", "position=rope", "score=additive")
    assert found["matrix", "rope shift"] == found["matrix", "gradients"] == "-"
    assert found["matrix", "logit shift"] == "yes"


def test_each_invariant_applies_somewhere() -> None:
    runs = ["mask=causal position=rope", "mask=none", "mask=none head=2"]
    held = {
        name for run in runs for (_, name), word in verdicts("check=invariants", *run.split()).items() if word == "yes"
    }
    assert held >= {
        "token order", "no leak from the future", "poison NaN", "poison 1e30", "logit shift", "rope shift",
        "prefill against decode", "head order", "gradients",
    }  # fmt: skip


def broken(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let the matrix form go through a change of its context."""
    sound = forms.form("matrix")

    def attend(q: Array, k: Array, v: Array, rules: Rules) -> Trace:
        found = sound.attend(q, k, v, rules)
        return found.replace(context=change(found, v))

    monkeypatch.setattr("attn_exp.forms.matrix.FORM", replace(sound, attend=attend))


@pytest.mark.parametrize(
    ("invariant", "change"),
    [
        ("no leak from the future", lambda found, v: found.context + 1e-3 * v.sum(axis=1, keepdims=True)),
        ("poison NaN", lambda found, v: found.weights @ v),
        ("poison 1e30", lambda found, v: found.context + 1e-20 * v.sum(axis=1, keepdims=True)),
        ("logit shift", lambda found, v: found.context * (1 + 1e-6 * found.masked[0, 0, 0])),
        ("prefill against decode", lambda found, v: found.context * (1 + 1e-6 * found.context.shape[1])),
        ("gradients", lambda found, v: found.context + 1e-3 * found.context**2),
        ("token order", lambda found, v: found.context + 1e-3 * np.arange(found.context.shape[1])[:, None]),
    ],
)
def test_a_broken_form_is_found_out(invariant: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch, change)
    mask = "none" if invariant == "token order" else "causal"
    found = check("invariants", "check=invariants", f"mask={mask}", "variant=[matrix]")
    assert "no" in {each.holds for each in found.records if each.invariant == invariant}
    assert f"{invariant} of matrix" in found.sentence


@pytest.mark.parametrize("bend_last", [False, True])
@pytest.mark.parametrize("normalizer", ["softmax", "sigmoid"])
@pytest.mark.parametrize("scores", [(Softcap(1.5),), (Softcap(1.5), Alibi()), (Softcap(1.5), Alibi(), Softcap(0.9))])
def test_gradients_against_finite_differences_of_every_number(
    scores: tuple[Score, ...], normalizer: str, bend_last: bool
) -> None:
    rng = np.random.default_rng(0)
    arrays: Any = [rng.standard_normal(shape) for shape in ((4, 3, 2), (2, 5, 2), (2, 5, 3))]
    received = rng.standard_normal((4, 3, 3))
    rules = Rules(0.7, (Causal(),), scores, all_rules.normalizer(normalizer), offset=1, bend_last=bend_last)

    def total(*given: Array) -> float:
        return float((received * np.asarray(forms.form("matrix").attend(*given, rules).context)).sum())

    for which, slope in enumerate(gradient(arrays[0], arrays[1], arrays[2], rules, received)):
        for place in np.ndindex(slope.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [each.copy() for each in arrays]
                moved[which][place] += step
                ends.append(total(*moved))
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slope[place], abs=1e-8)


def test_conventions_part_where_their_libraries_do() -> None:
    found = check("conventions", "check=conventions", "variant=[matrix]", *CROSS, "mask=causal")
    by_name = {each.convention: each for each in found.records}
    assert {name for name, each in by_name.items() if each.same_as != "A"} == {"flash"}
    assert by_name["flash"].differs_at == "masked"
    assert by_name["jax"].sameness.endswith("of float32")


def test_a_form_that_refuses_a_convention_says_so() -> None:
    found = check("conventions", "check=conventions", "variant=[decode]", "mask=causal", "score=softcap")
    assert {each.convention: each.sameness for each in found.records}["onnx_old"].startswith("form=decode can only")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("convention=torch_spda", "unknown convention 'torch_spda'; did you mean torch_sdpa?"),
        ("check=invariant", "unknown check 'invariant'; did you mean invariants?"),
        ("dtype=float17", "unknown dtype 'float17'; did you mean float16?"),
        ("normalizer=softmx", "unknown normalizer 'softmx'; did you mean softmax?"),
        ("kv_head=3 head=4", "kv_head=3 does not divide head=4; choose one of 1, 2, 4"),
        ("position=rope head=4", "rope rotates pairs, but the settings rotate 1 of the 1 numbers of a head"),
        ("mask=document mask.document.ids=[0,1]", "document: 2 ids, but there are 3 keys"),
        ("mask=array mask.array.values=[[true,false]]", "mask of shape [1, 2] does not broadcast"),
        (
            "experiment=attention_times_value mask=causal",
            "mask=causal changes logits, but this problem starts from given weights",
        ),
        ("experiment=attention_times_value normalizer=sigmoid", "normalizer=sigmoid has no effect: this problem"),
        ("position=rope position.rope.size=x", "position.rope.size=x: expected a whole number"),
        ("position=rope position.rope.base=x", "position.rope.base=x: expected a number above 0"),
        ("position=rope position.rope.interleaved=3", "position.rope.interleaved=3: expected true or false"),
        ("position=sinusoidal position.sinusoidal.base=0", "position.sinusoidal.base=0: expected a number above 0"),
        ("score=t5 score.t5.seed=x", "score.t5.seed=x: expected a whole number"),
        ("mask=array mask.array.values=[[true],[true,false]]", "mask values must be rows of equal length"),
        ("score=added score.added.values=[[a]]", "values to add must be rows of equal length"),
        ("score=sink normalizer=sigmoid", "score=sink would have no effect"),
        ("variant=[linear] score=alibi", "linear: linear attention forms no logits"),
        ("mask=window mask.window.left=-2", "mask.window.left=-2: expected a whole number of keys, or -1"),
    ],
)
def test_wrong_words(words: str, said: str) -> None:
    assert said in refusal(comparison, *words.split())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_documents_forms_show_ordinary_rounding(dtype: str) -> None:
    found = check("precision", f"dtype={dtype}", "mask=causal", "score=[alibi,softcap]", "position=rope")
    assert {each.verdict for each in found.records} == {"ordinary rounding"}
    assert {each.dtype for each in found.records} == {dtype}
    assert {each.stage for each in found.records} >= {"q", "scores", "capped", "masked", "weights", "output"}


def test_a_form_that_loses_digits_is_found_at_its_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = forms.form("looped")

    def attend(q: Array, k: Array, v: Array, rules: Rules) -> Trace:
        found = sound.attend(q, k, v, rules)
        return found.replace(weights=np.asarray(found.weights) * q.dtype.type(1.004))

    monkeypatch.setattr("attn_exp.forms.looped.FORM", replace(sound, attend=attend))
    found = check("precision", "dtype=[float16,float32]", "variant=[looped]", "embeddings=she_likes_coffee")
    assert "looped in float32: a different function, starting at weights" in found.sentence
    assert "looped in float16: suspicious, starting at weights" in found.sentence


def test_units_in_the_last_place_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    for kind in (np.float16, np.float32, np.float64):
        numbers: Any = rng.standard_normal(50).astype(kind)
        moved: Any = np.nextafter(np.nextafter(numbers, kind(9)), kind(9))
        assert ulp_distances(numbers[None], moved[None]) == 2
        np.testing.assert_array_max_ulp(numbers, moved, 2)
    assert ulp_distances(np.array([[-0.0]]), np.array([[0.0]])) == 0
    assert ulp_distances(np.array([[-5e-324]]), np.array([[5e-324]])) == 2


@pytest.mark.parametrize(
    ("factor", "word"),
    [(1.0, "bit-identical"), (1 + 2**-52, "within 1 ulp"), (1 + 40 * 2**-52, "within rounding"), (1.001, "different")],
)
def test_sameness_in_words(factor: float, word: str) -> None:
    assert describe_closeness(np.array([1.0, 2.0]), np.array([1.0, 2.0]) * factor) == word


def test_rounding_parts_where_its_bits_do() -> None:
    one = Trace(scores=np.array([1.0]), weights=np.array([0.3]), output=np.array([2.0]))
    other = Trace(
        scores=np.array([1.0]), weights=np.array([np.nextafter(0.3, 1)]), output=np.array([np.nextafter(2, 3)])
    )
    apart = measure_distance(one.as_stack(), other.as_stack())
    assert (apart["sameness"], apart["differs_at"]) == (["within 1 ulp"], ["weights"])


def test_checks_are_printed_saved_and_read_back(tmp_path: Path) -> None:
    compared_run = comparison("check=[invariants,conventions]", "dtype=float32", "variant=[matrix]")
    text = summary(compared_run)
    assert all(word in text for word in ("prefill against decode", "torch_mha", "ordinary rounding"))
    found = Run(compared_run, (Timing("matrix", 1e-6, 1e-6, 3, None),), store.describe_run(compared_run, Repeat(), {}))
    folder = store.save(found, tmp_path)
    assert {path.name for path in folder.glob("*.csv")} >= {"invariants.csv", "conventions.csv", "precision.csv"}
    for mine, theirs in zip(store.load(folder).comparison.checks, compared_run.checks, strict=True):
        assert mine.sentence == theirs.sentence
        assert len(mine.records) == len(theirs.records)


@pytest.mark.parametrize("convention", ["flash", "jax", "keras"])
def test_the_unit_is_that_of_the_type_that_rounds(convention: str) -> None:
    """A softmax in float32 rounds to 2**-24 of a weight: some 1e-8 of the answer, and no more than a few of its ulp."""
    words = (f"convention={convention}", "embeddings=random", "head=2", "mask=causal", "metrics=[max_error,ulp]")
    found = comparison(*words, "variant=[matrix,looped,blockwise]")
    for row in found.rows:
        assert row.computed_in == "float32"
        assert 1e-10 < row.error < 1e-6
        assert row.error_ulp < 16
    assert {row.same_as for row in found.rows} == {"A"}
    measured = {(record.variant, record.metric): record.value for record in found.checks[0].records}
    for name in ("matrix", "looped", "blockwise"):
        assert measured[name, "max_error"] == pytest.approx(next(r.error for r in found.rows if r.variant == name))


@pytest.mark.parametrize("rescued", [False, True])
def test_a_softmax_without_its_largest_logit_is_found_out(rescued: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`exp(l) / sum exp(l)` is right until a power overflows, or all of them vanish; an epsilon rescues neither."""

    def attend(q: Array, k: Array, v: Array, rules: Rules) -> Trace:
        sound = matrix.attend(q, k, v, rules)
        powers = np.exp(np.asarray(sound.masked))
        weights = powers / (powers.sum(axis=-1, keepdims=True) + (1e-30 if rescued else 0))
        return sound.replace(weights=weights, context=weights @ v)

    monkeypatch.setattr(matrix, "FORM", replace(matrix.FORM, attend=attend))
    found = check("invariants", "check=invariants", "variant=[matrix]")
    assert {record.holds for record in found.records if record.invariant == "logit shift"} == {"no"}
    assert found.sentence.endswith("broken: logit shift of matrix.")


@pytest.mark.parametrize(("rows", "keys"), [(3, 3), (2, 4), (4, 2), (3, 1)])
@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_a_right_function_that_aligns_the_last_query_to_the_last_key_passes(
    rows: int, keys: int, align: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `flash_attn_func(causal=True)`: it looks at the sizes alone, and wants at least one key."""

    def attend(q: Array, k: Array, v: Array, rules: Rules) -> Trace:
        assert k.shape[1] > 0
        return matrix.attend(q, k, v, replace(rules, offset=k.shape[1] - q.shape[1]))

    monkeypatch.setattr(matrix, "FORM", replace(matrix.FORM, attend=attend))
    rng = np.random.default_rng(0)
    given = [f"embeddings.{name}={rng.standard_normal((size, 2)).round(2).tolist()}"
             for name, size in (("q", rows), ("k", keys), ("v", keys))]  # fmt: skip
    start = ("embeddings=inline", "projections=none", "embeddings.vectors=null", "head=1", "variant=[matrix]")
    found = verdicts("check=invariants", *start, *given, "mask=causal", f"align={align}")
    assert found["matrix", "prefill against decode"] == ("yes" if align == "bottom_right" or rows == keys else "-")

"""Numbers explained: a worksheet of three words, done rightly and wrongly in plain NumPy, and rounded as people do."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import attn_exp
from attn_exp import UserError, Verdict
from attn_exp.arrays import Array
from attn_exp.cli import main
from tests.diagnosis.functions import causal, softmax
from tests.refusal import refused

Sheet = dict[str, Array]

X = np.array([[1, 0, 1, 0], [0, 2, 0, 2], [1, 1, 1, 1]]) / 2
RNG = np.random.RandomState(0)
W_Q, W_K, W_V = (RNG.uniform(size=(4, 4)) for _ in range(3))
WORDS = ("experiment=the_cat_sat", "embeddings.vectors=[[.5,0,.5,0],[0,1,0,1],[.5,.5,.5,.5]]")
"""The document's words and weights, x halved: its own weights are too near 0 and 1 to part what is alike."""


def worked(
    scaled: Callable[[Array], Array] = lambda scores: scores / 2,
    normalized: Callable[[Array], Array] = softmax,
    mixed: Callable[[Array, Array, Array], Array] = lambda weights, v, k: weights @ v,
    matrices: tuple[Array, Array, Array] = (W_Q, W_K, W_V),
) -> Sheet:
    """Work a sheet through, each step as asked."""
    q, k, v = (X @ matrix for matrix in matrices)
    scores = q @ k.T
    logits = scaled(scores)
    weights = normalized(logits)
    return {
        "q": q, "k": k, "v": v, "scores": scores, "logits": logits, "weights": weights, "output": mixed(weights, v, k),
    }  # fmt: skip


WRONG = {
    "no_scale": worked(scaled=lambda scores: scores),
    "scale_by_d": worked(scaled=lambda scores: scores / 4),
    "scale_by_sqrt_keys": worked(scaled=lambda scores: scores / np.sqrt(3)),
    "scale_multiplied": worked(scaled=lambda scores: scores * 2),
    "scale_after_softmax": worked(lambda scores: scores, lambda logits: softmax(logits) / 2),
    "softmax_over_queries": worked(normalized=lambda logits: softmax(logits, 0)),
    "softmax_over_all": worked(normalized=lambda logits: np.exp(logits) / np.exp(logits).sum()),
    "no_softmax": worked(normalized=lambda logits: logits),
    "sum_normalized": worked(normalized=lambda logits: logits / logits.sum(axis=-1, keepdims=True)),
    "softmax_twice": worked(normalized=lambda logits: softmax(softmax(logits))),
    "softmax_base_2": worked(normalized=lambda logits: softmax(logits * np.log(2))),
    "weights_transposed": worked(mixed=lambda weights, v, k: weights.T @ v),
    "values_from_keys": worked(mixed=lambda weights, v, k: weights @ k),
    "queries_keys_swapped": worked(matrices=(W_K, W_Q, W_V)),
    "projection_transposed": worked(matrices=(W_Q.T, W_K.T, W_V.T)),
    "qkv_order": worked(matrices=(W_V, W_K, W_Q)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ["no_scale", "scale_multiplied", "softmax_over_queries", "values_from_keys"])
def test_a_mistake_and_a_slip_are_told_apart(name: str) -> None:
    sheet = dict(WRONG[name])
    right = sheet["output"][1, 2]
    sheet["output"] = sheet["output"] + 0.1 * (np.arange(12).reshape(3, 4) == 6)
    verdict = explained(sheet, "weights", "output", digits=4)
    assert verdict.mistakes == (name,), verdict
    assert f"also a slip, in output: row cat, number 3: {right + 0.1:.4f} should be {right:.4f}" in verdict.computes


@pytest.mark.parametrize("seed", range(3))
def test_numbers_of_nobody_are_no_mistake_and_a_slip(seed: int) -> None:
    sheet = worked()
    sheet["output"] = sheet["output"] + np.random.default_rng(seed).normal(0, 0.1, (3, 4))
    assert not explained(sheet, "output", digits=4).mistakes


MASKED = {
    "causal_ignored": worked(),
    "causal_strict": worked(
        normalized=lambda logits: np.vstack([np.zeros(3), softmax(np.where(np.tri(3, k=-1), logits, -np.inf)[1:])])
    ),
    "causal_flipped": worked(normalized=lambda logits: softmax(np.where(np.tri(3).T > 0, logits, -np.inf))),
    "mask_after_softmax": worked(normalized=lambda logits: softmax(logits) * np.tri(3)),
    "mask_multiplied": worked(normalized=lambda logits: softmax(logits * np.tri(3))),
    "mask_small_fill": worked(normalized=lambda logits: softmax(np.where(np.tri(3) > 0, logits, -1.0))),
}


def text(array: Array, digits: int) -> str:
    """Write an array as a person types it."""
    rows = (",".join(f"{number:.{digits}f}" for number in row) for row in array)
    return f"[{','.join(f'[{row}]' for row in rows)}]"


def explained(sheet: Sheet, *stages: str, digits: int = 3, words: tuple[str, ...] = ()) -> Verdict:
    answers = {stage: text(sheet[stage], digits) for stage in stages}
    return attn_exp.explain(*WORDS, *words, **answers)


def find_states(verdict: Verdict) -> dict[str, str]:
    return {finding.question: finding.state for finding in verdict.findings}


def named(verdict: Verdict) -> set[frozenset[str]]:
    """Return every explanation that a verdict names."""
    return {frozenset(verdict.mistakes), *map(frozenset, verdict.alike)}


@pytest.mark.parametrize("digits", [2, 3, 4, 8])
@pytest.mark.parametrize("stage", ["q", "scores", "logits", "weights", "output"])
def test_right_numbers_are_right(stage: str, digits: int) -> None:
    verdict = explained(worked(), stage, digits=digits)
    assert verdict.passed and not verdict.mistakes, verdict
    assert verdict.computes == "attention as requested"


@pytest.mark.parametrize("digits", [2, 3, 4])
@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_from_rounded_weights_and_output(name: str, digits: int) -> None:
    verdict = explained(WRONG[name], "weights", "output", digits=digits)
    assert not verdict.passed
    assert frozenset({name}) in named(verdict), verdict
    assert digits == 2 or verdict.mistakes == (name,), verdict


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_from_the_output_alone(name: str) -> None:
    verdict = explained(WRONG[name], "output", digits=4)
    assert frozenset({name}) in named(verdict), verdict


@pytest.mark.parametrize("name", MASKED)
def test_a_mistake_with_a_mask_is_named(name: str) -> None:
    verdict = explained(MASKED[name], "weights", "output", words=("mask=causal",))
    assert verdict.mistakes == (name,), verdict


def test_what_nobody_can_tell_apart_is_named_beside_it() -> None:
    """With one head, 1 / sqrt(heads) is 1: no scale at all; and 1 / d is the scale 1 / sqrt(d) taken twice."""
    assert named(explained(WRONG["no_scale"], "weights")) == {
        frozenset({"no_scale"}), frozenset({"scale_by_sqrt_heads"}),
    }  # fmt: skip
    assert explained(WRONG["scale_by_d"], "weights").alike == (("scale_twice",),)


def test_the_first_stage_that_is_wrong_is_said() -> None:
    verdict = explained(WRONG["softmax_over_queries"], "scores", "logits", "weights", "output")
    assert [finding.question for finding in verdict.findings if finding.state == "broken"] == ["weights"]
    assert find_states(verdict)["output"] == "held" and "follows" in verdict.findings[-1].message
    verdict = explained(WRONG["queries_keys_swapped"], "q", "k", "scores", "weights", "output")
    assert verdict.mistakes == ("queries_keys_swapped",) and find_states(verdict)["q"] == "broken", verdict
    assert explained(WRONG["queries_keys_swapped"], "logits").mistakes == ("queries_keys_swapped",), "and no layout"


def test_another_setting_is_said() -> None:
    later_hidden = worked(normalized=lambda logits: softmax(causal(logits)))
    verdict = explained(later_hidden, "weights")
    assert not verdict.passed and not verdict.mistakes
    assert verdict.computes == "attention with mask=causal, though the settings do not include it"
    assert explained(later_hidden, "weights", words=("mask=causal",)).passed


def test_a_slip_is_found_and_what_follows_from_it_is_right() -> None:
    sheet = worked()
    sheet["weights"] = sheet["weights"].round(3)
    right = sheet["weights"][1, 2]
    sheet["weights"][1, 2] += 0.1
    sheet["output"] = sheet["weights"] @ sheet["v"]
    verdict = explained(sheet, "logits", "weights", "output")
    cell = f"row cat, key sat: {right + 0.1:.3f} should be {right:.3f}"
    assert not verdict.passed and not verdict.mistakes
    assert find_states(verdict) == {
        "logits": "held", "weights": "broken", "output": "held", "rows of weights sum to 1": "broken",
    }  # fmt: skip
    assert cell in verdict.computes and "all that follows is computed correctly from it" in verdict.computes


def test_two_slips_are_both_found() -> None:
    sheet = worked()
    sheet["logits"] = sheet["logits"].round(2)
    sheet["logits"][2, 0] += 0.5
    sheet["weights"] = softmax(sheet["logits"]).round(2)
    sheet["output"] = sheet["weights"] @ sheet["v"]
    sheet["output"][0, 3] += 1
    verdict = explained(sheet, "logits", "weights", "output", digits=2)
    broken = [finding for finding in verdict.findings if finding.state == "broken"]
    assert [finding.question for finding in broken] == ["logits", "output"]
    assert broken[0].message.startswith("row sat, key The:") and broken[1].message.startswith("row The, number 4:")


def test_a_number_from_the_rounded_boxes_before_is_right() -> None:
    """As on paper: each step starts from what was written down, to one decimal."""
    sheet = worked()
    for stage in ("q", "k", "v"):
        sheet[stage] = sheet[stage].round(1)
    sheet["scores"] = (sheet["q"] @ sheet["k"].T).round(1)
    sheet["logits"] = (sheet["scores"] / 2).round(1)
    sheet["weights"] = softmax(sheet["logits"]).round(1)
    sheet["output"] = (sheet["weights"] @ sheet["v"]).round(1)
    assert (abs(sheet["output"] - worked()["output"]) > 0.06).any()
    assert explained(sheet, *sheet, digits=1).passed
    assert explained(sheet, "output", digits=1).passed, "where the steps are not shown"
    wrong = {**sheet, "output": sheet["output"] + np.eye(3, 4)}
    assert not explained(wrong, *wrong, digits=1).passed


@pytest.mark.parametrize(
    ("sheet", "stages", "remark"),
    [
        (
            {**worked(), "q": worked()["q"] / 2, "scores": worked()["logits"]},
            ("q", "scores", "weights"),
            "scale is already applied to q",
        ),
        ({**worked(), "scores": worked()["logits"]}, ("scores", "weights"), "the scores are already scaled"),
    ],
)
def test_a_harmless_difference_is_no_mistake(sheet: Sheet, stages: tuple[str, ...], remark: str) -> None:
    verdict = explained(sheet, *stages)
    assert verdict.passed and not verdict.mistakes, verdict
    assert any(remark in finding.message for finding in verdict.findings if finding.state == "remark"), verdict


def test_tokens_may_stand_in_columns() -> None:
    sheet = worked()
    verdict = attn_exp.explain(*WORDS, weights=text(sheet["weights"].T, 3), output=text(sheet["output"].T, 3))
    assert verdict.passed and all("rows and columns swapped" in finding.message for finding in verdict.findings)
    wrong = attn_exp.explain(*WORDS, weights=text(WRONG["no_scale"]["weights"].T, 4))
    assert wrong.mistakes == ("no_scale",)


def test_a_part_is_enough() -> None:
    weights = worked()["weights"]
    first = ",".join(f"{number:.3f}" for number in weights[0])
    assert attn_exp.explain(*WORDS, weights=f"[{first}]").passed
    assert attn_exp.explain(*WORDS, weights=first).passed
    holes = [
        [None, float(weights[0, 1].round(3)), None],
        [float("nan")] * 3,
        [None, None, float(weights[2, 2].round(3))],
    ]
    verdict = attn_exp.explain(*WORDS, weights=holes)
    assert verdict.passed and verdict.findings[0].message == "2 of 9 numbers"
    assert attn_exp.explain(*WORDS, weights=f"[[,{weights[0, 1]:.3f},],[null,_,?],[,,{weights[2, 2]:.3f}]]").passed
    wrong = WRONG["softmax_over_queries"]["weights"][0].round(4).tolist()
    assert ("softmax_over_queries",) in {attn_exp.explain(*WORDS, weights=[wrong]).mistakes}


def test_each_number_may_be_as_exact_as_its_own_digits() -> None:
    """Three digits that count, as calculators show them; arrays of NumPy have all of theirs."""
    sheet = worked()
    assert attn_exp.explain(*WORDS, scores=[[f"{number:.3g}" for number in row] for row in sheet["scores"]]).passed
    assert attn_exp.explain(*WORDS, weights=sheet["weights"], output=sheet["output"].round(3)).passed
    assert attn_exp.explain(*WORDS, output=sheet["output"].astype(np.float32)).passed
    assert not attn_exp.explain(*WORDS, output=sheet["output"] + 1e-6 * np.eye(3, 4)).passed


def write(folder: Path, name: str, content: str | Array) -> str:
    path = folder / name
    np.save(path, content) if isinstance(content, np.ndarray) else path.write_text(content, encoding="utf-8")
    return str(path)


def test_files_of_every_kind(tmp_path: Path) -> None:
    weights = worked()["weights"]
    rows = [[f"{number:.4f}" for number in row] for row in weights]
    bare = "\n".join(",".join(row) for row in rows)
    tokens = ("The", "cat", "sat")
    backwards = "\n".join(f"{tokens[place]},{','.join(rows[place][::-1])}" for place in (2, 0))
    pasted = bare.replace("\n", "],\n        [")
    files = {
        "bare.csv": bare,
        "named.csv": f",sat,cat,The\n{backwards}",
        "head.csv": f"The,cat,sat\n{bare}",
        "torch.txt": f"tensor([[{pasted}]], grad_fn=<SoftmaxBackward0>)\n",
        "numpy.txt": f"[[{pasted.replace('],', ']').replace(',', ' ')}]]\n",
        "german.csv": bare.replace(",", ";").replace(".", ","),
        "blanks.txt": "# weights\n" + bare.replace(",", "  "),
        "pandas.csv": ",0,1,2\n" + "\n".join(f"{place},{','.join(row)}" for place, row in enumerate(rows)),
    }
    for name, content in files.items():
        assert attn_exp.explain(*WORDS, weights=write(tmp_path, name, content)).passed, name
    assert attn_exp.explain(*WORDS, weights=write(tmp_path, "own.npy", weights)).passed
    assert attn_exp.explain(*WORDS, weights=Path(write(tmp_path, "rounded.npy", weights.round(2)))).passed


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("nothing.csv", "answer.weights=nothing.csv: cannot be read (No such file or directory)"),
        ("[[1,2],[3]]", "answer.weights is ragged: rows of 2, 1 numbers"),
        ("[[0.1,tea,0.2]]", "cell 1, 2 holds 'tea', which is not a number"),
        ("[[0.1,0.2,0.3,0.4]]", "shape [1, 4]; expected 3 rows of 3 numbers, or some of them"),
        ("[[0.1,0.2", "the brackets do not match"),
        ("[[null,null]]", "answer.weights: no number is given"),
    ],
)
def test_numbers_that_cannot_be_read_are_refused(answer: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        attn_exp.explain(*WORDS, weights=answer)
    assert message in str(error.value)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "several.npz", a=np.ones(3))
    (tmp_path / "objects.npy").write_bytes(b"")
    np.save(tmp_path / "objects.npy", np.array([{}, None]), allow_pickle=True)
    names = {
        "several.npz": "cannot be read",
        "objects.npy": "cannot be read",
        write(tmp_path, "empty.csv", ""): "is empty",
        write(
            tmp_path, "tea.csv", "tea,0.1,0.2,0.7\ncat,0.1,0.2,0.7"
        ): "row 'tea' is not a token; expected The, cat, sat",
    }
    for name, message in names.items():
        with pytest.raises(UserError, match=message):
            attn_exp.explain(*WORDS, weights=str(tmp_path / name))


def test_heads_stand_one_below_the_other_or_apart() -> None:
    words = ("head=2", "variant=[multi_head]", "seed=4")
    weights = attn_exp.run(*words).array("multi_head", "weights").round(3)
    assert attn_exp.explain(*words, weights=weights).passed
    assert attn_exp.explain(*words, weights=weights.reshape(6, 3)).passed
    verdict = attn_exp.explain(*words, weights=weights[0])
    assert verdict.passed and "the first head" in verdict.findings[0].message
    assert attn_exp.explain(*words, output=attn_exp.run(*words, mistake="heads_reversed").array("multi_head", "output")
                            ).mistakes == ("heads_reversed",)  # fmt: skip


UDL = """
[[ -6.116  -2.101  -4.916   1.423 -23.905   1.114]
 [ -0.292  11.13   -3.113   3.138   1.478  -1.398]
 [  3.321  -2.467  -5.165   9.575  19.153  -6.726]
 [ -0.572 -16.139  -6.007   3.42    2.422  -2.753]
 [ -3.825  -8.241  -1.443   0.117 -15.956   1.291]
 [  1.683   0.325  -4.154   0.296   3.734 -16.751]
 [ -1.102   7.947  10.164  -7.631  -5.134  17.329]
 [  3.313   8.716 -11.429  12.2    16.57  -19.903]]
"""
"""What one solution of the book's notebook 12.2 printed as its answer, tokens in columns."""

TRUE = """
[[-21.207  -5.373 -20.933  -9.179 -11.319 -17.812]
 [ -1.995   7.906 -10.516   3.452   9.863  -7.24 ]
 [  5.479   1.115   9.244   0.453   5.656   7.089]
 [ -7.413  -7.416   0.363  -5.573  -6.736  -0.848]]
"""


def test_the_printed_answer_of_a_notebook_is_explained_from_its_numbers_alone() -> None:
    verdict = attn_exp.explain("experiment=udl_multi_head", "variant=[multi_head]", output=UDL)
    assert (verdict.passed, verdict.mistakes, verdict.alike) == (False, ("weights_transposed",), ())
    assert attn_exp.explain("experiment=udl_multi_head", "variant=[multi_head]", output=TRUE).passed


def test_the_command_says_it_in_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = f"answer.weights={text(worked()['weights'], 3)}"
    monkeypatch.setattr(sys, "argv", ["attn-exp", "explain", *WORDS, right])
    main()
    assert capsys.readouterr().out.startswith("answer.weights: right\nasked: experiment=the_cat_sat")
    path = write(tmp_path, "mine.csv", text(WRONG["no_scale"]["weights"], 3).strip("[]").replace("],[", "\n"))
    monkeypatch.setattr(sys, "argv", ["attn-exp", "explain", *WORDS, f"answer.weights={path}", "--json"])
    with pytest.raises(SystemExit, match="1"):
        main()
    found = json.loads(capsys.readouterr().out)
    assert (found["passed"], found["mistakes"]) == (False, ["no_scale"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("answer.weights=nothing.csv",), "No such file"),
        (("answer.wieghts=[[1]]",), "unknown stage of an answer 'wieghts'; did you mean weights?"),
        (("answer.weights=[[1]]", "answer.weights=[[1]]"), "answer.weights is given twice"),
        (("answer.weights=[[1]]", "--jsno"), "did you mean --json?"),
        (("answer.weights=[[1]]", "hed=2"), "hed"),
        (("mask=causal",), "nothing to explain"),
        (("answer.weights=[[1,0,0]]", "mistake=no_scale"), "leave out mistake"),
        (("answer.weights=[[1,0,0]]", "variant=[linear]"), "try variant="),
    ],
)
def test_a_mistake_of_the_user_is_one_line(
    words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(["explain", *words], monkeypatch, capsys)


@pytest.mark.long
def test_a_name_that_fits_by_chance_is_not_claimed() -> None:
    """Three numbers of one digit: of a hundred mistakes, and thousands of pairs, some give them."""
    few = attn_exp.explain("embeddings=the_cat_sat", weights="[[1,0,0]]")
    assert few.mistakes == () and ("no_softmax",) in few.alike, few
    assert "too few" in few.computes
    random = np.random.default_rng(4)
    for _ in range(6):
        weights = softmax(random.normal(size=(1, 3)) * 1.5)
        assert attn_exp.explain(*WORDS, weights=text(weights, 1)).mistakes == ()

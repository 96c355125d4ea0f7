"""The documents: every experiment composes, and its numbers are those that the document prints.

`golden/documents.json` holds the printed digits apart from the presets, and how many decimals must agree: all that are
printed, but 7 of 8 for the classroom and one fewer than printed for the 4x3 example, whose inputs are printed rounded.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import pytest

from attn_exp.config.choices import conf_dir
from attn_exp.problem.problem import build
from tests.checkpoints import write_tiny_model
from tests.compose import comparison, config

GOLDEN = json.loads((Path(__file__).parent / "golden/documents.json").read_text(encoding="utf-8"))
FIGURES = [(experiment, name) for experiment, figures in GOLDEN.items() for name in figures]

run = functools.cache(comparison)


def choices(group: str) -> list[str]:
    return sorted(path.stem for path in (conf_dir() / group).glob("*.yaml"))


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_every_experiment_agrees_with_its_document(experiment: str) -> None:
    found = run(f"experiment={experiment}")
    assert [each.quantity for each in found.published if not each.agrees] == []
    assert len(found.published) == len(found.config.published) > 0
    assert found.config.title
    assert found.config.notes


@pytest.mark.parametrize(("experiment", "name"), FIGURES)
def test_a_golden_figure(experiment: str, name: str) -> None:
    figure = GOLDEN[experiment][name]
    found = run(f"experiment={experiment}")
    trace = found.traces[figure.get("variant", found.variants[0].name)]
    arrays = {"x": found.problem.x, "memory": found.problem.memory, **found.problem.projections} | dict(trace.stages())
    array = arrays[figure["stage"]]
    assert array is not None
    array = array[0] if array.ndim == 3 else array
    array = array.T if figure.get("columns") else array
    printed = np.array(figure["numbers"], dtype=np.float64)
    array = array[figure.get("row", 0) :][: len(printed), : printed.shape[1]]
    assert array.shape == printed.shape
    assert np.abs(array - printed).max() <= 0.5 * 10.0 ** -figure["decimals"]


def test_the_flow_that_the_document_leaves_unprinted() -> None:
    """Derived by hand: row 0 is softmax(1/2, 1/2, 1) = (1, 1, sqrt e) / (2 + sqrt e); rows 1 and 2 are thirds."""
    trace = comparison("experiment=attention_flow").traces["matrix"]
    assert trace.scores is not None and trace.logits is not None
    assert trace.weights is not None and trace.output is not None
    np.testing.assert_array_equal(trace.scores[0], [[1, 1, 2], [1, 1, 1], [1, 1, 1]])
    np.testing.assert_array_equal(trace.logits[0], [[0.5, 0.5, 1], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]])
    ends = [0.27406861906119697809, 0.27406861906119697809, 0.45186276187760604381]
    np.testing.assert_allclose(trace.weights[0], [ends, [1 / 3] * 3, [1 / 3] * 3], rtol=0, atol=1e-15)
    first = [1.3148284523470075548, 1.4111029285917954671, 3.3148284523470075548, 3.4111029285917954671]
    mean = [3.5 / 3, 1.5, 9.5 / 3, 3.5]
    np.testing.assert_allclose(trace.output, [first, mean, mean], rtol=0, atol=1e-14)


def test_the_legacy_stream_of_whole_matrices() -> None:
    """The document's own calls, in its order; tokens are its columns."""
    stream = np.random.RandomState(3)
    x = np.hstack([stream.normal(size=(4, 1)) for _ in range(3)])
    stream = np.random.RandomState(0)
    drawn = {name: stream.normal(size=(4, 4)) for name in ("W_q", "W_k", "W_v")}
    drawn |= {name: stream.normal(size=(4, 1)) for name in ("b_q", "b_k", "b_v")}
    problem = build(config("experiment=udl_self_attention"))
    np.testing.assert_array_equal(problem.x, x.T)
    for name, array in drawn.items():
        np.testing.assert_array_equal(np.atleast_2d(problem.projections[name]), array.T)
    np.testing.assert_array_equal(problem.projections["W_o"], np.eye(4))
    np.testing.assert_array_equal(problem.projections["b_o"], np.zeros(4))


@pytest.mark.parametrize("bias", ["true", "false"])
@pytest.mark.parametrize(
    "projections", sorted({*choices("projections")} & {*choices("embeddings")} - {"file", "model"})
)
def test_documents_leave_out_nothing_that_a_run_needs(projections: str, bias: str) -> None:
    """What a document lacks leaves everything as it is: W_o is the identity, and biases are zero."""
    problem = build(config(f"embeddings={projections}", f"projections={projections}", f"bias={bias}", "head=1"))
    size = problem.x.shape[1] if problem.x is not None else 0
    assert problem.projections["W_o"].shape == (size, size)
    if projections not in ("udl", "udl_multi_head") and bias == "true":
        assert not any(problem.projections[name].any() for name in ("b_q", "b_k", "b_v", "b_o"))


STARTS = {
    "inline": ["embeddings.vectors=[[1,0],[0,1]]", "embeddings.tokens=[a,b]"],
    "file": ["embeddings.file={folder}/words.csv"],
    "attention_basics": ["head=3"],
    "classroom": ["head=3"],
    "your_journey": ["head=3"],
    "qk_transpose": ["head=1"],
    "model": ["model=llama", "model.path={folder}/tiny.bin", "model.tokens=[1,0,2]", "variant=[multi_head]"],
}


@pytest.mark.parametrize("embeddings", choices("embeddings"))
def test_every_embedding_runs_by_itself(embeddings: str, tmp_path: Path) -> None:
    (tmp_path / "words.csv").write_text("a,1,0\nb,0,1\n", encoding="utf-8")
    write_tiny_model(tmp_path / "tiny.bin")
    words = [word.format(folder=tmp_path) for word in STARTS.get(embeddings, [])]
    found = comparison(f"embeddings={embeddings}", *words)
    assert all(row.error < 1e-12 for row in found.rows)
    assert len(found.problem.key_tokens) == found.problem.keys
    assert len(set(found.problem.key_tokens)) > 1


def test_presets_win_over_groups_and_the_command_line_over_presets() -> None:
    preset = config("experiment=udl_self_attention")
    assert (preset.scale, preset.bias, preset.head, list(preset.variant)) == (
        False, True, 1, ["looped", "matrix", "scaled"],
    )  # fmt: skip
    words = ["scale=true", "head=2", "variant=[multi_head]", "projections=uniform", "embeddings=random", "bias=false"]
    mine = config("experiment=udl_self_attention", *words)
    assert (mine.scale, mine.bias, mine.head, list(mine.variant)) == (True, False, 2, ["multi_head"])
    assert (mine.projections.source, mine.projections.legacy_seed) == ("uniform", None)
    assert mine.embeddings.distribution == "normal"
    assert mine.title == preset.title

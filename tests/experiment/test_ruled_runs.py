"""Runs with rules: from the words of a user to numbers that the reference confirms, for every variant."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from attn_exp.errors import UserError
from attn_exp.experiment.row import Comparison
from attn_exp.problem.problem import left_to_model
from tests import ROOT
from tests.checkpoints import write_tiny_model
from tests.compose import comparison, config

CONF = ROOT / "conf"
SHAPE = ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=24", "head=4", "bias=true")
VARIANTS = "variant=[looped,matrix,multi_head,multi_query,decode,linear,linear_recurrent]"

RUNS = [
    "mask=causal",
    "mask=[causal,window] mask.window.left=2",
    "mask=[causal,prefix] mask_join=or mask.prefix.length=2",
    "mask=[causal,document] mask.document.ids=[0,0,1,1,1]",
    "mask=padding mask.padding.lengths=3",
    "mask=array mask.array.values=[[true,false,true,true,false]]",
    "score=alibi mask=causal",
    "score=t5",
    "score=[softcap,sink] score.softcap.cap=0.5 score.sink.logit=0.3",
    "score=added score.added.values=[[0.1],[0.2],[-3],[0],[1]]",
    "position=rope",
    "position=rope position.rope.interleaved=true position.rope.base=100 position.rope.stretch=2",
    "position=rope position.rope.size=2 mask=causal",
    "position=sinusoidal",
    "position=[sinusoidal,rope]",
    "normalizer=sigmoid",
    "normalizer=sparsemax mask=causal",
    "normalizer=sparsemax score=sink",
    "kv_head=2",
    "kv_head=1 position=rope",
]


def confirmed(compared: Comparison) -> None:
    """Check every row that was computed, one at least; a row that was not says why."""
    assert not all(np.isnan(row.error) for row in compared.rows)
    for row in compared.rows:
        assert row.note if np.isnan(row.error) else row.error < 1e-13, row


@pytest.mark.long
@pytest.mark.parametrize("words", RUNS)
def test_the_reference_confirms_every_variant(words: str) -> None:
    confirmed(comparison(*SHAPE, VARIANTS, *words.split()))


@pytest.mark.parametrize("align", ["top_left", "bottom_right"])
def test_the_reference_confirms_cross_attention(align: str) -> None:
    rng = np.random.default_rng(0)
    q, k, v = (str(rng.standard_normal(shape).round(2).tolist()).replace(" ", "") for shape in ((3, 4), (5, 4), (5, 6)))
    given = (f"embeddings.q={q}", f"embeddings.k={k}", f"embeddings.v={v}", "embeddings.vectors=null")
    words = ("embeddings=inline", "projections=none", "mask=causal", f"align={align}", "position=rope", *given)
    confirmed(comparison(*words, "head=2", "variant=[looped,matrix,multi_head,decode]"))


def test_a_pinned_rule_changes_its_own_row_alone() -> None:
    plain = comparison("variant=[matrix]")
    pinned = comparison(
        "variant=[matrix,scaled]", "+variant.scaled.mask.causal={}", "+variant.scaled.normalizer=sigmoid"
    )
    assert pinned.rows[0].entropy == plain.rows[0].entropy
    assert (pinned.rows[0].mask, pinned.rows[1].mask, pinned.rows[1].normalizer) == ("none", "causal", "sigmoid")
    assert pinned.rows[1].differs_at == "masked"


def test_rules_are_named_with_their_settings() -> None:
    row = comparison("mask=[causal,window]", "score=softcap", "position=rope", "variant=[matrix]").rows[0]
    assert row.mask == "causal and window(left=1, right=0)"
    assert row.score == "softcap(cap=30.0)"
    assert row.position == "rope(base=10000.0, interleaved=false, stretch=1.0)"


@pytest.mark.parametrize("pool", ["first", "mean"])
def test_multi_query_shares_the_first_head_or_the_mean(pool: str) -> None:
    compared = comparison(*SHAPE, "variant=[multi_head,multi_query]", f"kv_pool={pool}")
    heads, shared = (compared.traces[name].k for name in ("multi_head", "multi_query"))
    assert heads is not None and shared is not None
    np.testing.assert_allclose(shared[0], heads[0] if pool == "first" else heads.mean(axis=0), rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("group", ["mask", "score", "position"])
def test_every_yaml_of_a_rule_runs(group: str, tmp_path: Path) -> None:
    """What is left to a model gets one."""
    write_tiny_model(tmp_path / "tiny.bin")
    model = ["embeddings=model", "model=llama", f"model.path={tmp_path}/tiny.bin", "model.tokens=[1,0,2]"]
    for path in (CONF / group).glob("*.yaml"):
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert settings == {} or set(settings) == {path.stem}
        words = [f"{group}={path.stem}", "variant=[multi_head]"]
        compared = comparison(*words, *(model if left_to_model(config(*words)) else []))
        confirmed(compared)
        assert compared.rows[0].error < 1e-13, path.stem


def test_flash_aligns_to_the_sequence_and_not_to_its_filler() -> None:
    """3 tokens of which one is filler: the last query stands beside the second key, as its kernels have it."""
    words = ("convention=flash", "mask=[causal,padding]", "mask.padding.lengths=2", "variant=[matrix]")
    weights = comparison(*words).traces["matrix"].weights
    assert weights is not None
    assert (weights[0] > 0).astype(int).tolist() == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]


FORMS = "variant=[looped,matrix,blockwise]"


@pytest.mark.parametrize("convention", ["keras", "torch_mha", "onnx"])
@pytest.mark.parametrize(
    "words",
    [
        "score=sink score.sink.logit=1000",  # the sink takes all of it
        "normalizer=sigmoid score=added score.added.values=[[-1000]]",  # e^-1000 is 0
    ],
)
def test_weights_that_vanish_stay_zero(words: str, convention: str) -> None:
    compared = comparison(*words.split(), f"convention={convention}", FORMS)
    for row in compared.rows:
        assert row.same_as == "A" and row.error < 1e-30
    np.testing.assert_array_equal(compared.traces["matrix"].output, 0)


def test_numbers_that_a_convention_cannot_hold_are_refused() -> None:
    words = ("embeddings=inline", "embeddings.vectors=[[1e30,1],[1,2]]", "projections=identity", "head=1")
    with pytest.raises(UserError, match="too large for convention=jax, which computes in float32"):
        comparison(*words, "convention=jax")

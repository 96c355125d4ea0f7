"""The short way in which tests compose configurations gives what the command line gives."""

from __future__ import annotations

import pytest

from attn_exp.config.choices import choices
from attn_exp.config.compose import composed
from attn_exp.errors import UserError
from tests.compose import config

RIGHT = [
    (),
    ("head=2", "seed=3", "scale=false", "seed=4", "metrics=all"),
    ("mask=[causal,window]", "mask.window.left=1", "score=softcap", "position=rope"),
    ("variant=[matrix,linear]", "variant.matrix.head=2", "+variant.matrix.scale=0.5"),
    ("mistake=no_scale", "check=invariants", "published.strict=true", "output_dir=${normalizer}"),
    ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=6", "bias=true"),
    ("embeddings=inline", "embeddings.vectors=[[1,2],[3,4]]", "++projections.given.W_q=[[1,0],[0,1]]"),
    ("embeddings=words", "embeddings.text=Yes, no: it's {maybe}", "embeddings.memory.text=a b"),
    *((f"experiment={name}", "seed=1") for name in choices("experiment")[::4]),
]
WRONG = [
    ("hed=2",),
    ("head=2", "head"),
    ("mask=cusal",),
    ("mask=causal", "mask.window.left=1"),
    ("seed=[",),
    ("variant=", "seed=1"),
    ("+head=2", "head=two"),
]


@pytest.mark.long
@pytest.mark.parametrize("words", RIGHT, ids=" ".join)
def test_values_set_in_a_copy_are_what_hydra_composes(words: tuple[str, ...]) -> None:
    whole = composed(words, ())
    assert [config(*words), config(*words)] == [whole, whole]


@pytest.mark.long
@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_what_is_wrong_is_said_in_the_same_words(words: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as expected:
        composed(words, ())
    with pytest.raises(UserError) as error:
        config(*words)
    assert str(error.value) == str(expected.value)

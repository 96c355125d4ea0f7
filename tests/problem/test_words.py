"""Words of a text: one vector for each, drawn from the seed, and how a sentence is typed."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from attn_exp.config.inputs import STREAMS, Embeddings
from attn_exp.errors import UserError
from attn_exp.problem.drawing import seed_source
from attn_exp.problem.sources import Input, read_input
from tests.compose import config


def begin(*words: str) -> Input:
    found = config("embeddings=words", *words)
    return read_input(found.embeddings, seed_source(STREAMS, found.seed))


def vectors(*words: str) -> dict[str, list[float]]:
    started = begin(*words)
    return dict(zip(started.tokens, started.stages["x"].tolist(), strict=True))


def test_the_same_word_has_the_same_vector_wherever_it_stands() -> None:
    one, other = begin("embeddings.text=the cat sat on the mat"), vectors("embeddings.text=a mat the dog")
    assert one.tokens == ("the", "cat", "sat", "on", "the", "mat")
    assert one.stages["x"].shape == (6, 8)
    np.testing.assert_array_equal(one.stages["x"][0], one.stages["x"][4])
    assert len(np.unique(one.stages["x"], axis=0)) == 5
    assert (other["the"], other["mat"]) == (one.stages["x"][0].tolist(), one.stages["x"][5].tolist())


def test_the_seed_decides_and_the_width_does_not() -> None:
    here, there = vectors("seed=0", "embeddings.text=cat dog"), vectors("seed=1", "embeddings.text=cat dog")
    assert here["cat"] != there["cat"]
    assert vectors("embeddings.text=cat", "embeddings.d_model=3")["cat"] == here["cat"][:3]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("she likes hot coffee", ["she", "likes", "hot", "coffee"]),
        ("  she\tlikes\n", ["she", "likes"]),
        ("The cat, the hat.", ["The", "cat", ",", "the", "hat", "."]),
        ('"No," it\'s (not) one-off...', ['"', "No", ",", '"', "it's", "(", "not", ")", "one-off", ".", ".", "."]),
        ("she likes [PAD] <s> <|end|> [x", ["she", "likes", "[PAD]", "<s>", "<|end|>", "[", "x"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा", "।"]),
        ("猫が好き", ["猫が好き"]),
        ("$5 #1 C++ 3.14", ["$5", "#", "1", "C++", "3.14"]),
        ("naive nai\u0308ve", ["naive", "na\u00efve"]),
        ("[CLS] she [SEP]", ["[CLS]", "she", "[SEP]"]),
        ("'yes' or 'no'", ["'", "yes", "'", "or", "'", "no", "'"]),
        ("42", ["42"]),
        ("true", ["true"]),
        ("what's this, a b=c? {x} ${y}!", ["what's", "this", ",", "a", "b=c", "?", "{", "x", "}", "${y", "}", "!"]),
    ],
)
def test_words_and_the_marks_around_them(text: str, words: list[str]) -> None:
    if "${" not in text:
        assert list(begin(f"embeddings.text={text}").tokens) == words
    found = read_input(Embeddings(text=text, d_model=2), seed_source(STREAMS, 0))
    assert list(found.tokens) == words
    assert all(unicodedata.is_normalized("NFC", word) for word in found.tokens)


def test_a_list_of_words_is_taken_as_it_is() -> None:
    assert begin("embeddings.text=[New York,is,'big.','[PAD]']").tokens == ("New York", "is", "big.", "[PAD]")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("embeddings=words|embeddings.text=", "expected at least one word"),
        ("embeddings=words|embeddings.text= ", "expected at least one word"),
        ("embeddings=words|embeddings.text=[]", "expected at least one word"),
        ("embeddings=words|embeddings.text={a:1}", "expected text, such as 'she likes hot coffee'"),
        ("embeddings=words|embeddings.text=[[a,b],[c,d]]", "expected one sentence; -m runs several"),
        ("embeddings=words|embeddings.text=[a, [b,c]]", "expected one sentence; -m runs several"),
        ("embeddings=words|embeddings.d_model=null", "embeddings.text needs embeddings.d_model"),
        ("embeddings=words|embeddings.columns=true", "embeddings.columns=true transposes vectors that are written"),
        ("embeddings.text=a b", "both define x; give only one of them; embeddings=words unsets the other"),
        ("embeddings=words|embeddings.tokens=[a]", "embeddings.tokens names 1 tokens, but there are 6 vectors"),
    ],
)
def test_what_is_no_text_is_told_in_one_line(words: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        found = config(*words.split("|"))
        read_input(found.embeddings, seed_source(STREAMS, found.seed))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_generator_draws_one_table_with_a_row_for_each_word_in_order() -> None:
    """The vocabulary of a notebook is `sorted(set(words))`, and its embeddings are `nn.Embedding` of those."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    found = config("embeddings=words", "embeddings.text=to be or to", "generator=torch", "seed=123")
    torch.manual_seed(123)
    table = torch.nn.Embedding(3, 8)(torch.tensor([2, 0, 1, 2]))
    np.testing.assert_array_equal(
        read_input(found.embeddings, seed_source("torch", 123)).stages["x"], table.detach().numpy()
    )

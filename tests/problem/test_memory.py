"""Cross attention: queries are made of x, keys and values of a memory with tokens of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attn_exp import run
from attn_exp.errors import UserError
from attn_exp.problem.problem import Problem, build
from tests.compose import comparison, config
from tests.refusal import refusal

FORMS = "variant=[looped,matrix,scaled,multi_head,blockwise,torch_sdpa,onnxruntime]"


def problem(*words: str) -> Problem:
    return build(config(*words))


def names(*words: str) -> tuple[str, ...]:
    return problem(*words).key_tokens


def test_a_number_is_that_many_random_tokens() -> None:
    given = problem("embeddings.memory=5")
    assert given.memory is not None and given.x is not None
    assert given.memory.shape == (5, 4)
    assert given.key_tokens == ("m0", "m1", "m2", "m3", "m4")
    assert given.tokens == ("she", "likes", "coffee")


def test_the_memory_has_a_stream_of_its_own() -> None:
    random = ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=4")
    with_memory, without = problem(*random, "embeddings.memory=5"), problem(*random)
    np.testing.assert_array_equal(with_memory.x, without.x)
    assert np.abs(with_memory.memory - with_memory.x).min() > 0  # type: ignore[operator] # both are there
    expected = np.random.default_rng(np.random.SeedSequence([0, *b"memory"])).standard_normal((5, 4))
    np.testing.assert_array_equal(with_memory.memory, expected)


def test_names_numbers_files_and_settings_describe_it(tmp_path: Path) -> None:
    assert names("embeddings.memory=[le,chat]") == names("embeddings.memory='le chat'") == ("le", "chat")
    np.testing.assert_array_equal(problem("embeddings.memory=[[1,0],[0,1],[2,2]]").memory, [[1, 0], [0, 1], [2, 2]])
    file = tmp_path / "words.csv"
    file.write_text("le,1,2\nchat,3,4\n", encoding="utf-8")
    for word in (f"embeddings.memory={file}", f"embeddings.memory.file={file}"):
        assert names(word) == ("le", "chat")
        np.testing.assert_array_equal(problem(word).memory, [[1, 2], [3, 4]])
    described = ("embeddings.memory.vectors=[[1,2,3],[4,5,6]]", "embeddings.memory.columns=true")
    np.testing.assert_array_equal(problem(*described).memory, [[1, 4], [2, 5], [3, 6]])
    drawn = problem("embeddings.memory.tokens=[le,chat]", "embeddings.memory.d_model=7")
    assert drawn.memory is not None and drawn.memory.shape == (2, 7)
    uniform = problem("embeddings.memory.tokens=200", "embeddings.memory.distribution=uniform").memory
    assert uniform is not None and 0.9 < np.abs(uniform).max() <= 1


def test_a_word_has_the_same_vector_on_both_sides() -> None:
    given = problem("embeddings=words", "embeddings.text=the cat", "embeddings.memory='cat and the dog'", "seed=3")
    assert given.key_tokens == ("cat", "and", "the", "dog")
    assert given.x is not None and given.memory is not None
    np.testing.assert_array_equal(given.memory[[2, 0]], given.x)


def test_a_file_of_projections_holds_matrices_as_wide_as_the_memory(tmp_path: Path) -> None:
    shapes = {"W_q": (4, 4), "W_k": (6, 4), "W_v": (6, 4), "W_o": (4, 4)}
    arrays = {name: np.random.default_rng(1).standard_normal(shape) for name, shape in shapes.items()}
    np.savez(tmp_path / "w.npz", **arrays)  # type: ignore[arg-type] # arrays by their names
    words = ("projections=file", f"projections.file={tmp_path}/w.npz", "embeddings.memory.tokens=5")
    given = problem(*words, "embeddings.memory.d_model=6")
    assert given.memory is not None and given.k is not None
    np.testing.assert_allclose(given.k, given.memory @ arrays["W_k"])
    with pytest.raises(UserError, match=r"has the shape \[6, 4\]; expected the memory's width=4"):
        problem(*words)


@pytest.mark.parametrize("width", [4, 6])
def test_pytorchs_multi_head_attention_with_keys_of_another_width_gives_the_same(width: int) -> None:
    """`nn.MultiheadAttention(kdim=, vdim=)` is PyTorch's cross attention; its matrices are ours, turned."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")
    words = ["embeddings=random", "embeddings.tokens=3", "embeddings.d_model=4", f"embeddings.memory.d_model={width}"]
    found = run(*words, "embeddings.memory.tokens=5", "bias=true", head=2, variant=["multi_head"])
    given = found.comparison.problem
    layer = torch.nn.MultiheadAttention(4, 2, kdim=width, vdim=width, batch_first=True, dtype=torch.float64)
    arrays = {name: torch.tensor(array) for name, array in given.projections.items()}
    with torch.no_grad():
        if width == 4:
            layer.in_proj_weight.copy_(torch.cat([arrays[f"W_{letter}"].T for letter in "qkv"]))
        else:
            for letter in "qkv":
                getattr(layer, f"{letter}_proj_weight").copy_(arrays[f"W_{letter}"].T)
        layer.in_proj_bias.copy_(torch.cat([arrays[f"b_{letter}"] for letter in "qkv"]))
        layer.out_proj.weight.copy_(arrays["W_o"].T)
        layer.out_proj.bias.copy_(arrays["b_o"])
        memory = torch.tensor(given.memory)[None]
        output, weights = layer(torch.tensor(given.x)[None], memory, memory, average_attn_weights=False)
    np.testing.assert_allclose(found.array("multi_head", "output"), output[0].numpy(), rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.array("multi_head", "weights"), weights[0].numpy(), rtol=0, atol=1e-14)


RULES = (
    (),
    ("mask=padding", "mask.padding.lengths=3"),
    ("mask=causal",),
    ("mask=causal", "align=bottom_right"),
    ("mask=window", "mask.window.left=1", "mask.window.right=2"),
    ("mask=array", "mask.array.values=[[1,0,1,1,0],[0,1,1,0,0],[1,1,1,1,1]]"),
    ("score=alibi", "position=rope"),
    ("position=sinusoidal", "kv_head=1", "bias=true"),
    ("position=[sinusoidal,rope]", "score=[t5,softcap]", "normalizer=softmax"),
    ("normalizer=sparsemax", "score=alibi"),
)


@pytest.mark.long
@pytest.mark.parametrize("rules", RULES, ids=" ".join)
def test_every_form_agrees_with_the_reference(rules: tuple[str, ...]) -> None:
    words = ("embeddings.memory.tokens=5", "embeddings.memory.d_model=6", "head=2", *rules)
    for row in comparison(*words, FORMS).rows:
        if not row.note:
            assert row.error_ulp <= 8, row
            assert row.checked == 3
    assert not comparison(*words, "variant=[matrix]").rows[0].note


def test_keys_that_are_given_get_names() -> None:
    words = ("embeddings=me_against_the", "embeddings.memory=[moi,contre,le]")
    assert (problem(*words).tokens, names(*words)) == (("Me", "against", "the"), ("moi", "contre", "le"))


WRONG = {
    "embeddings.memory=0": "embeddings.memory.tokens=0: expected a whole number of at least 1",
    "embeddings.memory=-2": "embeddings.memory.tokens=-2: expected a whole number of at least 1",
    "embeddings.memory=[]": "embeddings.memory=[]: expected a number of tokens",
    "embeddings.memory=true": "embeddings.memory=true: expected a number of tokens",
    "embeddings.memory=2.5": "embeddings.memory=2.5: expected a number of tokens",
    "embeddings.memory=[[1,2],[3]]": "embeddings.memory.vectors is ragged",
    "embeddings.memory=[[1,nan]]": "embeddings.memory.vectors: row 0, column 1 holds nan",
    "embeddings.memory=[[1,x]]": "embeddings.memory.vectors: row 0 holds 'x', which is not a number",
    "embeddings.memory=nowhere.csv": "embeddings.memory.file=nowhere.csv: cannot be read (No such file or directory)",
    "embeddings.memory.tokns=3": "unknown setting 'embeddings.memory.tokns'; did you mean embeddings.memory.tokens",
    "embeddings.memory.q=[[1]]": "embeddings.memory.q: a memory has only vectors",
    "embeddings.memory.memory=2": "embeddings.memory.memory: a memory has only vectors",
    "embeddings.memory=2 past=1": "past=1 and embeddings.memory: keys come from earlier tokens or from a memory",
    "embeddings.memory=[[1,2]] projections=identity": "projections=identity needs a memory as wide as x, but",
    "embeddings.memory=[[1,2]] ++projections.given.W_k=[[1,2,3,4],[1,2,3,4],[1,2,3,4]]": "W_k has the shape [3, 4]",
    "embeddings.memory=3 mask=document mask.document.ids=[0,0,1]": "mask=document applies within one sequence",
    "embeddings.memory.tokens=3 embeddings.memory.vectors=[[1,2]]": "embeddings.memory.tokens=3, but there are 1 v",
    "embeddings.memory.tokens=[a,b] embeddings.memory.vectors=[[1,2]]": "embeddings.memory.tokens names 2 tokens",
    "embeddings=me_against_the embeddings.memory=[[1,2]]": "embeddings.memory: the keys are given",
    "embeddings=me_against_the embeddings.memory=2": "embeddings.memory.tokens=2, but there are 3",
    "embeddings.memory=[[1,2]] mistake=qkv_order variant=[matrix]": "mistake=qkv_order cannot be applied to the shapes",
    "mistake=output_through_another head=4 kv_head=2 variant=[multi_head] embeddings=random embeddings.d_model=8": (
        "mistake=output_through_another cannot be applied to the shapes"
    ),
    "embeddings.memory.file=a.csv embeddings.memory.vectors=[[1]]": "both define the memory",
}


@pytest.mark.parametrize("words", WRONG)
def test_what_does_not_fit_is_told_in_one_line(words: str) -> None:
    assert WRONG[words] in refusal(comparison, *words.split())

"""Modules of PyTorch: heads found or asked for, classes made, both rows of a run; and functions in half types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attn_exp
from attn_exp.experiment.row import Row

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch

from tests.diagnosis import modules_at_hand as of

FILE = Path(of.__file__)


@pytest.mark.long
@pytest.mark.parametrize("word", ["nh", "n_attention_heads", "groups", "n", "nb_of_heads"])
def test_the_number_of_heads_is_found_whatever_it_is_called(word: str) -> None:
    torch.manual_seed(5)  # its matrices are its own, and small ones tell little of a scale
    assert attn_exp.check(of.plain(word)(24, 4), quick=True).passed
    assert attn_exp.check(of.plain(word, scaled=False)(24, 4), quick=True).mistakes == ("no_scale",)


def test_heads_are_counted_by_what_they_do_where_several_numbers_may_be_meant() -> None:
    module = of.plain("foo", scaled=False)(24, 4)
    module.other = 6
    assert attn_exp.check(module, quick=True).mistakes == ("no_scale",)


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "words"),
    [
        (of.ListOfHeads, ()),
        (of.ListOfHeads(20, 5), ()),
        (of.OneHead(24, 6), ()),
        (of.Configured, ("mask=causal",)),
        (of.Grouped, ("head=6", "kv_head=2")),
        (of.Grouped(24, 4, 2), ()),
    ],
)
def test_modules_in_odd_styles_pass(module: Any, words: tuple[str, ...]) -> None:
    verdict = attn_exp.check(module, *words, quick=True)
    assert verdict.passed, verdict


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ListOfHeads", []),
        ("layer", []),
        ("Plain", []),
        ("Plain", ["bias=true"]),
        ("Configured", ["mask=causal"]),
        ("Configured", ["mask=causal", "bias=true"]),
    ],
)
def test_a_module_is_a_row_of_a_run_with_the_run_s_own_matrices(name: str, words: list[str], here: None) -> None:
    line = row_of(f"{FILE}:{name}", 12, 3, words)
    assert line.error < 1e-13, line
    assert line.same_as == "A"


@pytest.mark.long
def test_torch_s_own_layer_is_a_row(here: None) -> None:
    assert row_of("torch.nn:MultiheadAttention", 20, 5, []).error < 1e-13


@pytest.mark.long
def test_a_module_of_other_sizes_is_refused_in_one_line(here: None) -> None:
    line = row_of(f"{FILE}:layer", 20, 5, [])
    assert line.note == "layer: W_q: the module has [12, 12], the run [20, 20]"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def row_of(target: str, width: int, heads: int, words: list[str]) -> Row:
    """Return the row of this module in a run beside a right variant."""
    result = attn_exp.run(
        "variant=[multi_head,mine]", f"variant.mine.form={target}", "variant.multi_head.output_projection=true",
        "embeddings=random", f"embeddings.d_model={width}", f"head={heads}", "report=none", *words,
    )  # fmt: skip
    return next(line for line in result.comparison.rows if line.variant == "mine")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["bfloat16", "float64", "float32", "float16"])
def test_a_small_fill_is_named_in_every_type(kind: str) -> None:
    """Of logits up to 6, `e^-10` is lost in the last bit of a half type: the hidden keys must be far ahead."""

    def hides(fill: float) -> Any:
        def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            logits = q @ k.mT / q.shape[-1] ** 0.5
            logits = logits if mask is None else logits.masked_fill(~mask, fill)
            return torch.softmax(logits, -1) @ v

        return function

    assert attn_exp.check(hides(-10.0), f"dtype={kind}", "takes=torch", quick=True).mistakes == ("mask_small_fill",)
    assert attn_exp.check(hides(-6e4), f"dtype={kind}", "takes=torch", quick=True).passed


def test_a_layer_in_float16_is_not_asked_about_numbers_that_it_cannot_hold() -> None:
    def layer(x: Any, W_q: Any, W_k: Any, W_v: Any) -> Any:
        q, k, v = x @ W_q, x @ W_k, x @ W_v
        return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v

    assert attn_exp.check(layer, "dtype=float16", "takes=torch").passed


@pytest.mark.long
def test_the_module_of_pytorch_passes_as_it_stands_under_its_own_convention() -> None:
    verdict = attn_exp.check(torch.nn.MultiheadAttention, quick=True)
    assert (verdict.passed, verdict.right_under) == (True, "convention=torch_mha")


class Crossing(torch.nn.Module):
    """Keys and values of another input; `late` where they are read from their end."""

    late = False

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.to_q, self.to_kv = torch.nn.Linear(dim, dim), torch.nn.Linear(dim, 2 * dim)
        self.to_out = torch.nn.Linear(dim, dim)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        parts = (self.to_q(x), *self.to_kv(x if context is None else context).chunk(2, -1))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        v = v.flip(2) if self.late and k.shape[2] != q.shape[2] else v
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.to_out(mixed.transpose(1, 2).flatten(2))


class CrossingLate(Crossing):
    late = True


@pytest.mark.long
def test_a_layer_with_room_for_another_input_is_asked_with_one() -> None:
    assert attn_exp.check(Crossing, quick=True).passed
    wrong = attn_exp.check(CrossingLate, quick=True)
    assert [finding.rung for finding in wrong.findings if finding.state == "broken"] == ["keys of another input"]


class Deaf(torch.nn.Module):
    """Has words for keys and values, and makes them of its queries."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.p, self.scale = heads, torch.nn.Linear(dim, 3 * dim), 1.0

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
        q, k, v = self.p(query).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return ((self.scale * q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)


class DeafAndScaled(Deaf):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__(dim, heads)
        self.scale = (dim // heads) ** -0.5


@pytest.mark.long
def test_what_makes_keys_of_its_queries_is_wrong_where_it_takes_keys() -> None:
    assert attn_exp.check(Deaf, quick=True).is_wrong
    assert attn_exp.check(DeafAndScaled, quick=True).is_wrong

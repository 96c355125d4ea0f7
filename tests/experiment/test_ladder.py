"""What makes two rows differ is taken apart one setting at a time, and each step is what two runs would show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attn_exp.config.schema import Variant
from attn_exp.experiment.compare import compare
from attn_exp.experiment.ladder import PIPELINE
from attn_exp.experiment.measuring import DIFFERENT
from attn_exp.experiment.row import Comparison, Step
from tests.compose import comparison, config

RANDOM = ("embeddings=random", "embeddings.tokens=5", "embeddings.d_model=12", "head=3")


def between(one: dict[str, Any], other: dict[str, Any], *words: str) -> Comparison:
    """Return a run of two rows, in the form `matrix` unless they say otherwise."""
    rows = {name: Variant(**{"form": "matrix", **pins}) for name, pins in (("one", one), ("other", other))}
    return compare(replace(config(*(words or RANDOM)), variant=rows))


def steps(compared: Comparison, variant: str = "other") -> list[Step]:
    return [step for step in compared.steps if step.variant == variant]


def test_each_step_is_the_difference_of_two_rows_that_a_user_would_write() -> None:
    changes: list[dict[str, Any]] = [
        {"head": 1, "scale": False, "mask": {}, "output_projection": False},
        {"head": 3},
        {"scale": True},
        {"mask": {"causal": {}}},
        {"output_projection": True},
    ]
    rungs = [changes[0]]
    for change in changes[1:]:
        rungs.append({**rungs[-1], **change})
    found = steps(between(rungs[0], rungs[-1]))
    assert [step.setting for step in found] == ["head", "scale", "mask", "output_projection"]
    assert [step.change for step in found] == ["3 heads", "scaling", "mask=causal", "W_o"]
    for step, before, after in zip(found, rungs, rungs[1:], strict=False):
        assert step.moved == between(before, after).rows[1].max_diff > 0.01
        assert step.total == between(rungs[0], after).rows[1].max_diff
        assert step.sameness == DIFFERENT


def test_the_range_of_two_settings_is_that_of_both_orders() -> None:
    plain, heads, mixed = {"head": 1}, {"head": 3}, {"output_projection": True}
    found = {step.setting: step for step in steps(between(plain, heads | mixed))}
    for name, start, end in (
        ("output_projection", plain, plain | mixed),
        ("head", plain | mixed, heads | mixed),
    ):
        both = sorted((found[name].moved, between(start, end).rows[1].max_diff))
        assert both[0] < both[1]
        assert [found[name].least, found[name].most, found[name].orders] == [*both, "all 2"]


EVERY: dict[str, Any] = {
    "position": {"rope": {}},
    "head": 3,
    "kv_head": 1,
    "scale": 0.3,
    "score": {"softcap": {"cap": 0.5}},
    "mask": {"causal": {}, "window": {"left": 1, "right": 0}},
    "mask_join": "or",
    "align": "bottom_right",
    "normalizer": "sigmoid",
    "form": "linear",
    "output_projection": True,
    "convention": "keras",
    "mistake": ("no_softmax",),
}


def test_nothing_that_a_variant_can_pin_is_missing() -> None:
    """A ladder over every setting at once, but for another form: each is one step, in the order of the pipeline."""
    assert tuple(name for name in EVERY if name != "form") == PIPELINE
    assert set(EVERY) == {*Variant.__dataclass_fields__}
    pins = {name: value for name, value in EVERY.items() if name != "form"}
    found = between({"head": 6, "mask": {"padding": {"lengths": 4}, "prefix": {"length": 1}}}, pins, *RANDOM[:3])
    assert [step.setting for step in found.steps] == list(pins)
    assert {step.orders for step in found.steps} == {""}  # of more than five settings no other order is tried
    assert found.steps[-1].total == found.rows[1].max_diff


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("mask_join", "align", "form")])
def test_a_setting_that_differs_alone_is_the_whole_difference(name: str) -> None:
    found = between({}, {name: 2 if name == "head" else EVERY[name]}, *RANDOM[:3], "head=6")
    (step,) = found.steps
    assert step.setting == name
    assert step.moved == step.total == step.least == step.most == found.rows[1].max_diff


def test_true_is_not_the_number_one_and_order_of_masks_is_none() -> None:
    assert [step.setting for step in between({"scale": True}, {"scale": 1.0}).steps] == ["scale"]
    masks = {"causal": {}, "window": {"left": 1}}
    assert between({"mask": masks}, {"mask": {"window": {"left": 1}, "causal": {}}}).steps == ()


def test_how_masks_are_joined_differs_only_where_both_rows_have_several() -> None:
    causal: dict[str, Any] = {"causal": {}}
    window = {"window": {"left": 1}}
    both = causal | window
    (step,) = between({"mask": causal, "mask_join": "and"}, {"mask": both, "mask_join": "or"}).steps
    assert (step.setting, step.moved) == (
        "mask",
        between({"mask": causal}, {"mask": both, "mask_join": "or"}).rows[1].max_diff,
    )
    assert [step.setting for step in between({"mask": both, "mask_join": "or"}, {"mask": both}).steps] == ["mask_join"]
    assert [step.setting for step in between({"mask": window, "mask_join": "or"}, {"mask": window}).steps] == []


def test_settings_that_make_sense_together_alone_are_changed_together() -> None:
    """Of 4 heads with 2 for keys and values no single head can be made: 2 do not divide 1."""
    one, two = between({"head": 4, "kv_head": 2}, {"head": 1, "scale": False}).steps
    assert (one.setting, two.setting) == ("head + kv_head", "scale")
    assert (one.before, one.after, one.change) == ("4 + 2", "1 + 1", "1 head and 1 key/value head")
    assert one.note.startswith("changed together") and not two.note
    assert (one.row, two.row, one.orders) == ("", "other", "all 2")


def test_another_form_comes_first_or_last() -> None:
    found = comparison(*RANDOM, "variant=[matrix,linear_recurrent]", "mask=causal").steps
    assert [(step.setting, step.after) for step in found] == [("scale", "false"), ("form", "linear_recurrent")]
    found = comparison(*RANDOM, "variant=[looped,scaled]", "scale=false").steps
    assert [(step.setting, step.after) for step in found] == [("form", "matrix"), ("scale", "true")]


def test_a_large_run_has_one_order_and_a_larger_one_is_not_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attn_exp.experiment.ladder.SMALL", 50)
    assert {step.orders for step in comparison(*RANDOM).steps} == {""}
    monkeypatch.setattr("attn_exp.experiment.ladder.LARGE", 50)
    last = comparison(*RANDOM).steps[-1]
    assert last.setting == "form + head + output_projection" and "too many weights" in last.note

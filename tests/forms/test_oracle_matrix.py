"""Every form with every rule on every shape, held to the scalar reference to 1e-12 or what the form's type holds.

Forms, rules and normalizers are found by their existing: a new one is tested here as soon as its file is there.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

from attn_exp import forms, rules
from attn_exp.arrays import Array
from attn_exp.experiment import executing
from attn_exp.reference import oracle
from attn_exp.rules.grid import Rule
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.document import Document
from attn_exp.rules.masks.mask import AnyOf, Mask
from attn_exp.rules.masks.window import Window
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.score import Score
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.t5 import T5
from tests import ROOT
from tests.forms.by_form import skip_where_missing, tolerance

CONF = ROOT / "conf"


class Shape(NamedTuple):
    """Query heads, key/value heads, queries, keys, head size, value size."""

    h: int
    g: int
    t: int
    s: int
    d: int
    e: int


SHAPES = [
    Shape(1, 1, 3, 3, 4, 4),
    Shape(2, 2, 5, 3, 7, 11),
    Shape(6, 3, 2, 5, 4, 3),
    Shape(4, 1, 7, 11, 3, 2),
    Shape(3, 3, 3, 1, 2, 5),
]
TOLERANCE = 1e-12
NAMES = (*rules.names("mask"), *rules.names("score"))


def shipped(name: str) -> Rule:
    """Return a rule with the settings of its YAML."""
    group = group_of(name)
    settings = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))
    rule: Rule = rules.make(group, name, settings[name])
    return rule


def group_of(name: str) -> str:
    return "mask" if name in rules.names("mask") else "score"


def sized(shape: Shape) -> list[Rule]:
    """Return rules whose settings depend on the shape."""
    rng = np.random.default_rng(7)
    values = rng.standard_normal((shape.h, shape.t, shape.s))
    return [
        Allowed(values > -0.3),
        Added(values),
        Document(tuple(int(each) for each in rng.integers(0, 3, shape.s))),
        Sink(tuple(rng.standard_normal(shape.h))),
        T5(8, 16, False, table=rng.standard_normal((8, shape.h))),
        Window(2, 1),
        AnyOf((Causal(), Window(1, 1))),
    ]


def all_rules(shape: Shape) -> list[tuple[Rule, ...]]:
    """Return every shipped rule that fits, every sized one, and masks together with score rules."""
    single = [rule for rule in (*map(shipped, NAMES), *sized(shape)) if not rule.misfit(*shape[:1], *shape[2:4])]
    scores = [rule for rule in single if isinstance(rule, Score)]
    return [
        (),
        *((each,) for each in single),
        *((Causal(), each) for each in scores),
        (Causal(), Window(1, 0), *scores),
    ]


def draw(shape: Shape) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(sum(shape))
    sizes = (shape.h, shape.t, shape.d), (shape.g, shape.s, shape.d), (shape.g, shape.s, shape.e)
    return rng.standard_normal(sizes[0]) * 2, rng.standard_normal(sizes[1]), rng.standard_normal(sizes[2])


def expected(q: Array, k: Array, v: Array, ruled: Rules, kind: str) -> tuple[Array, Array]:
    """Return weights `[h t s]` and context `[h t e]` as the scalar reference computes them."""
    heads, each = len(q), len(q) // len(k)
    weigh = oracle.REFERENCES[kind]
    weights = [
        [
            weigh(q[head].tolist(), k[head // each].tolist(), heads, head, row, row + int(ruled.offset), ruled)
            for row in range(q.shape[1])
        ]
        for head in range(heads)
    ]
    context = oracle.sum_exactly(np.array(weights)[:, :, None] * v.repeat(each, axis=0).swapaxes(1, 2)[:, None])
    return np.array(weights), context


def check(form: str, shape: Shape, ruled: Rules) -> None:
    """Hold a form to the reference, unless it says that it cannot compute these rules."""
    if forms.refuses(form, ruled):
        return
    q, k, v = draw(shape)
    stages = forms.form(form).attend(q, k, v, ruled)
    weights, context = expected(q, k, v, ruled, forms.form(form).reference)
    assert stages.context is not None
    allowed = tolerance(form, TOLERANCE)
    np.testing.assert_allclose(stages.context, context, rtol=allowed, atol=allowed)
    if stages.weights is not None:
        np.testing.assert_allclose(stages.weights, weights, rtol=allowed, atol=allowed)


def ruled(given: tuple[Rule, ...], **settings: Any) -> Rules:
    masks = tuple(each for each in given if isinstance(each, Mask))
    return Rules(masks=masks, scores=tuple(each for each in given if isinstance(each, Score)), **settings)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "-".join(map(str, shape)))
@pytest.mark.parametrize("form", forms.NAMES)
def test_every_form_computes_every_rule_or_says_that_it_cannot(form: str, shape: Shape) -> None:
    for given in all_rules(shape):
        for offset in (0, shape.s - shape.t):
            for scale in (1.0, 0.3):
                check(form, shape, ruled(given, scale=scale, offset=offset))


@pytest.mark.parametrize("form", forms.NAMES)
def test_every_form_computes_something(form: str) -> None:
    """A form may refuse as much as it likes, but one that refuses all of it is held to nothing."""
    skip_where_missing(form)
    assert any(
        not forms.refuses(form, ruled(given, normalizer=normalizer, scale=scale))
        for given in all_rules(SHAPES[0])
        for normalizer in map(rules.normalizer, rules.names("normalizer"))
        for scale in (1.0, 0.3)
    )


@pytest.mark.parametrize("normalizer", rules.names("normalizer"))
@pytest.mark.parametrize("form", forms.NAMES)
def test_every_form_computes_every_normalizer_or_says_that_it_cannot(form: str, normalizer: str) -> None:
    for shape in SHAPES:
        for given in ((), (Causal(),), (Causal(), shipped("softcap")), (Causal(), Window(0, 0)), (Allowed(False),)):
            check(form, shape, ruled(given, normalizer=rules.normalizer(normalizer), scale=1.0))


@pytest.mark.parametrize("form", forms.NAMES)
def test_every_form_computes_each_entry_of_a_batch(form: str) -> None:
    shape, offset = Shape(4, 2, 3, 5, 4, 6), np.array([2, 0, -1])
    many = [draw(shape._replace(t=shape.t, d=4)) for _ in range(3)]
    many = [(q + place, k * (1 + place), v - place) for place, (q, k, v) in enumerate(many)]
    together = [np.stack(each) for each in zip(*many, strict=True)]
    if forms.refuses(form, Rules(masks=(Causal(),), offset=offset)):
        return
    found = forms.form(form).attend(*together, Rules(masks=(Causal(),), offset=offset)).context
    for place, (q, k, v) in enumerate(many):
        _, context = expected(q, k, v, Rules(masks=(Causal(),), offset=int(offset[place])), forms.form(form).reference)
        allowed = tolerance(form, TOLERANCE)
        np.testing.assert_allclose(np.asarray(found)[place], context, rtol=allowed, atol=allowed)


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("form", forms.NAMES)
def test_every_form_keeps_the_type_of_its_input(form: str, kind: str) -> None:
    for given in all_rules(SHAPES[0]):
        if forms.refuses(form, ruled(given)):
            continue
        stages = forms.form(form).attend(*(each.astype(kind) for each in draw(SHAPES[0])), ruled(given))
        assert {array.dtype for _, array in stages.stages()} == {np.dtype(kind)}


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("normalizer", ["softmax", "sparsemax", "sum"])
@pytest.mark.parametrize("form", forms.NAMES)
def test_half_precision_is_summed_in_float32(form: str, normalizer: str, kind: str) -> None:
    """The weights of 1024 keys sum to 1, half of them of logit -1/1024; in bfloat16 256 + 1 is 256."""
    skip_where_missing(form)
    given = Rules(normalizer=rules.normalizer(normalizer), scale=1.0)
    ones = np.ones((1, 1024, 1), executing.find_type(kind))
    keys = np.repeat([[[0], [-1 / 1024]]], 512, 1).astype(ones.dtype)
    if not forms.refuses(form, given):
        context = forms.form(form).attend(ones[:, :1], keys, ones, given).context
        np.testing.assert_allclose(np.asarray(context, np.float64), [[[1.0]]], rtol=2**-7)


def test_every_rule_has_a_yaml_that_lists_its_settings() -> None:
    for name in NAMES:
        shipped(name)
        group = group_of(name)
        settings = yaml.safe_load((CONF / group / f"{name}.yaml").read_text(encoding="utf-8"))[name]
        kind = rules.rule_class(group, name)
        assert set(settings) == ({field.name for field in fields(kind)} if is_dataclass(kind) else set())

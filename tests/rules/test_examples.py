"""Every mask, score, position and normalizer gives what its own file draws by hand, and what somebody else printed.

A variant is checked by asking the same rule, so nothing else would notice a formula that is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from attn_exp import registry, rules
from attn_exp.rules.example import Example
from attn_exp.rules.from_outside import describe_difference
from attn_exp.rules.positions.position import Position

GROUPS = ("mask", "score", "position", "normalizer")
MEMBERS = [(group, name) for group in GROUPS for name in rules.names(group)]


def example(group: str, name: str) -> Example:
    """Return the example of a member; a member without one has no `EXAMPLE`."""
    value = vars(registry.module(rules.package(group), name)).get("EXAMPLE")
    assert isinstance(value, Example), f"{group}={name} has no EXAMPLE"
    return value


def both(group: str, name: str) -> list[Example]:
    """Return the example drawn by hand, and the one from outside where there is one."""
    drawn = example(group, name)
    return [drawn, drawn.outside] if isinstance(drawn.outside, Example) else [drawn]


def twin(group: str, name: str, wanted: Example) -> list[list[float]] | None:
    """Return what the scalar twin makes of the same rows, or None where there is none."""
    if group == "score":
        paired = rules.make("score", name, wanted.settings)
        rows = [[paired.pair_twin(q, k, wanted.head) for k in wanted.keys] for q in wanted.given]
        return rows if paired.pairs else None
    if group == "normalizer":
        weigh = rules.normalizer(name).twin
        return None if weigh is None else [weigh(row, ()) for row in wanted.given]
    scalar = rules.make("position", name, wanted.settings).twin()
    if scalar is None:
        return None
    return [scalar.turn(scalar.embed(row, at), at) for at, row in enumerate(wanted.given, wanted.offset)]


def close(outcome: Any, written: Any, wanted: Example) -> None:
    np.testing.assert_allclose(outcome, written, rtol=0, atol=0.51 * 10.0**-wanted.decimals)


@pytest.mark.parametrize(("group", "name"), MEMBERS)
def test_a_member_gives_what_its_file_draws(group: str, name: str) -> None:
    for wanted in both(group, name):
        rule = rules.normalizer(name) if group == "normalizer" else rules.make(group, name, wanted.settings)
        assert describe_difference(group, rule, wanted) == ""


def test_another_outcome_is_a_difference() -> None:
    """What holds all examples would be silent about each of these."""
    causal, softmax = rules.make("mask", "causal", {}), rules.normalizer("softmax")
    assert describe_difference("mask", causal, Example({}, ("█·", "·█"))) == "row 1, column 0 is 1, expected 0"
    logits = Example({}, ((0.5, 0.4),), given=((0.0, 0.0),))
    assert describe_difference("normalizer", softmax, logits) == "row 0, column 1 is 0.5, expected 0.4"
    assert "its shape is [1, 2]" in describe_difference("normalizer", softmax, logits._replace(outcome=((0.5,),)))
    rope = example("position", "rope")
    wrong = rope._replace(keys_after=rope.keys)
    assert describe_difference("position", drawn_position("rope"), wrong).startswith("for keys, row 1, column 0 is ")


@pytest.mark.parametrize(("group", "name"), [member for member in MEMBERS if member[0] != "mask"])
def test_its_scalar_twin_gives_the_same(group: str, name: str) -> None:
    for wanted in both(group, name):
        outcome = twin(group, name, wanted)
        if outcome is not None:
            close(outcome, wanted.outcome, wanted)


DRAW_KEYS = [(group, name) for group, name in MEMBERS if group == "position" and example(group, name).keys]


@pytest.mark.parametrize(("group", "name"), DRAW_KEYS)
def test_the_twin_of_a_position_turns_keys_as_its_file_draws(group: str, name: str) -> None:
    wanted = example(group, name)
    scalar = rules.make(group, name, wanted.settings).twin()
    if scalar is not None:
        close(
            [scalar.turn_key(row, at) for at, row in enumerate(wanted.keys, wanted.offset)], wanted.keys_after, wanted
        )


@pytest.mark.parametrize("name", rules.names("position"))
def test_a_position_that_turns_keys_in_its_own_way_draws_them(name: str) -> None:
    """Rows of queries show nothing of a `turn_key`: its sign would be right by definition."""
    kind: type[Position] = rules.rule_class("position", name)
    if kind.turn_key is not Position.turn_key:
        assert len(example("position", name).keys) > 1, f"position={name} has a turn_key, and its EXAMPLE no keys"


def drawn_position(name: str) -> Any:
    """Return a position with the settings of its example."""
    return rules.make("position", name, example("position", name).settings)


@pytest.mark.parametrize("name", [name for name in rules.names("position") if drawn_position(name).relative])
def test_products_after_a_relative_position_know_the_distance_alone(name: str) -> None:
    rule, size = drawn_position(name), np.shape(example("position", name).given)[-1]
    queries, marked = np.random.default_rng(3).standard_normal((2, 4, size))
    first, moved = (rule.turn(queries, np.arange(4) + by) @ rule.turn_key(marked, np.arange(4) + by).T for by in (0, 9))
    np.testing.assert_allclose(moved, first, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("group", "name"), MEMBERS)
def test_somebody_else_is_named_or_it_is_said_why_nobody_is(group: str, name: str) -> None:
    outside = example(group, name).outside
    assert outside.source if isinstance(outside, Example) else outside


@pytest.mark.parametrize(("group", "name"), MEMBERS)
def test_an_example_shows_more_than_a_rule_that_does_nothing(group: str, name: str) -> None:
    outcome = example(group, name).outcome
    if group == "mask":
        assert len(set("".join(outcome))) == 2
    else:
        assert not same_rows(outcome, example(group, name).given)


def same_rows(outcome: Sequence[Any], given: Sequence[Sequence[float]]) -> bool:
    return [list(row) for row in outcome] == ([list(row) for row in given] or np.zeros_like(outcome).tolist())


@pytest.mark.parametrize("name", rules.names("normalizer"))
def test_a_normalizer_has_the_name_of_its_file(name: str) -> None:
    assert rules.normalizer(name).name == name


@pytest.mark.parametrize("name", rules.names("normalizer"))
def test_a_normalizer_is_what_its_fields_say(name: str) -> None:
    known, rng = rules.normalizer(name), np.random.default_rng(5)
    logits, change = rng.standard_normal((2, 9, 6))
    weights = known.weigh(logits, None)
    assert np.allclose(weights.sum(axis=-1), 1) == known.sums_to_one
    assert np.allclose(known.weigh(logits + 3, None), weights) == known.ignores_shift
    assert np.allclose(known.weigh(logits, np.full((9, 1), 2.0)), weights) != known.takes_extra
    powers = np.exp(logits)
    assert np.allclose(powers / powers.sum(axis=-1, keepdims=True), weights) == known.exponential
    if known.slope is not None:
        ends = [known.weigh(logits + sign * 1e-6 * change, None) for sign in (1, -1)]
        np.testing.assert_allclose(known.slope(weights, change), (ends[0] - ends[1]) / 2e-6, atol=1e-8)

"""Published figures: what agrees, what a wrong digit does, and what becomes of figures that a run cannot give."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from attn_exp.config.choices import choices
from attn_exp.config.schema import Published, read_config
from attn_exp.diagnosis.classroom.boxes import read_cells
from attn_exp.errors import UserError
from attn_exp.experiment.published import compare_with_document, parse_numbers, replace_numbers
from attn_exp.experiment.row import Agreement, Comparison
from attn_exp.report.sentences import summary
from tests.compose import comparison

NUMBER = re.compile(r"[-+]?\d*\.?\d+\.?(e-?\d+)?")

run = functools.cache(comparison)


def held(found: Comparison, *entries: Published) -> tuple[Agreement, ...]:
    return compare_with_document(replace(found.config, published=entries), found.problem, found.variants, found.traces)


def broken(text: str, units: int) -> Iterator[str]:
    """Yield the text with one of its numbers off by so many units of its last digit, each number in turn."""
    for found in NUMBER.finditer(text):
        word = Decimal(found.group().rstrip("."))
        last = word.as_tuple().exponent
        assert isinstance(last, int)
        other = word + units * Decimal(1).scaleb(last)
        written = f"{other:e}" if "e" in found.group() else f"{other:f}"
        yield text[: found.start()] + written + text[found.end() :]


@pytest.mark.parametrize("experiment", choices("experiment"))
def test_any_number_off_by_one_in_its_last_digit_disagrees(experiment: str) -> None:
    """Where the inputs are rounded, the last digit is no longer certain: then a number beyond twice the tolerance."""
    found = run(f"experiment={experiment}")
    for entry, agreement in zip(found.config.published, found.published, strict=True):
        digits = 8 if entry.decimals is None else entry.decimals
        text = entry.printed if entry.decimals is None else padded(entry.printed, digits)
        for sign in (1, -1):
            units = 1 if not entry.rounded else math.ceil(4 * widest(agreement) / unit(entry.printed))
            for wrong in broken(text, sign * units):
                assert not held(found, replace(entry, printed=wrong))[0].agrees


def padded(text: str, digits: int) -> str:
    """Write every number with so many decimals, as the document's printer would have without cutting zeros."""
    return NUMBER.sub(lambda found: f"{Decimal(found.group().rstrip('.')):.{digits}f}", text)


def unit(text: str) -> float:
    return 10.0 ** -max(len(found.group().partition(".")[2]) for found in NUMBER.finditer(text))


def widest(agreement: Agreement) -> float:
    """Return what the note says the rounding adds, at most, with the half unit."""
    added = re.search(r"change the result by (\S+)\.$", agreement.note)
    assert added is not None
    return float(added.group(1)) + unit(agreement.printed)


def test_a_figure_of_a_variant_outside_the_run_is_left_out() -> None:
    found = comparison("experiment=udl_self_attention", "variant=[matrix]")
    pinned = [each for each in found.config.published if each.variant in (None, "matrix")]
    assert [each.quantity for each in found.published] == [each.quantity for each in pinned]
    assert all(each.agrees for each in found.published)


def test_another_problem_disagrees_and_does_not_stop_the_run() -> None:
    found = comparison("experiment=the_cat_sat", "embeddings=random", "projections=normal")
    output = next(each for each in found.published if each.quantity == "output")
    assert (output.agrees, output.computed) == (False, "48 numbers, but 12 are printed")
    assert math.isnan(output.largest_difference)
    assert "output has 48 numbers, but 12 are printed" in summary(found)
    assert " inf " not in summary(found)
    assert not any(each.agrees for each in found.published)


def test_another_setting_disagrees() -> None:
    agreements = {each.quantity: each.agrees for each in comparison("experiment=classroom", "scale=true").published}
    assert agreements == {
        "Query": True, "Key": True, "Value": True, "scores": True, "weights": False, "output": False,
    }  # fmt: skip


def test_rounded_queries_leave_x_as_it_is() -> None:
    printed = Published("x", "1 0 1", "x", first=3, row=1, rounded={"q": 0.1})
    assert held(run("experiment=the_cat_sat"), printed)[0].tolerance == 0.5


def test_unknown_words_are_told() -> None:
    found = run("experiment=the_cat_sat")
    for entry, message in (
        (Published("Q", "1", "wieghts"), "unknown stage of published Q 'wieghts'; did you mean weights"),
        (Published("it", "1", "q", head=3), "published it: head=3, but the run has 1 head, numbered from 1"),
        (Published("it", "1", "q", row=9), "published it: row=9, but rows are numbered 1 to 3"),
        (Published("it", "see above", "q"), "published it: printed='see above' contains no number"),
    ):
        with pytest.raises(UserError, match=re.escape(message)):
            held(found, entry)
    values = {"embeddings": {}, "variant": {}, "published": [{"quantity": "Q", "printed": "1", "stage": "q"}]}
    for key, value, message in (
        ("product", "matmull", "did you mean matmul"),
        ("rounded", {"w": 1}, "unknown setting 'published"),
        ("inputs", [1], "expected a mapping with the keys q, k, v, weights"),
    ):
        wrong = values | {"published": [values["published"][0] | {key: value}]}  # type: ignore[index]
        with pytest.raises(UserError, match=re.escape(message)):
            read_config(wrong)


TEXTS = [
    ("[[ 8 13]\n [ 6  7]]", None, [8, 13, 6, 7], [0.5] * 4),
    ("[0.149 0.306 0.385 0.16 ]", None, [0.149, 0.306, 0.385, 0.16], [0.0005] * 4),
    ("[1. 0.5]", None, [1, 0.5], [0.05] * 2),
    ("[[1.2884, 1.064 , 1.452 ]]", 8, [1.2884, 1.064, 1.452], [0.5e-8] * 3),
    ("[1.24326146e-13 9.98281489e-01]", None, [1.24326146e-13, 9.98281489e-01], [0.5e-21, 0.5e-9]),
    ("[3.4e-7 .06204187 0]", None, [3.4e-7, 0.06204187, 0], [0.5e-8] * 3),
    ("array([[-0.27]]), array([[1.5E+02]])", None, [-0.27, 150], [0.005, 5]),
    ("\u22121.5\u00b2", None, [-1.5], [0.05]),
    ("0.33000000000000007", 8, [0.33000000000000007], [0.5e-8]),
]


@pytest.mark.parametrize(("text", "digits", "values", "half_units"), TEXTS)
def test_numbers_and_half_their_last_digit(
    text: str, digits: int | None, values: list[float], half_units: list[float]
) -> None:
    found, halves = parse_numbers(text, digits)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(halves, half_units)


def test_other_numbers_in_the_same_brackets() -> None:
    assert replace_numbers("[[1.25, 3.  ], [4e-3]]", np.array([2 / 3, -1, 0.0123])) == "[[0.67, -1.00  ], [1e-02]]"
    assert replace_numbers("[1.5 2]", np.array([2 / 3, -1]), 3) == "[0.667 -1.000]"


def test_heads_and_rows_count_from_one() -> None:
    words = ("embeddings=random", "embeddings.tokens=3", "variant=[multi_head]", "head=2")
    found = comparison(*words)
    exact = np.asarray(found.traces["multi_head"].q)
    for head, row in ((1, 3), (2, 1)):
        printed = " ".join(f"{number:.6f}" for number in exact[head - 1, row - 1])
        assert held(found, Published(quantity="it", printed=printed, stage="q", head=head, row=row))[0].agrees


PRINTS = (
    "tensor([[0.1500, -2.0000],\n        [3.0000, 1e-3]], grad_fn=<SelectBackward0>)",
    "tensor([[0.1500, -2.0000], [3.0000, 1e-3]], device='cuda:0', dtype=torch.float64, grad_fn=<MmBackward0>)",
    "Parameter containing:\ntensor([[0.1500, -2.0000], [3.0000, 1e-3]], requires_grad=True)",
    "Array([[0.15, -2.], [3., 1e-3]], dtype=float32)",
    "array([[0.15, -2.],\n       [3., 1e-3]], dtype=float32)",
    "<tf.Tensor: shape=(2, 2), dtype=float32, numpy=\narray([[0.15, -2.], [3., 1e-3]], dtype=float32)>",
    "tf.Tensor(\n[[0.15 -2.]\n [3. 1e-3]], shape=(2, 2), dtype=float32)",
    "[[0.15 -2.]\n [3. 1e-3]]",
)


@pytest.mark.parametrize("text", PRINTS)
def test_a_print_of_any_library_is_its_numbers_alone(text: str) -> None:
    values = np.array([0.15, -2.0, 3.0, 1e-3])
    np.testing.assert_array_equal(parse_numbers(text)[0], values)
    assert replace_numbers(replace_numbers(text, values * 2), values).count("3.0") == 1
    np.testing.assert_array_equal(read_cells(text, "answer.q").values, values.reshape(2, 2))

"""A verdict as it is printed: the outcome, what was found, and what was not verified."""

from __future__ import annotations

import pytest

from attn_exp.experiment.verdict import Finding, Side, Smallest, Verdict, decide, make_unfinished

FINDINGS = (Finding("it can be called", "held"), Finding("values", "held", "2 cases"), Finding("masks", "not offered"))
SMALLEST = Smallest("f(q=q, k=k)\nprint(1)", "[1.0]", "[2.0]")
RIGHT = Verdict("f", True, (), "attention as requested", FINDINGS, "mask=causal", right_under="align=top_left")
MISTAKES = ("no_scale", "softmax_twice")
COMPUTES = "attention with no_scale and softmax_twice"
WRONG = Verdict("f", False, MISTAKES, COMPUTES, (), alike=(("a", "b"), ("c",)), smallest=SMALLEST, stage="q")
SIDES = (Side("f", "wrong", "no attention.", smallest=SMALLEST), Side("g", "right", "", right_under="mask=causal"))
APART = Verdict("f", False, (), "f is wrong.", FINDINGS, against="g", sides=SIDES)

PRINTED = {
    "right": (
        decide(RIGHT),
        """f: right under align=top_left
asked: mask=causal
It computes attention as requested.
    ok  it can be called
    ok  values            2 cases
     -  masks""",
    ),
    "open": (
        decide(RIGHT, ("argument `x` (unknown)",)),
        """f: right under align=top_left as far as checked; not verified: argument `x`
asked: mask=causal
It computes attention as requested.
not verified: argument `x` (unknown)
    ok  it can be called
    ok  values            2 cases
     -  masks""",
    ),
    "wrong": (
        decide(WRONG),
        """f: wrong: no_scale, softmax_twice
asked:
Its mistakes are no_scale and softmax_twice.
fix: logits = scores / sqrt(d)
fix: weights = softmax(logits), once
  f(q=q, k=k)
  print(1)
  # gives [1.0]
  # right [2.0]
The first stage that differs: queries, keys or values.
The same numbers come from a with b, or c.""",
    ),
    "apart": (
        decide(APART),
        """f and g: differ
asked:
f is wrong.
  f(q=q, k=k)
  print(1)
  # gives [1.0]
  # the definition gives [2.0]
not compared: masks
    ok  it can be called
    ok  values            2 cases
     -  masks""",
    ),
    "unfinished": (
        make_unfinished("f", "it took too long", ""),
        "f: not verified: it took too long\nasked:\n     ?  it answers  it took too long",
    ),
}


@pytest.mark.parametrize(("verdict", "lines"), PRINTED.values(), ids=PRINTED)
def test_what_is_printed(verdict: Verdict, lines: str) -> None:
    """The catalogue's own words on each mistake are left out."""
    printed = [line.rstrip() for line in str(verdict).splitlines() if line and "Seen in: " not in line]
    assert printed == lines.splitlines()
    assert verdict.verified == ("values",) * (verdict.findings is FINDINGS)
    assert verdict.plain()["name"] == verdict.name

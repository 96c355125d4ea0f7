"""What is recorded of a function of the zoo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """One wrong function and what it was meant to compute.

    `mistake`: the name that a checker should give it; two of a pair, joined by `+`.
    `function`: a function on `q, k, v` `[b h t d]`, or on `x, W_q, ...` `[t m]`, or a class of PyTorch's modules.
    `settings`: what it was meant to compute, in the words of a run, such as `mask=causal`; none = plain attention.
    `source`: where such a mistake was seen, or what is special about this one.
    `same_as`: other names that give the same function here, so that none of them is a wrong answer.
    """

    mistake: str
    function: Callable[..., Any]
    settings: tuple[str, ...] = ()
    source: str = ""
    same_as: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The mistake, the file and the function, for people who read a list of failures."""
        module = self.function.__module__.rpartition(".")[2]
        return f"{self.mistake}-{module}.{self.function.__name__}"


CONVENTIONS = {"mask_inverted", "rope_pairing", "causal_bottom_right", "heads_by_stride"}
"""Mistakes that are conventions elsewhere: a verdict may ask the user about them."""


def names_said(verdict: Any) -> tuple[str, ...]:
    """Return the mistakes that a verdict names; where it names a convention, the mistake that it is beside another."""
    as_mistakes = next((group for group in verdict.alike if CONVENTIONS & {*group}), ())
    if set(verdict.mistakes) < set(as_mistakes) and not verdict.passed:
        return tuple(as_mistakes)
    return tuple(verdict.mistakes)

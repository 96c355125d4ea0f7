"""What comes of holding one printed result of a document against a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Agreement:
    """One printed quantity beside the computed one: `agrees` iff the largest difference is within the tolerance.

    Where the numbers have tolerances of their own, the difference and tolerance shown are those of the number whose
    difference is largest in units of its tolerance. Both are NaN where another count of numbers is printed, which
    `computed` says.
    """

    quantity: str
    printed: str
    computed: str
    largest_difference: float
    tolerance: float
    agrees: bool
    note: str

"""The expected result of a mask, score rule, position or normalizer, written by hand from its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Example(NamedTuple):
    """An expected result that was not computed by the code. Each file defines one as `EXAMPLE`, and a test checks it.

    Forms and the reference call the same rule. Without an example, a wrong formula would therefore pass every check.

    Attributes:
        settings: the settings as a user would write them.
        outcome: the result. For a mask, one string per query: `█` where it sees the key, and `·` where it does not. For
            a score rule, rows of changed logits; the last column is the extra logit if the rule has one. For a
            position, rows of the changed x, or of one changed head. For a normalizer, rows of weights.
        given: the input: rows of logits, of x or of a head; zeros by default.
        keys: rows of keys, for a score rule that computes scores from q and k, or for a position that changes keys.
        keys_after: the same keys after the position changed them; required if it treats keys and queries differently.
        heads: the number of heads.
        head: the head that the outcome shows.
        offset: the position of the first query.
        decimals: the number of correct decimals of the outcome.
        source: the source of the outcome, unless it was worked out by hand.
        outside: another example, from a paper or another implementation; or the reason why there is none.
    """

    settings: Mapping[str, Any]
    outcome: Sequence[Any]
    given: Sequence[Sequence[float]] = ()
    keys: Sequence[Sequence[float]] = ()
    keys_after: Sequence[Sequence[float]] = ()
    heads: int = 1
    head: int = 0
    offset: int = 0
    decimals: int = 12
    source: str = ""
    outside: Example | str = ""

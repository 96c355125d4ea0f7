"""The expected result of a rule, position or normalizer, written by hand from its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Example(NamedTuple):
    """An expected result, known without the code; each file defines one as `EXAMPLE`, and a test checks it.

    Forms and the reference both call the same rule, so without an example a wrong formula would pass every check.

    Attributes:
        settings: the settings as a user would write them.
        outcome: a mask: one string per query, `█` where it sees the key and `·` where it does not. A score rule: rows
            of logits after it, followed by the extra logit if it has one. A position: rows of x, or of one head, after
            it. A normalizer: rows of weights.
        given: rows of logits, or of x or a head, before it; zeros by default.
        keys: rows of keys, if a score rule pairs them with the given queries, or a position rotates keys.
        keys_after: those keys after a position; required if it treats keys and queries differently.
        heads: the number of heads.
        head: the head that is shown.
        offset: the position of the first query.
        decimals: the number of decimals of the outcome.
        source: the source of the outcome, if it is not drawn by hand.
        outside: the outcome of a paper or another implementation, or why there is none.
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

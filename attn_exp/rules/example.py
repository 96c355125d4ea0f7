"""What a rule, a position or a normalizer must give: a picture of it, written by hand from its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Example(NamedTuple):
    """One outcome of a member, known without its code; each file holds one as `EXAMPLE`, and a test holds it to that.

    Whoever checks a variant asks the same rule, so without this a wrong formula is right by definition.

    Attributes:
        settings: what a user would write.
        outcome: a mask: one string per query, `█` where it sees the key and `·` where it does not. A score rule: rows
            of logits after it, the extra logit last where it has one. A position: rows of x, or of one head, after
            it. A normalizer: rows of weights.
        given: rows of logits, or of x or a head, before it; zeros where nothing is said.
        keys: rows of keys, where a score rule pairs them with the queries that are given, or a position marks keys.
        keys_after: those keys after a position; a position that marks them otherwise than queries must show them.
        heads: how many heads there are.
        head: the head that is looked at.
        offset: the position of the first query.
        decimals: how many decimals of the outcome are written.
        source: whose outcome it is, where it is not drawn by hand.
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

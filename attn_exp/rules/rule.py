"""What masks and score rules have in common.

A rule is a frozen dataclass; its fields are its settings. It speaks about a `Grid`: index arrays that
broadcast against each other, so the same lines serve one scalar of a loop, a whole matrix, and one block of
a long sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attn_exp.config.fields import own_kinds, read_own
from attn_exp.config.kinds import Kind


class Rule:
    """What masks and score rules have in common.

    `relative` says that the answer, a mask's `allows` or a score rule's `bias`, depends on the head and `key - query`
    alone; forms that work by blocks then ask once per difference instead of once per place. `one_sequence` says that it
    knows tokens by number, so that queries and keys must be tokens of one sequence. `instead` names settings and the
    others that, where they are given, decide instead.
    """

    relative: ClassVar[bool] = False
    one_sequence: ClassVar[bool] = False
    instead: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    kinds: ClassVar[Mapping[str, Kind]]

    def __init_subclass__(cls) -> None:
        cls.kinds = own_kinds(cls)

    def __post_init__(self) -> None:
        """Hold what Python gives to the bounds on the fields, as the command line does."""
        read_own(self, self.kinds)

    def misfit(self, heads: int, rows: int, keys: int) -> str | None:
        """Say why the rule does not fit logits `[heads rows keys]`, in the user's words, or None where it does."""
        return None

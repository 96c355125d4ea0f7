"""How many heads a module has: by its own words for it, by the size of a head, or by which number makes it right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attn_exp.arrays import Array
from attn_exp.diagnosis.making import CONFIG, HEADS, SIZE, about_heads
from attn_exp.diagnosis.offer import plain
from attn_exp.errors import UserError


def head_count(
    module: Any, arrays: Mapping[str, Array], told: int | None, right: Callable[[int], bool], name: str
) -> int:
    """Return how many query heads a module has; `right` says whether it is right with so many, `told` is the user's.

    Raises:
        UserError: several numbers may be meant.
    """
    inner = arrays["W_q"].shape[1]
    numbers = {word: value for word, value in whole_numbers(module) if value > 0}
    known = next((value for word, value in numbers.items() if word in HEADS), told)
    if known is not None:
        return known
    divisors = [count for count in range(1, inner + 1) if fits(count, arrays)]
    spoken = {value for word, value in numbers.items() if about_heads(word) and value in divisors}
    spoken = spoken or {inner // value for word, value in numbers.items() if word in SIZE and inner % value == 0}
    others = [value for value in numbers.values() if value in divisors and value not in (1, inner)]
    tried = next((count for count in dict.fromkeys([*spoken, *others, *divisors]) if right(count)), None)
    if tried is not None or len(spoken) == 1:
        return spoken.pop() if tried is None else tried
    if len(set(others)) > 1:
        raise UserError(
            f"{name}: how many heads it has is not known; say head=N, or call it num_heads in the module: "
            f"{', '.join(sorted(word for word, value in numbers.items() if value in others))} may be meant"
        )
    return others[0] if others else 1


def whole_numbers(module: Any) -> Iterator[tuple[str, int]]:
    """Yield the whole numbers among the attributes of a module, and those of the configuration that it keeps."""
    for word, value in vars(module).items():
        if isinstance(value, int) and not isinstance(value, bool):
            yield plain(word), value
        elif plain(word) in CONFIG:
            fields = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
            yield from (
                (plain(str(field)), number)
                for field, number in fields.items()
                if isinstance(number, int) and not isinstance(number, bool)
            )


def fits(count: int, arrays: Mapping[str, Array]) -> bool:
    """Say whether the matrices can be cut into so many query heads, all of one size."""
    inner, shared = int(arrays["W_q"].shape[1]), int(arrays["W_k"].shape[1])
    return 0 < count <= inner and inner % count == 0 and shared % (inner // count) == 0

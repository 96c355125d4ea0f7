"""Tokens whose keys and values are in a cache already: only those after them have queries."""

from __future__ import annotations

from attn_exp.config.schema import Config
from attn_exp.errors import UserError


def check(config: Config, count: int) -> None:
    """Refuse a past of all of so many tokens, or beside a memory.

    Raises:
        UserError: which it is.
    """
    if config.past and config.embeddings.memory is not None:
        raise UserError(
            f"past={config.past} and embeddings.memory: keys are those of earlier tokens or of a memory; give one"
        )
    if config.past >= count > 0:
        most = f"choose at most {count - 1}" if count > 1 else "leave past out"
        raise UserError(f"past={config.past}: the input has {many(count, 'token')}, and one must be new; {most}")


def first_query(past: int, rows: int, keys: int) -> int:
    """Return which of the given queries is the first new one: all tokens may have theirs, or the new ones alone.

    Raises:
        UserError: neither is so.
    """
    if past and rows not in (keys, keys - past):
        new = f"{keys - past} for the new tokens" if keys > past else f"more than {past} keys"
        raise UserError(f"past={past}: {many(rows, 'query', 'queries')} and {many(keys, 'key')}; expected {new}")
    return past if rows == keys else 0


def names(tokens: tuple[str, ...] | int | None, past: int, keys: int) -> tuple[str, ...]:
    """Return the names of all tokens, past and new; names of the new ones alone leave the past without any.

    Raises:
        UserError: neither as many names as tokens, nor as new ones.
    """
    count = tokens if isinstance(tokens, int) else keys if tokens is None else len(tokens)
    if count not in (keys, keys - past):
        raise UserError(f"embeddings.tokens says {count}, but there are {many(keys, 'key')}, {past} of them past")
    if not isinstance(tokens, tuple):
        return tuple(f"x{place}" for place in range(keys))
    return (*(f"past{place}" for place in range(keys - count)), *tokens)


def many(count: int, one: str, several: str = "") -> str:
    """Return a number with its word."""
    return f"{count} {one if count == 1 else several or one + 's'}"

"""The tokenizer of a checkpoint: text to ids and the pieces that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attn_exp import machine
from attn_exp.errors import UserError, first_line

NAME = "tokenizer.json"
LEADING = ("\u0120", "\u2581")
"""How byte-level tokenizers and SentencePiece write the space before a word."""


def encoded(folder: Path, text: str, key: str) -> tuple[list[int], tuple[str, ...]]:
    """Return the ids of a text, with the marks that the model puts around it, and a name for each.

    The space before a word is shown as `_`; nothing is cut off or filled up.

    Raises:
        UserError: no tokenizer, one that cannot be read, or a text of no tokens.
    """
    tokenizer = opened(folder / NAME, key)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encoding = tokenizer.encode(text)
    if not encoding.ids:
        raise UserError(f"model.text={text!r}: no token; write some words")
    return list(encoding.ids), tuple(map(readable, encoding.tokens))


def readable(token: str) -> str:
    """Return a token with `_` for the space before it."""
    return f"_{token[1:]}" if token.startswith(LEADING) else token


def opened(path: Path, key: str) -> Any:
    """Open a tokenizer.json with the package `tokenizers`."""
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415 - few runs need it
    except ImportError as error:
        raise UserError(
            "model.text needs the package tokenizers: pip install 'attn-exp[models]'; or give model.tokens=[ids]"
        ) from error
    if not path.exists():
        raise UserError(f"{key}: {NAME} is not there; it reads model.text; or give model.tokens=[ids]")
    try:
        return Tokenizer.from_str(machine.read_text(path, 512 * 2**20))
    except Exception as error:  # the package raises plain Exceptions for what it cannot read
        raise UserError(f"{key}: {NAME} cannot be read ({first_line(error)})") from error

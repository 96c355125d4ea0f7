"""Split a text into tokens with a checkpoint's tokenizer.json; this module runs in a subprocess.

The package `tokenizers` is compiled, and a bad file can make it panic, abort its process, or hang; so the main
process only refers to `encode` by name, and does not import the package.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attn_exp import machine, processes
from attn_exp.errors import UserError, brief, first_line

os.environ["TOKENIZERS_PARALLELISM"] = "false"
try:
    from tokenizers import Tokenizer
except ImportError:
    Tokenizer = None  # type: ignore[assignment,misc] # reported when a text is encoded

MOST_BYTES = 512 * 2**20
MOST_MEMORY = 4 * 2**30
LEADING = ("\u0120", "\u2581")
"""How byte-level tokenizers and SentencePiece write the space before a word."""


def encode(request: Mapping[str, Any], tell: Callable[[str], None]) -> dict[str, list[Any]]:
    """Return `ids`, the token ids of a text with the model's special tokens, and `tokens`, their names.

    `request` has the `text`, the `path` of tokenizer.json, and the `key` that begins error messages. The space before a
    word is shown as `_`. Nothing is truncated or padded.

    Raises:
        UserError: the package is missing, or the file cannot be read.
    """
    if Tokenizer is None:
        raise UserError(
            "model.text needs the package tokenizers: pip install 'attn-exp[models]'; or give model.tokens=[ids]"
        )
    processes.limit_memory(MOST_MEMORY)
    try:
        tokenizer = Tokenizer.from_str(machine.read_text(Path(request["path"]), MOST_BYTES))
    except Exception as error:  # the package raises plain Exceptions for what it cannot read
        raise UserError(f"{request['key']} cannot be read ({first_line(error)})") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    try:
        encoding = tokenizer.encode(request["text"])
    except Exception as error:  # as above
        reason = brief(f"{type(error).__name__}: {first_line(error)}")
        raise UserError(f"{request['key']} cannot be used ({reason})") from error
    return {"ids": list(encoding.ids), "tokens": list(map(show_space, encoding.tokens))}


def show_space(token: str) -> str:
    return f"_{token[1:]}" if token.startswith(LEADING) else token

"""Kinds of values that hold several: lists, words, tokens, mappings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attn_exp.config.kinds import Kind, at_least, choice, refuse
from attn_exp.errors import UserError, shown, unknown


def words_of(*choices: str) -> Kind:
    """Take one of these words, or a list of them; each counts once."""

    def read(value: Any, key: str) -> tuple[str, ...]:
        words = [value] if isinstance(value, str) else TEXTS.read(value, key)
        if not words:
            refuse((), key, f"at least one of {', '.join(choices)}")
        return tuple(dict.fromkeys(choice(*choices).read(word, key) for word in words))

    return Kind(read, choices)


def read_texts(value: Any, key: str) -> tuple[str, ...]:
    """Read a list of words."""
    listed = isinstance(value, Sequence) and not isinstance(value, str)
    if not listed or any(word is None or isinstance(word, list | tuple | Mapping) for word in value):
        refuse(value, key, "a list of words, such as [a,b]")
    return tuple(shown(word) for word in value)


TEXTS = Kind(read_texts)


def words() -> Kind:
    """Take one word or several; `none` is no word at all."""

    def read(value: Any, key: str) -> tuple[str, ...]:
        several = (value,) if isinstance(value, str) else () if value is None else read_texts(value, key)
        return tuple(word for word in several if word != "none")

    return Kind(read)


TOKEN_FILES = (".txt", ".csv", ".tsv", ".json", ".npz")


def token_names() -> Kind:
    """Take a list of names, how many there are, or a file of them."""

    def read(value: Any, key: str) -> tuple[str, ...] | int | str:
        if isinstance(value, str) and value.lower().endswith(TOKEN_FILES):
            return value
        if isinstance(value, bool | float):
            refuse(value, key, "a list of names, how many, or a file of them")
        if not isinstance(value, int):
            return read_texts(value, key) or refuse(value, key, "at least one name")
        return int(at_least(1).read(value, key))

    return Kind(read)


def is_nested(text: str) -> bool:
    """Say whether a text is a list of lists, as somebody may write several sentences."""
    inside = text.strip().replace(" ", "")
    return inside.startswith("[") and inside.endswith("]") and ("[[" in inside or ",[" in inside)


def text_or_words() -> Kind:
    """Take a text, or a list of its words."""

    def read(value: Any, key: str) -> str | tuple[str, ...]:
        if isinstance(value, list | tuple):
            return read_texts(value, key)
        if isinstance(value, str) and is_nested(value):
            refuse(value, key, "one sentence; -m runs several, as in -m 'embeddings.text=the cat,a dog'")
        if isinstance(value, bool | Mapping) or value is None:
            refuse(value, key, "a text, such as 'she likes hot coffee', or a list of words")
        return str(value)

    return Kind(read)


def list_of(kind: Kind) -> Kind:
    """Take a list, each item of that kind; None is an empty one."""

    def read(value: Any, key: str) -> tuple[Any, ...]:
        items = () if value is None else value
        if not isinstance(items, list | tuple):
            refuse(value, key, "a list")
        return tuple(kind.read(item, f"{key}[{place}]") for place, item in enumerate(items))

    return Kind(read)


def list_or_none(kind: Kind) -> Kind:
    """Take a list, each item of that kind, or None."""
    several = list_of(kind)
    return Kind(lambda value, key: None if value is None else several.read(value, key))


def arrays() -> Kind:
    """Take arrays by their names; the problem checks both."""

    def read(value: Any, key: str) -> Any:
        return value if isinstance(value, Mapping) else refuse(value, key, f"names and arrays, such as {key}.W_q=[[1]]")

    return Kind(read)


def shape() -> Kind:
    """Take how many rows and columns a matrix has; axes before them make several such matrices."""

    def read(value: Any, key: str) -> tuple[int, ...]:
        sizes: tuple[int, ...] = list_of(at_least(1)).read(value, key)
        if len(sizes) < 2:
            raise UserError(f"{key}={list(sizes)}: expected rows and columns, such as [3,4]")
        return sizes

    return Kind(read)


def list_of_numbers(kind: Kind, expected: str) -> Kind:
    """Take a list of at least one number, each of that kind; said of the list as a whole."""

    def read(value: Any, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not value:
            refuse(value, key, expected)
        try:
            return tuple(kind.read(number, key) for number in value)
        except UserError:
            refuse(value, key, expected)

    return Kind(read)


def one_or_several(kind: Kind, expected: str) -> Kind:
    """Take one number of that kind, or a list of them, and return a tuple."""
    several = list_of_numbers(kind, expected)
    return Kind(lambda value, key: several.read(value if isinstance(value, list | tuple) else (value,), key))


def mapping_of(kind: Kind, *names: str) -> Kind:
    """Take a mapping that knows these keys only, each value of that kind."""

    def read(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(value, key, f"a mapping of {', '.join(names)}")
        for name in value:
            if name not in names:
                raise UserError(unknown(f"{key}.{name}", [f"{key}.{known}" for known in names], "setting"))
        return {name: kind.read(item, f"{key}.{name}") for name, item in value.items()}

    return Kind(read)


def read_names(value: Any, key: str) -> dict[str, Any]:
    """Read a mapping of names to settings; the registries check both."""
    if not isinstance(value, Mapping):
        refuse(value, key, "a name and its settings")
    return {str(name): {} if settings is None else settings for name, settings in value.items()}


NAMES = Kind(read_names)


def preset_name() -> Kind:
    """Take the name of a preset of figures; the usual one needs no look at the others."""

    def read(value: Any, key: str) -> str:
        if value == "paper":
            return "paper"
        from attn_exp.config.figure_presets import PRESETS  # noqa: PLC0415 - few name one

        return str(choice(*PRESETS).read(value, key))

    return Kind(read)

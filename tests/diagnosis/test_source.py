"""The code of a class is that which `inspect` finds, though its file is parsed once for all of them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest

from attn_exp.diagnosis.code import source


@dataclass(frozen=True)
class Decorated:
    """It begins with its decorator."""

    number: int = 1

    class Inner:
        """Its name has a point."""

        text = "class Decorated:"


def local() -> Any:
    class Inner:
        """It belongs to a function."""

    return Inner


class Another:
    """After all others."""


@pytest.mark.parametrize("kind", [Decorated, Decorated.Inner, local(), Another, pytest.FixtureLookupError])
def test_a_class_is_found_where_inspect_finds_it(kind: Any) -> None:
    assert source.source_of(kind).rstrip() == inspect.getsource(kind).rstrip()


def test_a_file_is_parsed_once_for_all_its_classes() -> None:
    source.places_of_classes.cache_clear()
    for kind in (Decorated, Another, Decorated.Inner):
        source.tree_of(kind)
    assert source.places_of_classes.cache_info().misses == 1


def test_what_is_not_written_in_python_is_no_code() -> None:
    with pytest.raises(TypeError):
        source.source_of(int)
    hidden = type("Hidden", (), {"__module__": __name__})
    with pytest.raises(OSError, match="Hidden"):
        source.source_of(hidden)

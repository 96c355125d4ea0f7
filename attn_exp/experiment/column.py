"""What readers are told of a number: its name, its unit, what it means, and which tables show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints


class Column(NamedTuple):
    """How tables show one field of a record; it stands beside the field: `error: Annotated[float, Column(...)]`.

    `place`: where it stands among the others, from the left.
    `name`: its head in a report; a terminal and a file have the name of the field.
    `unit`, `meaning`: for the legend of a report.
    `shown`: the tables that show it whatever it holds: `page`, `terminal`, `paper`, `sweep`.
    `summed`: whether a sweep sums it up over its points.
    `aside`: whether a page shows it only to those who ask for more.
    `deep`: whether it is left out where `report.depth=reading`: a student has no use for it.
    `exact`: whether it is an error itself, of which two digits say all.
    `drawn`: how early a sweep draws it, from 1; 0 = never.
    """

    place: int
    name: str
    unit: str = ""
    meaning: str = ""
    shown: tuple[str, ...] = ()
    summed: bool = False
    aside: bool = False
    exact: bool = False
    deep: bool = False
    drawn: int = 0

    @property
    def title(self) -> str:
        """The name, with its unit in brackets."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


def columns(*schemas: type) -> dict[str, Column]:
    """Return the column of each field of some records, in the order in which they are read."""
    hints = [pair for schema in schemas for pair in get_type_hints(schema, include_extras=True).items()]
    known = {name: column for name, hint in hints if (column := beside(hint)) is not None}
    return dict(sorted(known.items(), key=lambda pair: pair[1].place))


def at_depth(names: Mapping[str, Column], depth: str) -> dict[str, Column]:
    """Return the columns that a reader of this depth is shown."""
    return {name: column for name, column in names.items() if depth == "all" or not column.deep}


def beside(hint: Any) -> Column | None:
    """Return the column that stands beside a field, if one does."""
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Column)), None)

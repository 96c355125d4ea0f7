"""What readers are told of a number: its name, its unit, what it means, and which tables show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints


class Column(NamedTuple):
    """How tables show one field of a record; it stands beside the field: `error: Annotated[float, Column(...)]`.

    `place`: where it stands among the others, from the left.
    `unit`, `meaning`: for the legend of a report.
    `shown`: the tables that show it whatever it holds: `page`, `terminal`, `paper`, `sweep`.
    `summed`: whether a sweep sums it up over its points.
    `aside`: whether a page shows it only to those who ask for more.
    `deep`: whether it is left out where `report.depth=reading`: a student has no use for it.
    `exact`: whether it is an error itself, of which two digits say all.
    `drawn`: how early a sweep draws it, from 1; 0 = never.
    `fixed`: whether the settings decide it, so that other numbers of the input leave it as it is.
    `key`: the name of its field, which tells it from all others; `columns` sets it.
    `name`: its head in a report, which `columns` makes of the field's name; a terminal and a file have the key.
    """

    place: int
    unit: str = ""
    meaning: str = ""
    shown: tuple[str, ...] = ()
    summed: bool = False
    aside: bool = False
    exact: bool = False
    deep: bool = False
    drawn: int = 0
    fixed: bool = False
    key: str = ""
    name: str = ""

    @property
    def small(self) -> str:
        """The unit that stands in small letters behind the name; empty where the name ends in it."""
        return "" if self.name.split(" ")[-1] == self.unit else self.unit

    @property
    def title(self) -> str:
        """The name, with its unit in brackets unless the name ends in it."""
        return f"{self.name} ({self.small})" if self.small else self.name

    @property
    def words(self) -> str:
        """The name with its unit, as a sentence says them."""
        return f"{self.name} {self.small}" if self.small else self.name

    def measured_in(self, unit: str) -> Column:
        """Return the same column in another unit, which takes the place of its own in the name."""
        return self._replace(name=f"{self.name.removesuffix(f' {self.unit}')} {unit}", unit=unit)


SPOKEN = {
    "saturation_90": "share of rows with a weight above 0.90",
    "saturation_99": "share of rows with a weight above 0.99",
    "close": "share of close answers",
    "ulp": "error in ulp",
    "participation": "participation ratio",
    "kl": "KL divergence",
    "js": "JS divergence",
    "cosine_mean": "mean cosine",
    "cosine_least": "least cosine",
    "looks_back": "attention to earlier keys",
    "on_itself": "attention to itself",
    "on_previous": "attention to the previous token",
    "on_delimiters": "attention to delimiters",
    "induction": "induction score",
    "gini": "Gini index",
    "hoyer": "Hoyer sparsity",
    "keys_for_90": "number of keys with 90% of the weight",
    "logit_min": "smallest logit",
    "logit_max": "largest logit",
    "logit_std": "standard deviation of the logits",
    "empty_blocks": "share of empty blocks",
    "gradient_q": "norm of the query gradient",
    "gradient_k": "norm of the key gradient",
    "gradient_v": "norm of the value gradient",
    "log_sum_exp": "log-sum-exp",
    "log_sum_exp_error": "error of the log-sum-exp",
}
"""Noun phrases for metrics whose names do not read in a sentence."""


def spoken(name: str) -> str:
    """Return the name of a field as the head of a table, with spaces between its words."""
    return SPOKEN.get(name) or name.strip("_").replace("_", " ")


def columns(*schemas: type) -> dict[str, Column]:
    """Return the column of each field of some records, in the order in which they are read."""
    hints = [pair for schema in schemas for pair in get_type_hints(schema, include_extras=True).items()]
    known = {
        name: column._replace(key=name, name=spoken(name))
        for name, hint in hints
        if (column := beside(hint)) is not None
    }
    return dict(sorted(known.items(), key=lambda pair: pair[1].place))


def at_depth(names: Mapping[str, Column], depth: str) -> dict[str, Column]:
    """Return the columns that a reader of this depth is shown."""
    return {name: column for name, column in names.items() if depth == "all" or not column.deep}


def beside(hint: Any) -> Column | None:
    """Return the column that stands beside a field, if one does."""
    return next((extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Column)), None)

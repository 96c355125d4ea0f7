"""Requests: what a function should compute, in terms of the settings of a run.

`parse_request(["mask=causal", "layout=bthd"])` returns a `Request`. Settings in `HOW_CALLED`, such as the layout, say
how to call the function. All others are composed as for a run, and give the rules of the expected computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.config.compose import compose_config
from attn_exp.config.schema import Config
from attn_exp.errors import UserError
from attn_exp.experiment.library_conventions import convention
from attn_exp.experiment.variant import choose_multiplier
from attn_exp.problem.sources.words import list_words
from attn_exp.rules import make_all, make_masks, normalizer
from attn_exp.rules.grid import Grid
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import AllOf, AnyOf, Holes, Mask, Span
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.prefix import Prefix
from attn_exp.rules.normalizers.normalizer import Normalizer
from attn_exp.rules.normalizers.softmax import NORMALIZER as SOFTMAX
from attn_exp.rules.positions.position import Position
from attn_exp.rules.rules import Rules
from attn_exp.rules.scores.score import Score

HOW_CALLED = ("layout", "takes", "device", "dtype")
"""Settings that describe how the function expects its arrays; all others describe what it computes."""
IGNORE = "ignore="
"""Prefix of the command-line argument that names arguments to ignore."""


@dataclass(frozen=True)
class Request:
    """The settings of a check: rules and heads as in a run, and how the function expects its arrays.

    What to compute:

    - `align`: which query and key have the same position: the first ones ("top_left"), the last ones ("bottom_right"),
      or the last query and the last key that is not padding ("before_filler").
    - `blocks`: True in a mask means hidden.
    - `empty`: the output for a query that sees no key, such as "nan"; "any" accepts every output.
    - `tiled`: query head `h` uses key/value head `h % groups`.
    - `caps_last`: the softcap is applied after the mask.
    - `leaks`: the user named a library. Its own attention lets NaN at masked positions reach the output.
    - `digits`: significant bits of the softmax dtype.
    - `head`, `kv_head`: the numbers of heads; None if the user did not set them.
    - `size`: the only head size that a module accepts, if it was built from its class; else 0.

    How to call the function:

    - `layout`, `takes` (an array library), `dtype`: "" if the check must find them.
    - `device`: where PyTorch puts the arrays.
    - `few`: use only a few different sizes, because the function is compiled for each.

    How to report:

    - `typed`: the settings that the user wrote. `as_typed`: do not try any others.
    - `ignore`: arguments that need not be verified.
    - `tell`: called with a description of each call before it is made.
    """

    masks: tuple[Mask, ...] = ()
    scores: tuple[Score, ...] = ()
    positions: tuple[Position, ...] = ()
    normalizer: Normalizer = SOFTMAX
    scale: bool | float = True
    align: str = "top_left"
    blocks: bool = False
    empty: str = "any"
    tiled: bool = False
    caps_last: bool = False
    leaks: bool = False
    digits: int = 53
    head: int | None = None
    kv_head: int | None = None
    size: int = 0
    seed: int = 0
    layout: str = ""
    takes: str = ""
    device: str = "cpu"
    dtype: str = ""
    typed: frozenset[str] = frozenset()
    as_typed: bool = False
    few: bool = False
    ignore: tuple[str, ...] = ()
    tell: Callable[[str], None] | None = field(default=None, compare=False)

    def rules(self, size: int, rows: int, keys: int) -> Rules:
        return Rules(
            scale=choose_multiplier(self.scale, size), masks=self.masks, scores=self.scores, normalizer=self.normalizer,
            offset=self.find_offset(self.masks, rows, keys), bend_last=self.caps_last,
        )  # fmt: skip

    def find_offset(self, masks: tuple[Mask, ...], rows: int, keys: int) -> int:
        """Return the position of the first query among the keys, which `align` determines."""
        key_count = AllOf(masks).unpadded(keys) if self.align == "before_filler" else keys
        return 0 if self.align == "top_left" else key_count - rows

    @property
    def needs_first_key(self) -> bool:
        """Whether added masks must leave the first key visible, because a requested mask may hide all later ones."""
        return any(isinstance(mask, Padding | Filler | Prefix) for mask in self.masks)

    @property
    def is_causal(self) -> bool:
        return any(isinstance(mask, Causal) for mask in self.masks)

    @property
    def names_typed(self) -> frozenset[str]:
        """The names of the settings that the user typed: "head" for "head=3"."""
        return names_of_settings(self.typed)

    @property
    def batch(self) -> int:
        """The number of lengths in a padding mask, one for each example; 0 without such a mask."""
        return max((int(np.size(getattr(mask, "lengths", ()))) for mask in self.masks), default=0)

    @property
    def words(self) -> str:
        return " ".join(sorted(self.typed)) if self.typed else "plain attention"


def with_settings(request: Request, words: str) -> Request:
    """Return the request with the settings in `words` added; they replace settings of the same name."""
    settings = {word.partition("=")[0]: word for word in (*sorted(request.typed), *words.split())}
    calling_fields: dict[str, Any] = {
        name: settings.pop(name).partition("=")[2] for name in HOW_CALLED if name in settings
    }
    return replace(request, **read_request_fields(list(settings.values())), **calling_fields)


def names_of_settings(settings: Iterable[str]) -> frozenset[str]:
    return frozenset(setting.partition("=")[0].lstrip("+~") for setting in settings)


def read_request_fields(settings: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a request that the settings of a run determine.

    Raises:
        UserError: a check cannot use one of the settings.
    """
    config, names_typed = compose_settings(settings), names_of_settings(settings)
    if config.variant and "variant" in names_typed:
        raise UserError("a check compares one function with the definition; variant= belongs to a run")
    library, is_named = convention(config.convention), config.convention != "none"
    config_masks = make_masks(config.mask, config.mask_join, library.blocks, token_names(config))
    return {
        "masks": tuple(map(repeat_pattern, config_masks)),
        "scores": make_all("score", config.score),
        "positions": make_all("position", config.position),
        "normalizer": normalizer(config.normalizer),
        "scale": config.scale,
        "align": config.align or library.default_align,
        "blocks": library.blocks,
        "empty": library.empty if is_named else "any",
        "tiled": library.tiled,
        "caps_last": library.caps_last,
        "leaks": is_named,
        "digits": np.finfo(library.softmax_dtype or "float64").nmant + 1,
        "head": config.head if "head" in names_typed else None,
        "kv_head": config.kv_head if "kv_head" in names_typed else None,
        "seed": config.seed,
        "typed": frozenset(settings),
    }


def parse_request(words: Sequence[str]) -> Request:
    """Parse arguments into a request: the settings of a run, and how the function expects its arrays.

    Raises:
        UserError: an argument is not a setting of a run.
    """
    if any(word.startswith("timeout=") for word in words):
        raise UserError("timeout= works only in the command attn-exp check: in Python, nothing can stop your function")
    calling_fields: dict[str, Any] = {name: value for name, _, value in (word.partition("=") for word in words)
                           if name in HOW_CALLED}  # fmt: skip
    names_to_ignore = ",".join(word.removeprefix(IGNORE).strip("[]()") for word in words if word.startswith(IGNORE))
    calling_fields["ignore"] = tuple(filter(None, (name.strip(" '\"") for name in names_to_ignore.split(","))))
    settings = [word for word in words if word.partition("=")[0] not in HOW_CALLED and not word.startswith(IGNORE)]
    return Request(**read_request_fields(settings), **calling_fields)


def compose_settings(words: Sequence[str]) -> Config:
    """Compose the configuration from arguments; cache it unless plugins, the environment or files can change it.

    Without the cache, a check would take half as long again.
    """
    can_change = registry.OUTSIDE or any("${" in word or "hydra" in word for word in words)
    return compose_config(words, []) if can_change else compose_once(tuple(words))


@lru_cache(maxsize=64)
def compose_once(words: tuple[str, ...]) -> Config:
    return compose_config(words, [])


# Padding: a check uses sequences of its own lengths, so the user's pattern is repeated


@dataclass(frozen=True)
class Filler(Mask):
    """The user's padding mask, repeated for any number of keys: every query sees key `j` iff `kept[j % len(kept)]`."""

    kept: tuple[bool, ...]

    def unpadded(self, keys: int) -> int:
        return max((key + 1 for key in range(keys) if self.kept[key % len(self.kept)]), default=0)

    def allows(self, grid: Grid) -> Array | bool:
        return np.asarray(np.asarray(self.kept)[np.asarray(grid.key) % len(self.kept)])


@dataclass(frozen=True)
class Gap(Padding):
    """Padding in the middle: every query sees all keys except the one at `lengths[b]`.

    It replaces padding at the end if attention is causal: a causal mask already hides the end from all earlier queries,
    so padding there would test little.
    """

    def unpadded(self, keys: int) -> int:
        return keys

    def allows(self, grid: Grid) -> Array | bool:
        lengths = np.ravel(self.lengths)
        return np.asarray(grid.key != lengths[grid.batch if len(lengths) > 1 else 0])

    def span(self, batch: int, first: int, last: int, keys: int) -> Span:
        return Mask.span(self, batch, first, last, keys)


def token_names(config: Config) -> Sequence[str]:
    if config.embeddings.text is not None:
        return list_words(config.embeddings.text)
    return config.embeddings.tokens if isinstance(config.embeddings.tokens, tuple) else ()


def repeat_pattern(mask: Mask) -> Mask:
    """Return a `Filler` for a mask that lists the visible keys; return any other mask unchanged."""
    if isinstance(mask, AnyOf):
        return replace(mask, masks=tuple(map(repeat_pattern, mask.masks)))
    if not isinstance(mask, Holes) or not mask.kept:
        return mask
    # rotate the pattern so that it starts with a visible key: if there is only one token, it must see itself
    first_visible = mask.kept.index(True) if any(mask.kept) else 0
    return Filler((*mask.kept[first_visible:], *mask.kept[:first_visible]))

"""A file of YAML, read quickly: by libyaml where it is there, and large arrays past OmegaConf.

OmegaConf makes a node of every number and copies all of them a dozen times; a name stands for a large array while Hydra
composes, and the array itself is put back at the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from omegaconf import OmegaConf
from yaml import resolver

from attn_exp import machine
from attn_exp.config import large
from attn_exp.errors import UserError, brief, first_line, shown

MOST_BYTES = 256 * 2**20
"""The largest file of YAML that is read."""

DEEPEST = 500
"""Levels of lists in lists that are read."""

MOST_VALUES = 10_000_000
"""Values that anchors may make of a file."""

INSIDE = re.compile(r"\+{0,2}[^=]*[.\[]\d")
"""The key of a word that changes one number of an array."""

REFERENCE = re.compile(r"\$\{[^}]*[.\[]\d")
"""An interpolation that reads one number of an array."""

FLOAT = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""What Hydra reads as a float; YAML 1.1 itself takes 1e5 for a text."""

Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Reader(Safe):  # type: ignore[misc] # PyYAML comes without types
    """Reads YAML as OmegaConf does: plain values alone, dates as texts, and no key twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name and kind
        first: [(tag, form) for tag, form in forms if not tag.endswith((":timestamp", ":float"))]
        for first, forms in Safe.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = set[str]()
        for key, _ in node.value:
            if key.tag == resolver.BaseResolver.DEFAULT_SCALAR_TAG:
                if key.value in names:
                    message = f"found duplicate key {key.value}"
                    raise yaml.constructor.ConstructorError("in a mapping", None, message, key.start_mark)
                names.add(key.value)
        return super().construct_mapping(node, deep=deep)


Reader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


class Arrays(dict[str, Any]):
    """Large arrays by name; Hydra copies its sources, and all copies share these."""

    def __deepcopy__(self, memo: Any) -> Arrays:
        return self


class Source(FileConfigSource):
    """A folder of YAML as Hydra sees it. `arrays` gets the large arrays of its files, unless it is None."""

    def __init__(self, provider: str, path: str, arrays: Arrays | None) -> None:
        super().__init__(provider, path)
        self.arrays = arrays

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path)).resolve()
        if not path.exists():
            raise ConfigLoadError(f"Config not found : {path}")
        try:
            text = machine.read_text(path, MOST_BYTES)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from error
        header = self._get_header_dict(text[:512])
        return ConfigResult(self.provider, f"file://{self.path}", OmegaConf.create(self.values(path, text)), header)

    def values(self, path: Path, text: str) -> Any:
        """Return the plain values of a text, the names of large arrays in their place."""
        values = parsed(path, text)
        if not isinstance(values, dict | None):
            raise UserError(f"{path}: expected settings, such as head: 2; got {brief(shown(values), 40)}")
        values = {} if values is None else values
        return values if self.arrays is None or REFERENCE.search(text) else large.taken_out(values, self.arrays)


def parsed(path: Path, text: str) -> Any:
    """Return what a text of YAML holds; errors name its file and line."""
    try:
        check_depth(path, text)
        values = yaml.load(text, Loader=Reader)
        if "*" in text and (size := written_out(values, {})) > MOST_VALUES:
            raise UserError(
                f"{path}: its anchors repeat each other to {size:,} values; expected at most {MOST_VALUES:,}"
            )
        return values
    except UserError:
        raise
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise UserError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: {first_line(error)}") from error


def check_depth(path: Path, text: str) -> None:
    """Refuse lists in lists beyond any sense: libyaml would end the whole program on them."""
    if sum(map(text.count, "[{-:?")) <= DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, Loader=Reader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise UserError(f"{path}: the settings nest too deeply to be read")


def written_out(value: Any, known: dict[int, int]) -> int:
    """Return how many values there are once every anchor is written out where it is named; `known` holds what is."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in known:
        known[id(value)] = 0  # what holds itself is refused later, as nested without end
        known[id(value)] = sum(
            written_out(item, known) for item in (value.values() if isinstance(value, dict) else value)
        )
    return known[id(value)]


def change_a_part(words: Sequence[str]) -> bool:
    """Say whether words change one number of an array, which has to be among the settings for that."""
    return any(INSIDE.match(word.partition("=")[0]) for word in words)

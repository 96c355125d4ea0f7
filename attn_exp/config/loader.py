"""Hydra's YAML loader, for files that may be large and may come from somebody else.

Large files: libyaml reads them, where it is installed. OmegaConf would create a node for every number and copy all
nodes a dozen times. So `spelling.extract_arrays` replaces each large array with a name before Hydra composes the files,
and `compose.to_plain_values` puts the arrays back afterwards.

Untrusted files: nothing in them is run. A `hydra:` section could name callbacks, launchers and folders, and a
`_target_` could name any function; Hydra would call them. So files in users' own folders may contain neither, and no
interpolation in them reads the environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigLoadError, ConfigResult
from hydra.version import setbase
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers import oc
from yaml import resolver

from attn_exp import machine, own_code
from attn_exp.config import spelling
from attn_exp.config.choices import OUTSIDE_GROUPS, conf_dir, outside_choices, yaml_choices
from attn_exp.errors import UserError, brief, first_line, shown

MOST_BYTES = 256 * 2**20  # size limit of a YAML file
DEEPEST = 500  # maximum nesting depth
MOST_VALUES = 10_000_000  # maximum number of values after anchors are expanded

ARRAY_ELEMENT = re.compile(r"\+{0,2}[^=]*[.\[]\d")
"""The key of an argument that sets one element of an array, such as `projections.given.W_q.0.1`."""

ELEMENT_REFERENCE = re.compile(r"\$\{[^}]*[.\[]\d")
"""An interpolation that reads one element of an array, such as `${embeddings.vectors.0.1}`."""

FLOAT = re.compile(
    r"""^(?:[-+]?[0-9]+(?:_[0-9]+)*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9]+(?:_[0-9]+)*[eE][-+]?[0-9]+
    |\.[0-9]+(?:_[0-9]+)*(?:[eE][-+][0-9]+)?
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""",
    re.VERBOSE,
)
"""Floats as Hydra parses them; YAML 1.1 itself parses 1e5 as text."""
WHOLE = re.compile(r"^[-+]?(?:0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|0b[01_]+)$")
"""Whole numbers; unlike in YAML 1.1, `1:30` is not 90, and `010` is not 8."""

Safe: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Reader(Safe):  # type: ignore[misc] # PyYAML comes without types
    """A YAML loader with the rules of OmegaConf: plain values only, dates as strings, no duplicate keys."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name and kind
        first: [(tag, form) for tag, form in forms if not tag.endswith((":timestamp", ":float", ":int"))]
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


Reader.add_implicit_resolver("tag:yaml.org,2002:int", WHOLE, list("-+0123456789"))
Reader.add_implicit_resolver("tag:yaml.org,2002:float", FLOAT, list("-+0123456789."))


class Arrays(dict[str, Any]):
    """Large arrays by name; when Hydra deep-copies its config sources, all copies share these arrays."""

    def __deepcopy__(self, memo: Any) -> Arrays:
        return self


class Source(FileConfigSource):
    """A folder of YAML files from which Hydra reads.

    Names replace the large arrays of the files, and the arrays are added to `arrays`; None leaves them in place.
    """

    def __init__(self, provider: str, path: str, arrays: Arrays | None) -> None:
        super().__init__(provider, path)
        self.arrays = arrays

    def load_config(self, config_path: str) -> ConfigResult:
        path = Path(self.path, self._normalize_file_name(config_path)).resolve()
        if not path.exists():
            raise ConfigLoadError(f"Config not found : {path}")
        try:
            text = machine.read_text(path, MOST_BYTES).removeprefix("\ufeff")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path}: cannot be read ({getattr(error, 'strerror', '') or error})") from error
        header = self._get_header_dict(text[:512])
        return ConfigResult(
            self.provider, f"file://{self.path}", OmegaConf.create(self.read_values(path, text)), header
        )

    def read_values(self, path: Path, text: str) -> Any:
        values = parse_yaml(path, text)
        if not isinstance(values, dict | None):
            raise UserError(f"{path}: expected settings, such as head: 2; got {brief(shown(values), 40)}")
        if self.arrays is None or ELEMENT_REFERENCE.search(text):
            return values or {}
        return spelling.extract_arrays(values or {}, self.arrays)


def parse_yaml(path: Path, text: str) -> Any:
    try:
        check_depth(path, text)
        values = yaml.load(text, Loader=Reader)
        if "*" in text and (size := count_values(values, {})) > MOST_VALUES:
            raise UserError(f"{path}: its anchors expand to {size:,} values; expected at most {MOST_VALUES:,}")
        return values
    except UserError:
        raise
    except yaml.MarkedYAMLError as error:
        if "nesting depth" in (error.problem or ""):  # libyaml has its own limit
            raise UserError(f"{path}: {TOO_DEEP}") from error
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise UserError(f"{path}{line}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise UserError(f"{path}: {first_line(error)}") from error


TOO_DEEP = "the settings are nested too deeply to be read"


def check_depth(path: Path, text: str) -> None:
    """Refuse deep nesting, which would make libyaml crash the process."""
    if sum(map(text.count, "[{-:?")) <= DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, Loader=Reader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise UserError(f"{path}: {TOO_DEEP}")


def count_values(value: Any, counts: dict[int, int]) -> int:
    """Return the number of values with all anchors expanded; `counts` caches them by id."""
    if not isinstance(value, list | dict):
        return 1
    if id(value) not in counts:
        counts[id(value)] = 0  # a self-reference is refused later, as infinite nesting
        counts[id(value)] = sum(
            count_values(item, counts) for item in (value.values() if isinstance(value, dict) else value)
        )
    return counts[id(value)]


def sets_array_element(words: Sequence[str]) -> bool:
    """Return whether an argument sets one element of an array; if so, arrays must stay in place."""
    return any(ARRAY_ELEMENT.match(word.partition("=")[0]) for word in words)


VERSION_BASE = "1.3"
SHIPPED = ("hydra", "main", "schema")
"""Providers of the shipped YAML."""
# the key by which Hydra calls a function, and the resolver that reads the environment
TARGET, ENVIRONMENT = "_target_", "oc.env"


class Loader(ConfigLoaderImpl):
    """Hydra's config loader, which also checks each user file before it is merged.

    Names replace the large arrays of all files, and `arrays` contains these arrays by name. With `keep_arrays`, the
    arrays stay in place.
    """

    def __init__(self, config_search_path: ConfigSearchPath, keep_arrays: bool) -> None:
        super().__init__(config_search_path)
        self.arrays = Arrays()
        self.repository.sources = [
            Source(source.provider, source.path, None if keep_arrays else self.arrays)
            if source.scheme() == "file"
            else source
            for source in self.repository.sources
        ]

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        loaded = super()._load_single_config(default, repo)
        if loaded.provider in SHIPPED:
            self.check_not_shadowed(str(default.config_path))
        elif isinstance(loaded.config, DictConfig):
            check_file(loaded, str(default.config_path))
        return loaded

    def check_not_shadowed(self, name: str) -> None:
        """Refuse a user's file that has the same name as this shipped file, unless it is an exact copy.

        Hydra searches the shipped folder first, so it would silently ignore the user's file. If it searched the user's
        folder first, a well-known name could mean different things in different reports and commands.
        """
        for source in self.repository.sources:
            if source.provider not in SHIPPED and source.is_config(name):
                file, shipped = (Path(folder, f"{name}.yaml") for folder in (source.path, conf_dir()))
                if not (shipped.is_file() and machine.read(file) == machine.read(shipped)):
                    raise UserError(f"{file}: the shipped YAML of that name would be read instead; rename yours")


def check_file(loaded: ConfigResult, name: str) -> None:
    """Refuse a user file with forbidden contents, or an experiment that lacks `# @package _global_`.

    Raises:
        UserError: the file is refused; the message names it and the reason.
    """
    settings, file = loaded.config, f"{loaded.path.removeprefix('file://')}/{name}.yaml"
    if "hydra" in settings:
        raise UserError(f"{file}: a hydra: section is not allowed; remove it, or pass its settings on the command line")
    if names_a_target(OmegaConf.to_container(settings, resolve=False)):
        raise UserError(f"{file}: {TARGET} is not allowed: settings files cannot run code")
    if name.startswith("experiment/") and set(settings) == {"experiment"}:
        raise UserError(f"{file}: an experiment sets the whole run; write # @package _global_ as its first line")


def names_a_target(values: Any) -> bool:
    if isinstance(values, Mapping):
        return TARGET in values or any(map(names_a_target, values.values()))
    return isinstance(values, list) and any(map(names_a_target, values))


@contextmanager
def initialize_hydra(
    folders: Sequence[str], words: Sequence[str] = (), *, keep_arrays: bool = False
) -> Iterator[Hydra]:
    """Initialize Hydra for a block, with the shipped YAML, users' own folders, and choices without YAML.

    Names replace large arrays, unless an argument sets an element of one, or `keep_arrays` is set.
    """
    search_path = create_config_search_path(str(conf_dir()))
    # Hydra searches its own files first, then the shipped folder, the users' folders and the schema
    schema = search_path.get_path().pop()
    for folder in folders:
        search_path.append("command-line", f"file://{Path(os.path.abspath(folder))}")
    search_path.get_path().append(schema)
    setbase(VERSION_BASE)
    loader = Loader(search_path, keep_arrays or sets_array_element(words))
    hydra, previous = Hydra(task_name="attn_exp", config_loader=loader), GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = hydra
    try:
        with register_unlisted_choices(words, folders):
            yield hydra
    finally:
        GlobalHydra.instance().hydra = previous


@contextmanager
def register_unlisted_choices(words: Sequence[str], folders: Sequence[str]) -> Iterator[None]:
    """Register choices without YAML during a block: members from outside the package, and variants of user code.

    A variant of user code is defined by an argument such as `variant.mine.form=mine.py:attention`.
    """
    store = ConfigStore.instance()
    settings_of = {group: outside_choices(group) for group in OUTSIDE_GROUPS}
    settings_of["variant"] |= {name: {name: {}} for name in own_code.variants_of_code(words)}
    unlisted = [
        (group, name)
        for group, members in settings_of.items()
        for name in (members.keys() - set(yaml_choices(group, folders)) if members else ())  # usually there are none
    ]
    for group, name in unlisted:
        store.store(group=group, name=name, node=settings_of[group][name])
    try:
        yield
    finally:
        for group, name in unlisted:
            store.repo[group].pop(f"{name}.yaml")


@contextmanager
def guard_environment(words: Sequence[str]) -> Iterator[None]:
    """Refuse `${oc.env:NAME}` during a block, unless an argument contains it: files must not read the environment."""

    def refuse(*names: str) -> str:
        raise UserError(f"${{{ENVIRONMENT}:{names[0]}}}: only the command line may read the environment, not a file")

    if not any(ENVIRONMENT in word for word in words):
        OmegaConf.register_new_resolver(ENVIRONMENT, refuse, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver(ENVIRONMENT, oc.env, replace=True)

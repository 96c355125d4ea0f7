"""Hydra's loader of YAML, for files that somebody else may have written: values come in, and nothing is run.

A `hydra:` section could name callbacks, launchers and folders, and `_target_` any function at all; Hydra would call
them. So files of users' own folders may hold neither, and no interpolation in them reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigResult
from hydra.version import setbase
from omegaconf import DictConfig, OmegaConf
from omegaconf.resolvers import oc

from attn_exp import machine, own_code
from attn_exp.config import own_choices, yaml_file
from attn_exp.config.choices import conf_dir, written
from attn_exp.errors import UserError

VERSION_BASE = "1.3"
SHIPPED = ("hydra", "main", "schema")
"""Who provides the YAML that is not users' own."""
HYDRAS_OWN = ("hydra._internal.core_plugins.", "hydra_plugins.")
"""Where the classes live that Hydra's own sweepers and launchers name."""
TARGET, ENVIRONMENT = "_target_", "oc.env"


class Loader(ConfigLoaderImpl):
    """Hydra's loader, which checks each file of users' own before anything of it is merged.

    `arrays` holds the large arrays of what it has read, by the names that stand for them; `whole` leaves them in place.
    """

    def __init__(self, config_search_path: ConfigSearchPath, whole: bool) -> None:
        super().__init__(config_search_path)
        self.arrays = yaml_file.Arrays()
        self.repository.sources = [
            yaml_file.Source(source.provider, source.path, None if whole else self.arrays)
            if source.scheme() == "file"
            else source
            for source in self.repository.sources
        ]

    def _load_single_config(self, default: ResultDefault, repo: IConfigRepository) -> ConfigResult:
        loaded = super()._load_single_config(default, repo)
        if loaded.provider in SHIPPED:
            self.check_passed_over(str(default.config_path))
        elif isinstance(loaded.config, DictConfig):
            check_file(loaded, str(default.config_path))
        return loaded

    def check_passed_over(self, name: str) -> None:
        """Refuse a file of users' own with the name of shipped YAML that is asked for, unless it is a copy of it.

        Hydra reads the first file of a name and says nothing of the second. Were the user's the first, then names that
        everybody knows would mean something else in the reports and commands of some.
        """
        for source in self.repository.sources:
            if source.provider not in SHIPPED and source.is_config(name):
                file, shipped = (Path(folder, f"{name}.yaml") for folder in (source.path, conf_dir()))
                if not (shipped.is_file() and machine.read(file) == shipped.read_bytes()):
                    raise UserError(f"{file}: the shipped YAML has that name and would be read; give yours another")


def check_file(loaded: ConfigResult, name: str) -> None:
    """Refuse what no file of users' own may hold, and an experiment that would land in the wrong place.

    Raises:
        UserError: the file, and what is wrong with it.
    """
    settings, file = loaded.config, f"{loaded.path.removeprefix('file://')}/{name}.yaml"
    if "hydra" in settings:
        raise UserError(f"{file}: a hydra: section is not read here; leave it out, or write its settings as words")
    if names_a_target(OmegaConf.to_container(settings, resolve=False)):
        raise UserError(f"{file}: {TARGET} is not read here: names are looked up, and no file runs code")
    if name.startswith("experiment/") and set(settings) == {"experiment"}:
        raise UserError(f"{file}: an experiment sets the whole run; write # @package _global_ as its first line")


def names_a_target(values: Any) -> bool:
    """Say whether plain values name something to call, at any depth."""
    if isinstance(values, Mapping):
        return TARGET in values or any(map(names_a_target, values.values()))
    return isinstance(values, list) and any(map(names_a_target, values))


def check_composed(composed: DictConfig) -> None:
    """Refuse a configuration that names something to call, wherever it comes from.

    Raises:
        UserError: the setting.
    """
    values = OmegaConf.to_container(composed, resolve=False)
    assert isinstance(values, dict)
    hydras = values.pop("hydra")
    engines = [hydras.pop(name) or {} for name in ("sweeper", "launcher")]
    strange = any(not str(engine.pop(TARGET, HYDRAS_OWN[0])).startswith(HYDRAS_OWN) for engine in engines)
    if strange or any(map(names_a_target, (values, hydras, engines))):
        raise UserError(f"{TARGET} is not read here: names are looked up, and no setting runs code")


@contextmanager
def opened(folders: Sequence[str], words: Sequence[str] = (), *, whole: bool = False) -> Iterator[Hydra]:
    """Let Hydra find the shipped YAML, that of users' own folders, and choices that have none, as long as it lasts;
    with `whole` it sees large arrays, number by number."""
    search_path = create_config_search_path(str(conf_dir()))
    schema = search_path.get_path().pop()
    for folder in folders:
        search_path.append("command-line", f"file://{Path(os.path.abspath(folder))}")
    search_path.get_path().append(schema)
    setbase(VERSION_BASE)
    loader = Loader(search_path, whole or yaml_file.change_a_part(words))
    hydra, before = Hydra(task_name="attn_exp", config_loader=loader), GlobalHydra.instance().hydra
    GlobalHydra.instance().hydra = hydra
    try:
        with from_outside(words, folders):
            yield hydra
    finally:
        GlobalHydra.instance().hydra = before


@contextmanager
def from_outside(words: Sequence[str], folders: Sequence[str]) -> Iterator[None]:
    """Let groups have choices without YAML: members from outside the package, and variants whose form the words say."""
    store = ConfigStore.instance()
    nodes = {group: own_choices.nodes(group) for group in own_choices.GROUPS}
    nodes["variant"] |= {name: {name: {}} for name in own_code.variants_of_code(words)}
    new = [
        (group, name)
        for group, members in nodes.items()
        for name in (members.keys() - set(written(group, folders)) if members else ())  # mostly there are none
    ]
    for group, name in new:
        store.store(group=group, name=name, node=nodes[group][name])
    try:
        yield
    finally:
        for group, name in new:
            store.repo[group].pop(f"{name}.yaml")


@contextmanager
def environment(readable: bool) -> Iterator[None]:
    """Let `${oc.env:NAME}` be what it says only where `readable`; a file of somebody else's must not read it."""

    def refuse(*names: str) -> str:
        raise UserError(
            f"${{{ENVIRONMENT}:{names[0]}}}: the environment is read where you write so yourself, not from a file"
        )

    if not readable:
        OmegaConf.register_new_resolver(ENVIRONMENT, refuse, replace=True)
    try:
        yield
    finally:
        OmegaConf.register_new_resolver(ENVIRONMENT, oc.env, replace=True)

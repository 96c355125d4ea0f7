"""Compose `conf/` and the command line with Hydra, and return plain values.

From arguments such as `["mask=causal", "head=4"]`, `compose_dict_config` makes a DictConfig, `compose_values` nested
dictionaries, and `compose_config` a validated `Config`. Hydra and OmegaConf are imported only in this package, and in
`sweeps.expand`, which composes the axes of a sweep.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass, make_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import omegaconf
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from attn_exp import own_code, registry
from attn_exp.config.choices import ONE_CHOICE, choices, group_names
from attn_exp.config.hydra_errors import check_hydra_words, reword_any_error
from attn_exp.config.inputs import MEMORY
from attn_exp.config.loader import TARGET, guard_environment, initialize_hydra, names_a_target
from attn_exp.config.schema import Config, read_config
from attn_exp.config.spelling import Repeat, quote_for_hydra, quoted, restore_arrays
from attn_exp.errors import UserError, brief

NO_WORD = r"(?i:null|true|false|[+-]?[\d._]+)"  # a value that YAML reads as null, a boolean or a number, not as a name
SENTENCES = ("embeddings.text", "embeddings.memory.text", "model.text")
"""Settings whose values are sentences, in which commas and punctuation are literal."""
QUOTED = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""  # a string in single or double quotes
UNQUOTED = rf"""(?s:\s*(?:{QUOTED}|\[(?:[^\[\]'"]|{QUOTED})*\]|\{{.*\}}|\$\{{[^}}]*\}}|null)\s*)"""
"""A value of these settings that stays unquoted: a string in quotes, a list, a mapping, an interpolation or null."""


def compose_config(words: Sequence[str], folders: Sequence[str], *, typed: bool = True) -> Config:
    """Return the configuration for command-line arguments; `folders` are the user's own config folders.

    If the arguments were read from disk (`typed=False`), they can neither read the environment nor name code.

    Raises:
        UserError: an argument or file cannot be read, or a setting is invalid.
    """
    return read_config(compose_values(words, folders, typed=typed))


def compose_values(words: Sequence[str], folders: Sequence[str], *, typed: bool = True) -> dict[str, Any]:
    """Return the plain values of a configuration, before validation."""
    check_hydra_words(words)
    check_folders(folders)
    register_schema()
    with initialize_hydra(folders, words), guard_environment(words if typed else ()):
        check_choices(words, folders)
        settings = to_plain_values(compose_dict_config(words))
        return own_code.mark_named(settings, words) if typed else settings


def compose_dict_config(words: Sequence[str]) -> DictConfig:
    """Let Hydra compose the settings for these arguments, including its own section; Hydra must be initialized."""
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    spelled = [quote_sentence(quote_for_hydra(word)) for word in words]
    with reword_any_error():
        return hydra.compose_config("config", spelled, RunMode.RUN, from_shell=True, with_log_configuration=False)


def quote_sentence(word: str) -> str:
    key, equals, value = word.partition("=")
    if key.lstrip("+") not in SENTENCES or not equals or re.fullmatch(UNQUOTED, value):
        return word
    return f"{key}={quoted(value)}"


def check_folders(folders: Sequence[str]) -> None:
    for folder in folders:
        if not os.path.isdir(folder):  # unlike Path.is_dir, it accepts invalid names
            raise UserError(f"--config-dir {brief(folder)}: no such folder")
        if not os.access(folder, os.R_OK | os.X_OK):
            raise UserError(f"--config-dir {folder}: no permission to read it")


def register_schema() -> None:
    """Register every key and its default, so that Hydra rejects unknown keys; `read_config` checks the values."""
    ConfigStore.instance().store(name="schema", node=make_untyped(Config))


def make_untyped(schema: Any) -> Any:
    """Return a dataclass with the keys and defaults of a schema, accepting any value."""
    types = get_type_hints(schema)
    keys = [(declared.name, *make_untyped_key(types[declared.name], declared)) for declared in fields(schema)]
    # otherwise dataclasses generate a docstring from the signature, which doubles the time
    namespace = {"__doc__": schema.__doc__}
    return make_dataclass(schema.__name__, keys, kw_only=True, repr=False, eq=False, namespace=namespace)


def make_untyped_key(type_hint: Any, declared: Field[Any]) -> tuple[Any, Any]:
    """Return the loose type and the default of a key: a group, a mapping of names to groups, or a plain value."""
    if is_dataclass(type_hint):
        group = make_untyped(type_hint)
        return group, field(default_factory=group)
    if get_origin(type_hint) is Mapping and is_dataclass(get_args(type_hint)[1]):
        names = dict
        return names[str, make_untyped(get_args(type_hint)[1])], field(default_factory=dict)
    if declared.default_factory is not dataclasses.MISSING:
        return Any, field(default_factory=declared.default_factory)
    if isinstance(declared.default, tuple):
        default = list(declared.default)
        return Any, field(default_factory=lambda: list(default))
    return Any, omegaconf.MISSING if declared.default is dataclasses.MISSING else declared.default


def to_plain_values(composed: DictConfig) -> dict[str, Any]:
    """Convert composed settings to dictionaries, lists and plain values, without interpolations and Hydra's section.

    Raises:
        UserError: a setting contains `_target_`, which names code to call.
    """
    with reword_any_error():
        settings = resolve_own_values(composed)
    if names_a_target(settings):
        raise UserError(f"{TARGET} is not allowed: settings cannot run code")
    hydra = GlobalHydra.instance().hydra
    assert hydra is not None
    arrays = getattr(hydra.config_loader, "arrays", {})
    return {str(key): restore_arrays(value, arrays) if arrays else value for key, value in settings.items()}


def resolve_own_values(composed: DictConfig) -> dict[Any, Any]:
    """Resolve all interpolations, and leave out Hydra's own section, which they cannot read.

    Copying the values would double the time, so a second configuration temporarily becomes their parent; `_re_parent`
    makes `composed` their parent again.
    """
    ours = [key for key in composed if key != "hydra"]
    values = dict(composed.items_ex(resolve=False, keys=ours))
    try:
        settings = OmegaConf.to_container(DictConfig(values, flags={"no_deepcopy_set_nodes": True}), resolve=True)
    finally:
        composed._re_parent()
    assert isinstance(settings, dict)
    return settings


def repeat_command(overrides: Sequence[str], folders: Sequence[str]) -> Repeat:
    return Repeat(tuple(overrides), tuple(folders), own=registry.files())


def check_short_forms(words: Sequence[str]) -> None:
    """Refuse `embeddings.memory=VALUE` next to `embeddings.memory.KEY=VALUE`: OmegaConf would drop the former."""
    for word in words:
        key, _, value = word.partition("=")
        conflicting = next((other for other in words if other.lstrip("+").startswith(f"{MEMORY}.")), None)
        if key.lstrip("+") == MEMORY and conflicting is not None and not value.startswith(("{", "null")):
            raise UserError(f"{word} conflicts with {conflicting}; write {MEMORY}.tokens, .text, .vectors or .file")


def check_choices(words: Sequence[str], folders: Sequence[str] = ()) -> None:
    """Refuse invalid names and lists as choices of a group; Hydra's own error would not say which choice is wrong."""
    known_groups = group_names(folders)
    chosen = " ".join(word for word in words if word.lstrip("+").startswith("variant="))
    for name in {*own_code.variants_of_code(words)} - {*choices("variant", folders), *re.findall(r"[\w-]+", chosen)}:
        raise UserError(f"variant.{name}.form: list this variant too, as in variant=[matrix,{name}]")
    check_short_forms(words)
    for word in words:
        key, _, choice = word.partition("=")
        if not key:
            raise UserError(f"cannot read {word!r}; write key=value")
        choices_of_group = choices(key, folders) if key in known_groups else []
        if not choices_of_group:
            continue
        if key in ONE_CHOICE and choice.startswith("["):
            raise UserError(f"{word}: {key} takes one choice; to run several, sweep with -m {key}={choice.strip('[]')}")
        if any(re.fullmatch(NO_WORD, name.strip()) for name in choice.strip("[]").split(",")):
            raise UserError(
                f"{word}: expected the name of a choice, one of {', '.join(choices_of_group)}; ~{key} omits the group"
            )

"""What Hydra and OmegaConf found wrong, said in the user's words, in one line, and what the user perhaps meant.

A wrong setting may be the name of another library, a choice without its group, or a setting without its section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import (
    ConfigAttributeError,
    ConfigKeyError,
    GrammarParseError,
    InterpolationResolutionError,
    OmegaConfBaseException,
)
from yaml import MarkedYAMLError, YAMLError

from attn_exp import registry
from attn_exp.config.choices import choices, groups
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, first_line, unknown

BATCH = "a sweep, a point for each sequence: -m embeddings=words 'embeddings.text=one text,another'"
"""What a batch is here: its sequences never meet, so each is a point with tokens, maps and checks of its own."""

SAYS_OTHERWISE = {
    "batch": BATCH,
    "batch_size": BATCH,
    "encoder_hidden_states": "embeddings.memory",
    "kdim": "embeddings.memory.d_model",
    "past_key_values": "past",
    "temperature": "scale",
    "num_heads": "head",
    "n_heads": "head",
    "nhead": "head",
    "num_kv_heads": "kv_head",
    "is_causal": "mask=causal",
    "dim": "embeddings.d_model",
    "form": "variant",
    "softmax_scale": "scale",
}
"""What other libraries call a setting, and what it is called here."""
WIDTHS = ("dimension", "dim", "dimensions", "width", "size", "d", "embed_dim", "hidden_size", "n_embd")
"""What others call how many numbers the vector of a token has."""
ARRAY = re.compile(r"[Wb]_[qkvo]")
PLACE = re.compile(r"([\w.]+?)((?:\[\d+\])+)=(.*)", re.DOTALL)


@contextmanager
def in_users_words() -> Iterator[None]:
    """Let what Hydra and OmegaConf find wrong be a `UserError` of one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        ours = next((cause for cause in causes(error) if isinstance(cause, UserError)), None)
        raise (ours or UserError(worded(error))) from error


@contextmanager
def what_hydra_stumbles_over() -> Iterator[None]:
    """Let any error of Hydra's be a `UserError`: around its own work on a user's words and files, and nothing else.

    Hydra meets some words and some YAML with an assertion, an attribute that is missing or an OSError of its own.
    """
    with in_users_words():
        try:
            yield
        except (HydraException, OmegaConfBaseException, YAMLError, UserError):
            raise
        except RecursionError as error:
            raise UserError("the settings nest too deeply to be read") from error
        except Exception as error:
            raise UserError(f"cannot read the settings: {first_line(error)}") from error


def worded(error: Exception) -> str:
    """Return one line that names the word that was wrong, and the words that would be right."""
    for cause in causes(error):
        if isinstance(cause, MissingConfigException):
            return missing_choice(cause)
        if isinstance(cause, OverrideParseException):
            return unread(str(cause.override))
        if isinstance(cause, MarkedYAMLError) and cause.problem_mark:
            return f"{cause.problem_mark.name}, line {cause.problem_mark.line + 1}: {cause.problem}"
        if isinstance(cause, HydraException) and (message := reworded(str(cause))):
            return message
        if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(cause.parent_node, DictConfig):
            return missing_key(str(cause.full_key), cause.parent_node)
    merging = isinstance(error, HydraException) and ("Error merging override" in str(error) or "In '" in str(error))
    return unmerged(error) if merging else name_setting(error)


def name_setting(error: Exception) -> str:
    """Return the first line of an error, after the setting whose interpolation cannot be resolved."""
    for cause in causes(error):
        if isinstance(cause, InterpolationResolutionError):
            return f"{cause.full_key}: {first_line(cause)}"
        if isinstance(cause, GrammarParseError):
            return f"a value cannot be read: {first_line(cause)}"
    return first_line(error)


def reworded(message: str) -> str:
    """Say what a message of Hydra's that quotes one word means for its user; nothing for messages clear enough."""
    word = message.split("'")[1] if message.count("'") > 1 else ""
    if "Ambiguous value" in message or "requires --multirun" in message:
        return f"{word}: to run several values, sweep with -m {word}; for one list write brackets"
    if message.startswith("Multiple values for "):
        group = message.removeprefix("Multiple values for ").partition(".")[0]
        return f"{group} has a choice already; write {group}=... without the +"
    if "An item is already at" in message:
        return f"{word} has a value already; write {word}=... without the +"
    return ""


def missing_choice(error: MissingConfigException) -> str:
    """Name the choices of a group, and the one that was perhaps meant."""
    group, _, word = str(error.missing_cfg_file or "").rpartition("/")
    known = sorted(error.options or choices(group))
    return unknown(word, known, group) if group and known else first_line(error)


def unmerged(error: Exception) -> str:
    """Name the word or the file that does not fit the settings, and say why, as the innermost error does."""
    head = first_line(error)
    what = head.split("'")[1] + ".yaml" if head.startswith("In '") else head.removeprefix("Error merging override ")
    reason = next(line for line in reversed([str(cause).partition("\n")[0] for cause in causes(error)]) if line)
    return f"{what} does not fit the settings: {reason}"


def missing_key(key: str, parent: DictConfig) -> str:
    """Name the keys beside one that does not exist."""
    prefix = key.rpartition(".")[0]
    return unknown_setting(key, [f"{prefix}.{name!s}".lstrip(".") for name in parent if name != "hydra"])


def unknown_setting(key: str, beside: Sequence[str]) -> str:
    """Say that there is no such setting, and what was perhaps meant: one of those beside it, or one elsewhere."""
    meant = intended(key)
    return f"unknown setting {key!r}; did you mean {meant}?" if meant else unknown(key, beside, "setting")


def intended(key: str) -> str:
    """Return what a key that does not exist stands for elsewhere, or nothing."""
    section, _, name = key.rpartition(".")
    if section in ("projections", "projections.given") and ARRAY.fullmatch(name):
        return f"+projections.given.{name}=[[...]]"
    if section == "embeddings" and name in WIDTHS:
        return "embeddings.d_model"
    if section == "embeddings":
        return SAYS_OTHERWISE.get(name, name if name in {field.name for field in fields(Config)} else "")
    if section:
        return ""
    if name in SAYS_OTHERWISE:
        return SAYS_OTHERWISE[name]
    choice = next((f"{group}={name}" for group, names in groups().items() if name in names and name != "none"), "")
    return choice or home(name)


def home(name: str) -> str:
    """Return the whole name of a setting that stands in a section, or nothing."""
    hints = get_type_hints(Config)
    sections = {key: kind for key, kind in hints.items() if is_dataclass(kind)}
    return next(
        (f"{key}.{name}" for key, kind in sections.items() if name in {field.name for field in fields(kind)}), ""
    )


def unread(word: str) -> str:
    """Say how a word that Hydra's grammar does not read could be written."""
    place = PLACE.fullmatch(word)
    if place:
        key = place[1] if "." in place[1] else home(place[1]) or place[1]
        numbers = place[2].replace("[", ".").replace("]", "")
        return f"cannot read {word!r}; one number of an array is {key}{numbers}={place[3]}"
    letters = "key=[a,'välue']" if "=[" in word else "key='välue'"
    return f"cannot read {word!r}; write key=value, without spaces, other letters as {letters}"


def causes(error: BaseException | None) -> list[BaseException]:
    """Return the error and all that caused it, outermost first."""
    return [] if error is None else [error, *causes(error.__cause__ or error.__context__)]


# Settings of Hydra's own

HYDRAS_SWEEPS = ("hydra/sweeper=", "hydra/launcher=")
ENGINES = Path(__file__).parent.parent / "sweeps" / "engines"
ON_ENGINES = "sweeps run on sweep.engine; choose one of {engines}, or hydra/sweeper=basic for Hydra's own sweep"
FOLDERS = "runs and sweeps are written to output_dir; choose another with output_dir=FOLDER"
INSTEAD = {
    "hydra/launcher": ON_ENGINES,
    "hydra/sweeper": ON_ENGINES,
    "hydra.launcher": ON_ENGINES,
    "hydra.sweeper": ON_ENGINES,
    "hydra.run": FOLDERS,
    "hydra.sweep": FOLDERS,
    "hydra.job.chdir": "a run stays in the folder where it was started; paths of output_dir are relative to it",
    "hydra.searchpath": "name a folder of your own YAML with --config-dir FOLDER",
    "hydra.verbose": "there is no log to configure; progress goes to stderr",
}
"""What to use here instead of a setting of Hydra's own."""
NOTHING = "settings of hydra are not read here"


def check_hydra_words(words: Sequence[str]) -> None:
    """Refuse settings of Hydra's own that would change nothing here, and say what does what they ask for.

    With `hydra/sweeper=basic` or `hydra/launcher=basic`, Hydra runs a sweep itself and reads those of its sweeps.

    Raises:
        UserError: the first such word.
    """
    by_hydra = any(word.startswith(HYDRAS_SWEEPS) and word.endswith("=basic") for word in words)
    for word in words:
        key = word.partition("=")[0].lstrip("+~")
        is_read = by_hydra and key.startswith(("hydra/sweeper", "hydra/launcher", "hydra.sweep"))
        if key.startswith(("hydra.", "hydra/")) and "_target_" not in key and not is_read:
            engines = ", ".join(registry.names([str(ENGINES)], without=("engine",)))
            instead = next((said for start, said in INSTEAD.items() if key.startswith(start)), NOTHING)
            raise UserError(f"{word}: {instead.format(engines=engines)}")

"""Reword errors of Hydra and OmegaConf as one line for users, and suggest what the user may have meant.

An unknown setting may be another library's name for a setting (`num_heads` for `head`), a choice without its group
(`causal` for `mask=causal`), or a setting without its section (`tokens` for `embeddings.tokens`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
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

from attn_exp.config.choices import choices, groups
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, first_line, unknown

BATCH = "a sweep with one point per sequence: -m embeddings=words 'embeddings.text=one text,another'"
"""How to run a batch: its sequences are independent, so each is a point of a sweep, with its own tokens and checks."""

SYNONYMS = {
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
    "form": "variant",
    "softmax_scale": "scale",
    **dict.fromkeys(
        ("dim", "dimension", "dimensions", "width", "size", "d", "embed_dim", "hidden_size", "n_embd"),
        "embeddings.d_model",
    ),
}
"""Names in other libraries, and the settings that correspond to them here."""
ARRAY = re.compile(r"[Wb]_[qkvo]")  # the name of a projection or a bias
# an argument with an index in brackets, such as `projections.given.W_q[0][1]=2`, which Hydra cannot parse
BRACKETED = re.compile(r"([\w.]+?)((?:\[\d+\])+)=(.*)", re.DOTALL)


@contextmanager
def reword_hydra_errors() -> Iterator[None]:
    """Convert errors of Hydra and OmegaConf to a one-line `UserError`."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        user_error = next((cause for cause in error_chain(error) if isinstance(cause, UserError)), None)
        raise (user_error or UserError(describe_error(error))) from error


@contextmanager
def reword_any_error() -> Iterator[None]:
    """Convert any error to a `UserError`; use only around Hydra's own work on a user's arguments and files.

    On some arguments and YAML, Hydra raises an AssertionError, an AttributeError or an OSError.
    """
    with reword_hydra_errors():
        try:
            yield
        except (HydraException, OmegaConfBaseException, YAMLError, UserError):
            raise
        except RecursionError as error:
            raise UserError("the settings are nested too deeply to be read") from error
        except Exception as error:
            raise UserError(f"cannot read the settings: {first_line(error)}") from error


def describe_error(error: Exception) -> str:
    for cause in error_chain(error):
        if isinstance(cause, MissingConfigException):
            return describe_missing_choice(cause)
        if isinstance(cause, OverrideParseException):
            return describe_unparsed(str(cause.override))
        if isinstance(cause, MarkedYAMLError) and cause.problem_mark:
            return f"{cause.problem_mark.name}, line {cause.problem_mark.line + 1}: {cause.problem}"
        if isinstance(cause, HydraException) and (message := reword(str(cause))):
            return message
        if isinstance(cause, ConfigKeyError | ConfigAttributeError) and isinstance(cause.parent_node, DictConfig):
            return describe_missing_key(str(cause.full_key), cause.parent_node)
    is_merging = isinstance(error, HydraException) and re.match("Error merging override|In '", str(error))
    return describe_merge_error(error) if is_merging else name_setting(error)


def name_setting(error: Exception) -> str:
    for cause in error_chain(error):
        if isinstance(cause, InterpolationResolutionError):
            return f"{cause.full_key}: {first_line(cause)}"
        if isinstance(cause, GrammarParseError):
            return f"a value cannot be read: {first_line(cause)}"
    return first_line(error)


REWORDED = {
    r"(?s)(?:Ambiguous value|Sweep parameters)[^']*'([^']*)'": "{0}: to run several values, sweep with -m {0}; "
    "for a single list, write brackets",
    r"Multiple values for (\w+)": "{0} already has a choice; write {0}=... without the +",
    r"(?s).*An item is already at '([^']*)'": "{0} already has a value; write {0}=... without the +",
}
"""Hydra's messages that quote one argument, and their rewording."""


def reword(message: str) -> str:
    """Return a clearer message, or an empty string if there is none in `REWORDED`."""
    matches = ((re.match(pattern, message), rewording) for pattern, rewording in REWORDED.items())
    return next((rewording.format(match[1]) for match, rewording in matches if match), "")


def describe_missing_choice(error: MissingConfigException) -> str:
    group, _, word = str(error.missing_cfg_file or "").rpartition("/")
    options = sorted(error.options or choices(group))
    return unknown(word, options, group) if group and options else first_line(error)


def describe_merge_error(error: Exception) -> str:
    message = first_line(error)
    is_file = message.startswith("In '")
    source = message.split("'")[1] + ".yaml" if is_file else message.removeprefix("Error merging override ")
    reason = next(line for line in reversed([str(cause).partition("\n")[0] for cause in error_chain(error)]) if line)
    return f"{source} does not fit the settings: {reason}"


def describe_missing_key(key: str, parent: DictConfig) -> str:
    prefix = key.rpartition(".")[0]
    siblings = [f"{prefix}.{name!s}".lstrip(".") for name in parent if name != "hydra"]
    guess = guess_setting(key)
    return f"unknown setting {key!r}; did you mean {guess}?" if guess else unknown(key, siblings, "setting")


def guess_setting(key: str) -> str:
    section, _, name = key.rpartition(".")
    if section in ("projections", "projections.given") and ARRAY.fullmatch(name):
        return f"+projections.given.{name}=[[...]]"
    if section not in ("", "embeddings"):
        return ""
    choice = next((f"{group}={name}" for group, names in groups().items() if name in names and name != "none"), "")
    return SYNONYMS.get(name) or choice or find_setting(name)


def find_setting(name: str) -> str:
    """Return the full name of a setting of the run or of one of its sections, or an empty string."""
    sections = {f"{key}.": schema for key, schema in get_type_hints(Config).items() if is_dataclass(schema)}
    names = [prefix + each.name for prefix, schema in {"": Config, **sections}.items() for each in fields(schema)]
    return next((each for each in names if each.rpartition(".")[2] == name), "")


def describe_unparsed(word: str) -> str:
    match = BRACKETED.fullmatch(word)
    if match:
        key = match[1] if "." in match[1] else find_setting(match[1]) or match[1]
        indices = match[2].replace("[", ".").replace("]", "")
        return f"cannot read {word!r}; to set one number of an array, write {key}{indices}={match[3]}"
    example = "key=[a,'välue']" if "=[" in word else "key='välue'"
    return f"cannot read {word!r}; write key=value without spaces, and quote other characters, as in {example}"


def error_chain(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *error_chain(error.__cause__ or error.__context__)]


# Hydra's own settings, and what to use instead

ON_ENGINES = "choose where sweeps run with sweep.engine, such as process or dask; --help lists all engines"
FOLDERS = "runs and sweeps are written to output_dir; choose another with output_dir=FOLDER"
INSTEAD = {
    "hydra/launcher": ON_ENGINES,
    "hydra/sweeper": ON_ENGINES,
    "hydra.launcher": ON_ENGINES,
    "hydra.sweeper": ON_ENGINES,
    "hydra.run": FOLDERS,
    "hydra.sweep": FOLDERS,
    "hydra.job.chdir": "a run stays in the folder where it was started; paths of output_dir are relative to it",
    "hydra.searchpath": "add a folder of your own YAML with --config-dir FOLDER",
    "hydra.verbose": "there is no logging to configure; progress goes to stderr",
}


def check_hydra_words(words: Sequence[str]) -> None:
    """Refuse Hydra's own settings, which have no effect here, and name the replacement.

    Raises:
        UserError: an argument sets one of them.
    """
    for word in words:
        key = word.lstrip("+~")
        if key.startswith(("hydra.", "hydra/")):
            replacements = (replacement for prefix, replacement in INSTEAD.items() if key.startswith(prefix))
            advice = next(replacements, "Hydra's own settings are not supported")
            raise UserError(f"{word}: {advice}")

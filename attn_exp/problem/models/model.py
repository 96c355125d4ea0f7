"""The contract of a family of models: the checkpoints it reads, the structure of a layer, and the first layer's input.

Every field of config.json is checked once, before anything is computed. A missing field has the default of
`transformers`. A field that is not read is refused, unless it is known not to affect the result, or has the value that
is assumed here. So no future field is silently ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from attn_exp.arrays import Array, Arrays, Shape
from attn_exp.errors import UserError, brief, shown
from attn_exp.problem.models._checkpoint import CONFIG, Checkpoint

Config = Mapping[str, Any]
Shapes = Iterator[tuple[str, Shape | None]]
Supported = Mapping[str, tuple[Any, ...]]
"""The supported values of fields, the usual one first."""


@dataclass(frozen=True)
class Layer:
    """The attention of one layer: its input, its arrays, and its rules.

    - `x` `[t m]`: the input of W_q, W_k and W_v, after the norm if the layer has one before them.
    - `arrays`: W_q `[m h*d]`, W_k and W_v `[m g*d]`, W_o `[h*d m]`, and b_q, b_k, b_v, b_o if the layer adds biases.
    - `head`: the number of query heads; the width of W_k determines the number of key/value heads.
    - `scale`, `mask`, `position`: as in the settings of a run.
    """

    x: Array
    arrays: Arrays
    head: int
    scale: bool | float = True
    mask: Mapping[str, Any] = field(default_factory=dict)
    position: Mapping[str, Any] = field(default_factory=dict)


class Block(NamedTuple):
    """The names of the parts of a layer, and how they are combined.

    - `at`: what precedes the number of the layer in names, such as `layers.`.
    - `attention`: the matrices of queries, keys, values and output; or a fused one of the first three, and the output.
    - `norms`: the norms of attention and MLP.
    - `mlp`: the matrix before the activation, a gate matrix if there is one, and the last matrix.
    - `biases`: whether there are biases: of queries, keys and values; of the output; and of the MLP.
    - `norm_first`: whether a part is added as `h += part(norm(h))`; otherwise it is `h = norm(h + part(h))`.
    - `centred`: whether norms subtract the mean and add a bias.
    - `transposed`: whether matrices are stored as in `nn.Linear`, `[outputs inputs]`.
    """

    at: str
    attention: tuple[str, ...]
    norms: tuple[str, str]
    mlp: tuple[str, ...]
    biases: tuple[bool, bool, bool] = (True, True, True)
    norm_first: bool = True
    centred: bool = True
    transposed: bool = True


@dataclass(frozen=True)
class Model:
    """A family of models; each file defines one as `MODEL`.

    A checkpoint's `config` has been checked against `fields`: every field that is read is present and valid, and has
    the same name in all families.

    - `fields`: what config.json may contain, for each `model_type`.
    - `anchor`: the name of a tensor that every such checkpoint has; whatever precedes it is the prefix of all names.
    - `inputs`: yields the name, without that prefix, and the shape of each tensor that `embed` reads.
    - `embed`: returns the vectors `[t m]` that enter the first layer.
    - `block`: returns the structure of a layer.
    - `rules`: returns `scale`, `mask` and `position` of the layer with that index; `Layer` has defaults for them.
    - `takes`: `words` for token ids `[t]`, or `patches` for the patches `[n m]` or pixels `[c y x]` of an image.
    """

    fields: Mapping[str, Fields]
    anchor: str
    inputs: Callable[[Config], Shapes]
    embed: Callable[[Checkpoint, Array], Array]
    block: Callable[[Config], Block]
    rules: Callable[[Config, int], dict[str, Any]] = lambda config, number: {}
    takes: str = "words"


LEAST, MOST = 1e-38, 1e38
"""The range of positive numbers that float32 can hold and divide by; models compute in float32."""


class Kind(NamedTuple):
    """The values that a field may have: a description, and a test."""

    words: str
    fits: Callable[[Any], bool]


class Field(NamedTuple):
    """A field of config.json that is read.

    - `default`: its value in `transformers` if config.json lacks it.
    - `kind`: the values that it may have.
    - `names`: its names in config.json, separated by spaces; if empty, it has the same name as here.
    """

    default: Any
    kind: Kind
    names: str = ""


def is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 2**31


def is_number(value: Any, least: float = LEAST) -> bool:
    """Return whether a value is a number of at least `least` that float32 can hold."""
    return type(value) in (int, float) and least <= value < MOST


def or_null(kind: Kind) -> Kind:
    return Kind(f"{kind.words}, or null", lambda value: value is None or kind.fits(value))


SIZE = Kind("a whole number of at least 1", lambda value: is_whole(value, 1))
COUNT = Kind("a whole number of at least 0", lambda value: is_whole(value, 0))
EPSILON = Kind("a number above 0, such as 1e-05", lambda value: type(value) is float and is_number(value))
NUMBER = Kind("a number above 0", is_number)
AT_LEAST_1 = Kind("a number of at least 1", lambda value: is_number(value, 1))
SWITCH = Kind("true or false", lambda value: isinstance(value, bool))
TOKEN = Kind("a token id, or null", lambda value: value is None or is_whole(value, -1))
MAPPING = Kind("settings by name, or null", lambda value: value is None or isinstance(value, dict))

HARMLESS = (
    # origin
    "model_type architectures _name_or_path name_or_path transformers_version _commit_hash tokenizer_class "
    "transformers.js_config sentence_transformers sbert_ce_default_activation_function unsloth_version "
    "unsloth_fixed language name model_name license author created_date finetuning_task task_specific_params "
    "prefix problem_type label2id id2label num_labels _num_labels initializer_range "
    # execution, storage and training
    "_attn_implementation _attn_implementation_autoset attn_implementation return_dict use_return_dict torchscript "
    "use_bfloat16 tf_legacy_loss gradient_checkpointing output_attentions output_hidden_states output_past "
    "tie_encoder_decoder tie_weights_ tie_word_embeddings max_sequence_length model_max_length use_cache "
    "torch_dtype dtype "
    # text generation
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "encoder_repetition_penalty bad_words_ids num_return_sequences output_scores return_dict_in_generate "
    "forced_bos_token_id forced_eos_token_id remove_invalid_values exponential_decay_length_penalty "
    "suppress_tokens begin_suppress_tokens epsilon_cutoff eta_cutoff decoder_start_token_id eos_token_ids "
    "bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id "
)
"""Fields of any family that do not affect attention, separated by spaces."""

SUPPORTED: Supported = {
    "add_cross_attention": (False,),
    "chunk_size_feed_forward": (0,),
    "is_encoder_decoder": (False,),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
}
"""Fields of any family for which only these values are supported."""


@dataclass(frozen=True)
class Fields:
    """The fields that config.json may have, for one `model_type`.

    - `read`: the fields that the result depends on.
    - `check`: raises a `UserError` if fields contradict each other.
    - `same`: the fields for which only these values are supported; the first value is the default.
    - `harmless`: the names of fields that may have any value, separated by spaces.
    """

    read: Mapping[str, Field]
    check: Callable[[Config], None] = lambda config: None
    same: Supported = field(default_factory=dict)
    harmless: str = ""


def read_fields(config: Config, fields: Fields) -> dict[str, Any]:
    """Return the value of every field that is read, or its default if config.json lacks it.

    Raises:
        UserError: a field has an invalid value, or has two names with different values; sizes are inconsistent; or a
            field is neither read nor known to have no effect.
    """
    supported, harmless = {**SUPPORTED, **fields.same}, (HARMLESS + fields.harmless).split()
    checked = {name: values[0] for name, values in supported.items()} | {"model_type": config["model_type"]}
    names_read = set()
    for name, wanted in fields.read.items():
        names = wanted.names.split() or [name]
        checked[name] = find_value(config, names, wanted)
        names_read.update(names)
    for name in [name for name in config if name not in names_read]:
        if name in supported:
            require_supported(name, config[name], supported[name])
        elif name not in harmless and config[name] is not None:
            raise UserError(
                f"{CONFIG} says {format_field(name, config[name])}, which is not read here and may change the numbers; "
                "if it has no effect, remove it"
            )
    check_sizes(checked)
    fields.check(checked)
    return checked


def find_value(config: Config, names: list[str], wanted: Field) -> Any:
    present = [name for name in names if name in config]
    for name in present:
        require_kind(name, config[name], wanted.kind)
    if len(present) > 1 and config[present[0]] != config[present[1]]:
        raise UserError(f"{CONFIG} says both {' and '.join(format_field(name, config[name]) for name in present)}")
    return config[present[0]] if present else wanted.default


def require_kind(name: str, value: Any, kind: Kind) -> None:
    if not kind.fits(value):
        raise UserError(f"{CONFIG} says {format_field(name, value)}; expected {kind.words}")


def require_supported(name: str, value: Any, supported: tuple[Any, ...]) -> None:
    """Refuse a value that is not supported; true does not count as 1."""
    if not any(type(value) is type(choice) and value == choice for choice in supported):
        choices = " or ".join(shown(choice) for choice in supported)
        raise UserError(f"{CONFIG} says {format_field(name, value)}; only {choices} is supported")


def check_sizes(config: Config) -> None:
    heads, width, padding_id = config["num_attention_heads"], config["hidden_size"], config.get("pad_token_id")
    if width % heads and config.get("head_dim") is None:
        raise UserError(f"{CONFIG} says {heads} heads, which do not divide the width {width} of a token")
    if padding_id is not None and padding_id >= config["vocab_size"]:
        raise UserError(
            f"{CONFIG} says pad_token_id={padding_id}, but the vocabulary has {config['vocab_size']} tokens"
        )


def format_field(name: str, value: Any) -> str:
    try:
        return f"{brief(name, 60)}={brief(shown(value))}"
    except RecursionError:
        return f"{brief(name, 60)}=a deeply nested list"

"""Trained models, one family per file: a forward pass in NumPy gives a run the true input of any layer.

A setting with the value `model` comes from the model. `fill_in_layer` fills in these settings: x, the projections,
heads, scale, masks and positions of one layer. The result is a plain configuration. So no later code knows about
models, and a run can be repeated without the checkpoint. Weights stay on disk: a layer is read when the forward pass
reaches it, and the layers after the requested one are never read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp import registry
from attn_exp.arrays import Array
from attn_exp.config.inputs import FROM_MODEL, MODEL_SCALARS, Embeddings, Model, Projections
from attn_exp.config.schema import Config
from attn_exp.errors import UserError, brief, first_line, reason, unknown
from attn_exp.problem.files.numpy_files import read_npy
from attn_exp.problem.models import _checkpoint as checkpoints
from attn_exp.problem.models import model as contract
from attn_exp.problem.models._checkpoint import Checkpoint
from attn_exp.problem.models._parts import forward, list_layer_shapes
from attn_exp.problem.models.model import Layer, read_fields
from attn_exp.problem.problem import Pass

NAMES: tuple[str, ...] = registry.names(__path__, without=("model",))
INPUT_OPTIONS = {
    "text": "'model.text=the cat sat'",
    "tokens": "model.tokens=[ids]",
    "patches": "model.patches=FILE.npy",
}
"""How a user sets each input of a model."""


def fill_in_layer(config: Config, under_way: Pass) -> Config:
    """Return the configuration, with the settings that come from the model filled in from the requested layer.

    Raises:
        UserError: the checkpoint cannot be read, or does not accept the layer, the tokens or the text.
    """
    layer, tokens, title = read_layer(config.model, under_way)
    layer_settings = {"head": layer.head, "scale": layer.scale, "bias": "b_q" in layer.arrays}
    changed: dict[str, Any] = {
        name: layer_settings[name] for name in MODEL_SCALARS if getattr(config, name) == FROM_MODEL
    }
    changed["mask"] = replace_rules(config.mask, layer.mask)
    changed["position"] = replace_rules(config.position, layer.position)
    if FROM_MODEL in config.embeddings.source:
        names = tokens if config.embeddings.tokens is None else config.embeddings.tokens
        changed["embeddings"] = Embeddings(tokens=names, vectors=layer.x, memory=config.embeddings.memory)
    if config.projections.source == FROM_MODEL:
        arrays = {
            name: array for name, array in layer.arrays.items() if config.bias is not False or name.startswith("W")
        }
        changed["projections"] = Projections(source="identity", given={**arrays, **config.projections.given})
    # a setting that was not filled in, or that had this value before, was set by the user
    title += "".join(
        f"; {name} set by you"
        for name in (*MODEL_SCALARS, "mask", "position")
        if changed.get(name, ...) in (..., getattr(config, name))
    )
    return replace(config, title=config.title or title, **changed)


def replace_rules(group: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
    choices: dict[str, Any] = {}
    for name, settings in group.items():
        choices |= rules if name == FROM_MODEL else {name: settings}
    return choices


def begin_pass(settings: Model, under_way: Pass) -> None:
    """Open the model of a run, and read its input; no layer is computed yet.

    Raises:
        UserError: as in `fill_in_layer`.
    """
    family = find(str(settings.family))
    checkpoint = under_way.checkpoint = open_model(settings, family)
    ids, under_way.tokens = read_input(settings, family, checkpoint)
    under_way.layers, under_way.number = forward(family, checkpoint, ids), -1


def read_layer(settings: Model, under_way: Pass) -> tuple[Layer, tuple[str, ...], str]:
    """Return the requested layer, the names of the tokens, and a title for the run.

    The forward pass `under_way` continues if it has not passed the layer yet; otherwise a new pass begins.
    """
    model, under_way.model = under_way.model, None  # a failed pass cannot be continued
    if model != replace(settings, layer=0) or settings.layer < under_way.number:
        begin_pass(settings, under_way)
    checkpoint = under_way.checkpoint
    last = checkpoint.config["num_hidden_layers"] - 1
    if settings.layer > last:
        raise UserError(f"model.layer={settings.layer}: the model has {last + 1} layers, 0 to {last}")
    try:
        with np.errstate(all="ignore"):
            while under_way.number < settings.layer:
                under_way.layer = next(under_way.layers)
                under_way.number += 1
    except (OSError, MemoryError) as error:
        raise UserError(f"{checkpoint.key}: cannot be read ({first_line(error)})") from error
    under_way.model = replace(settings, layer=0)
    layer = under_way.layer
    check_finite(layer, settings)
    tokens = under_way.tokens or ("class", *(f"patch {number}" for number in range(1, len(layer.x))))
    folder = Path(str(settings.path)).name or Path(str(settings.path)).resolve().name
    return (
        layer,
        tokens,
        f"Layer {settings.layer} of the {settings.family} model {folder}, whose layers are 0 to {last}",
    )


def check_finite(layer: Layer, settings: Model) -> None:
    """Refuse a layer with NaN or infinity: the file is damaged, or numbers overflowed in the forward pass."""
    for meaning, array in {"its input": layer.x, **layer.arrays}.items():
        if not np.isfinite(array).all():
            raise UserError(
                f"model.path={settings.path}: layer {settings.layer}: {meaning} holds numbers that are not finite"
            )


def find(name: str) -> contract.Model:
    if name not in NAMES:
        raise UserError(unknown(name, NAMES, "model"))
    return registry.constant(__name__, name, contract.Model)


def open_model(settings: Model, family: contract.Model) -> Checkpoint:
    if not settings.path:
        raise UserError(f"model={settings.family} needs model.path=DIR; {checkpoints.EXPECTED}")
    checkpoint = checkpoints.open_checkpoint(Path(settings.path), f"model.path={brief(settings.path)}")
    model_type = checkpoint.config.get("model_type")
    if not isinstance(model_type, str) or model_type not in family.fields:
        hint = next((f"; choose model={name}" for name in NAMES if model_type in list(find(name).fields)), "")
        raise UserError(
            f"{checkpoint.key} has model_type={brief(str(model_type))}; "
            f"model={settings.family} reads {', '.join(family.fields)}{hint}"
        )
    try:
        config = read_fields(checkpoint.config, family.fields[model_type])
    except UserError as error:
        raise UserError(f"{checkpoint.key}: {error}") from error
    checkpoint = checkpoints.find_prefix(replace(checkpoint, config=config), family.anchor)
    checkpoint.check(family.inputs(config))
    checkpoint.check(list_layer_shapes(config, family.block(config)))
    return checkpoint


def read_input(settings: Model, family: contract.Model, checkpoint: Checkpoint) -> tuple[Array, tuple[str, ...]]:
    """Return the input of the model, and a name for each token; the patches of an image are named later.

    Raises:
        UserError: there is no input, more than one, or one that the family does not accept.
    """
    given = [name for name in INPUT_OPTIONS if getattr(settings, name) is not None]
    accepted = ("patches",) if family.takes == "patches" else ("text", "tokens")
    if len(given) != 1 or given[0] not in accepted:
        listed = " and ".join(f"model.{name}" for name in given) or "none"
        raise UserError(
            f"model={settings.family} takes {' or '.join(INPUT_OPTIONS[name] for name in accepted)}; got {listed}"
        )
    if settings.patches is not None:
        return read_patches(settings.patches), ()
    count = checkpoint.config["vocab_size"]
    vocabulary = f"but the model knows {count} ids, 0 to {count - 1}"
    if settings.tokens is not None:
        if max(settings.tokens) >= count:
            raise UserError(f"model.tokens: token id {max(settings.tokens)}, {vocabulary} ({checkpoint.key})")
        return np.array(settings.tokens), tuple(map(str, settings.tokens))
    ids, tokens = checkpoints.encode_text(checkpoint.folder, str(settings.text), checkpoint.key)
    unknown_index = next((index for index, number in enumerate(ids) if number >= count), None)
    if unknown_index is not None:
        description = f"{brief(tokens[unknown_index])} has the token id {ids[unknown_index]}, {vocabulary}"
        raise UserError(f"{checkpoint.key}: its {checkpoints.TOKENIZER} belongs to another model: {description}")
    return np.array(ids), tokens


def read_patches(path: str) -> Array:
    """Read patches `[n m]` or pixels `[c y x]` from a .npy file."""
    key = f"model.patches={brief(path)}"
    try:
        array = read_npy(Path(path))
    except (OSError, ValueError, MemoryError) as error:
        raise UserError(f"{key}: cannot be read ({reason(error)}); expected a .npy file of numbers") from error
    if array.dtype.kind not in "iuf" or array.ndim not in (2, 3) or not array.size:
        raise UserError(f"{key}: expected patches [n,m] or pixels [c,y,x], as real numbers in a .npy file")
    return array

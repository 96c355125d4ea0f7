"""Callable layers, and how to build them from PyTorch, Flax, Haiku, Equinox, Keras or plain Python objects."""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.libraries import library, wanted
from attn_exp.diagnosis.asking.names import every_parameter, plain, source_with_helpers
from attn_exp.diagnosis.bind.construct import build, constructor_arguments, run_foreign
from attn_exp.diagnosis.bind.sizes import Sizes, is_of_a_library, modules_of
from attn_exp.errors import UncalledError


@dataclass(frozen=True)
class Layer:
    """A user's layer, bound to example inputs.

    Attributes:
        inputs: the axes of each array by role, such as `{"x": "btm"}` or `{"q": "btm", "k": "bsm", "v": "bsm"}`:
            b batch, t queries, s keys, m width, h heads, d head size, c channels (instead of m in `bct` and `bchw`).
            Roles are `x` (self-attention), `memory` (cross-attention), `q`, `k` and `v`.
        sizes: the known fixed sizes: m, h, g (key/value heads), d, r (rotated dimensions per head).
        call: takes arrays of the library and keyword values, both by role, and returns the layer's result.
        convert: converts a NumPy array to an array of the library, in float64 if possible.
        keywords: the argument for each other role: mask, padding, causal, positions, cache and the like.
        defaults: the default values of these arguments, by role.
        said: the extra arguments of the call, as shown to the user.
        made: the constructor call.
        settings: the constructor's arguments and the fields of its configuration.
        unknown: optional arguments of unknown meaning.
        lengths: sizes in the trial call: b, t, s; for images also h and w (rows and columns), where t = h w.
        weights: weight matrices by role, from a factory.
        mask_true: the mask polarity, from a factory: True `attends` or `hides`, or the mask is `added`.
        dropout_error: the error when the class was built with dropout.
        is_fixed: whether the number of tokens cannot change.
        widths: the width of each role, if it differs from m.
        fixed: the arrays of unknown role that a factory passes.
        axes_told: False if the layer comes from a factory that names no layout.
    """

    name: str
    library: str
    target: Any
    inputs: Mapping[str, str]
    sizes: Mapping[str, int]
    call: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
    convert: Callable[[Array], Any]
    keywords: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    said: str = ""
    made: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    lengths: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    mask_true: str = ""
    dropout_error: str = ""
    is_fixed: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    axes_told: bool = True


def as_laid_out(call: Callable[..., Any], said: Any, layout: str, shape: Shape) -> Callable[..., Any]:
    """Return a call whose output has the layout of its input, of a shape: tokens in columns may become rows."""
    if layout != "ct" or getattr(said, "shape", ()) != shape[::-1]:
        return call
    return lambda inputs, keywords: call(inputs, keywords).T


# Build, prepare and call a layer

METHODS = ("forward", "call", "__call__", "attention", "self_attention", "attend", "apply", "compute", "run")
"""Common names of the method that computes attention, in search order."""
HOMES = {"linen": "flax.linen.", "nnx": "flax.nnx.", "haiku": "haiku.", "equinox": "equinox.", "keras": "keras.",
         "torch": "torch.nn."}  # fmt: skip
"""Kinds of layers, and the module that defines the base class of each."""


@dataclass
class Runner:
    """A callable layer: `forward` has its signature, `run` calls it, `finish` fills its parameters once.

    `finish` runs after the first call, which creates lazy parameters. `target` owns the parameters; a `bare` layer has
    none: it takes q, k and v as heads, and has no projections.
    """

    target: Any
    forward: Callable[..., Any]
    run: Callable[..., Any]
    finish: Callable[[], Any] = tuple
    bare: bool = False


def kind_of(one: Any) -> str:
    homes = [f"{base.__module__}." for base in inspect.getmro(one if inspect.isclass(one) else type(one))]
    return next((kind for kind, home in HOMES.items() if any(name.startswith(home) for name in homes)), "plain")


def library_of_kind(kind: str, one: Any) -> str:
    backend = str(sys.modules["keras"].backend.backend()) if kind == "keras" else ""
    return {"keras": backend, "torch": "torch", "plain": ""}.get(kind, "jax") or wanted(one)[0]


@dataclass(frozen=True)
class BuildPlan:
    """How to make a layer: by calling a class with arguments, or by copying an object; `method` may be empty."""

    kind: str
    library: str
    owner: Any
    arguments: Mapping[str, Any]
    is_class: bool
    method: str = ""
    seed: int = 0
    wide: bool = True


def plan_build(owner: Any, method: str, sizes: Sizes | None, seed: int) -> BuildPlan:
    """Plan how to build a class with these sizes, or how to copy an object.

    Raises:
        UncalledError: the class requires an argument whose meaning is not known.
    """
    kind = kind_of(owner)
    name = library_of_kind(kind, owner)
    is_class = inspect.isclass(owner)
    arguments = constructor_arguments(owner, sizes, name) if is_class and sizes is not None else {}
    if is_class and kind == "keras" and any(one.kind is one.VAR_KEYWORD for one in every_parameter(owner, "")):
        arguments["dtype"] = library(name).widest
    return BuildPlan(kind, name, owner, arguments, is_class, method, seed)


def make_runner(plan: BuildPlan) -> Runner:
    """Build a new instance of the layer, or copy it, and prepare it for calls.

    Raises:
        UncalledError: the layer could not be built or copied, or has no method that computes attention.
    """
    if plan.kind == "haiku":
        return run_haiku(plan)
    target = (
        build(plan.owner, plan.arguments, plan.seed)
        if plan.is_class
        else run_foreign(lambda: copy.deepcopy(plan.owner), f"{type(plan.owner).__name__} cannot be copied")
    )
    if plan.kind == "linen":
        return run_linen(plan, target)
    target = PREPARE[plan.kind](target, plan.is_class, plan.wide) or target
    method = plan.method or ("call" if plan.kind == "keras" else "")
    forward = getattr(target, method) if method else method_of(target)
    run = forward if plan.method or plan.kind == "plain" else target
    fill = {"keras": fill_keras, "torch": fill_torch}.get(plan.kind, bool)
    return Runner(target, forward, run, partial(fill if plan.is_class else bool, target), not has_parameters(target))


def method_of(target: Any) -> Callable[..., Any]:
    """Return the method that computes attention.

    Raises:
        UncalledError: no method has a name that suggests attention.
    """
    known = dir(target)  # `__getattr__` may raise anything
    names = [*(name for name in METHODS if name in known), *(name for name in known if re.match("[^_].*att|att", name))]
    found = next(filter(callable, (getattr(target, name, None) for name in names)), None)
    if found is None:
        raise UncalledError(f"no method of {type(target).__name__} has a name that suggests attention; "
                            "name one as Class.method")  # fmt: skip
    return found


# Parameters of new layers: all zeros or all ones would hide mistakes


def fill_if_flat(array: Array, place: int) -> Array:
    """Replace an array that is all zeros, all ones, nearly zero or uninitialized memory with random numbers."""
    rng = np.random.default_rng([place, array.size])
    noise = rng.standard_normal(array.shape) * (array.shape[-1] ** -0.5 if array.ndim > 1 else 0.5)
    uses_memory = not (np.isfinite(array) & (np.abs(array) < 1e6)).all()
    is_tiny = array.size and np.abs(array).max() < 1e-3  # otherwise a residual drowns its effect
    is_flat = uses_memory or is_tiny or (array.size and array.flat[0] in (0, 1) and (array == array.flat[0]).all())
    filled = noise + (0 if uses_memory or is_tiny else array.flat[0])
    return np.asarray(filled).astype(array.dtype) if is_flat else array


def prepare_torch(target: Any, fresh: bool, wide: bool) -> None:
    torch = sys.modules["torch"]
    if wide:
        target.double()
    target.eval()
    leave_out_norms(target)
    for module in target.modules():
        for name, value in list(vars(module).items()) if wide else []:
            if torch.is_tensor(value) and value.is_floating_point():  # neither a parameter nor a buffer
                setattr(module, name, value.detach().double())
    if fresh:
        fill_torch(target)


def leave_out_norms(target: Any) -> None:
    for path, module in target.named_modules():
        is_of_one = OF_QUERIES.fullmatch(plain(path.rpartition(".")[2])) and "norm" in type(module).__name__.lower()
        if is_of_one or type(module) is sys.modules["torch"].nn.GroupNorm:
            vars(module)["forward"] = leave_out


OF_QUERIES = re.compile("(q|k|query|key)(layer)?(norm|ln)|(norm|ln)(q|k|query|key)")
"""Names of norms of queries or keys."""


def leave_out(x: Any) -> Any:
    """Return the input of a norm unchanged: a group norm mixes tokens, and only the attention is checked."""
    return x


def fill_torch(target: Any) -> None:
    torch = sys.modules["torch"]
    with torch.no_grad():
        for place, parameter in enumerate(target.parameters()):
            if not torch.nn.parameter.is_lazy(parameter):
                parameter.copy_(torch.from_numpy(fill_if_flat(parameter.detach().cpu().numpy(), place)))


def prepare_jax(target: Any, fresh: bool, _wide: bool) -> Any:
    if kind_of(target) == "nnx":
        nnx = sys.modules["flax.nnx"]
        target.eval()
        graph, state = nnx.split(target)
        return nnx.merge(graph, widen_tree(state, fresh))
    return sys.modules["equinox"].nn.inference_mode(widen_tree(target, fresh))


def widen_tree(tree: Any, fresh: bool) -> Any:
    jax, into = sys.modules["jax"], library("jax")
    places = iter(range(10**6))

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            return leaf
        array = np.asarray(leaf)
        return into.into(fill_if_flat(array, next(places)) if fresh else array, into.widest)

    return jax.tree_util.tree_map(change, tree)


def prepare_plain(target: Any, fresh: bool, wide: bool, depth: int = 3) -> None:
    torch = sys.modules.get("torch")
    fields = target if isinstance(target, dict) else getattr(target, "__dict__", {})
    for place, (name, value) in enumerate(list(fields.items())):
        if kind_of(value) == "torch":
            prepare_torch(value, fresh, wide)
        elif depth and (isinstance(value, dict) or type(value).__module__ == type(target).__module__):
            prepare_plain(value, fresh, wide, depth - 1)
        elif torch is not None and torch.is_tensor(value) and value.is_floating_point() and wide:
            fields[name] = value.detach().double()
        else:
            is_bias = (
                isinstance(value, np.ndarray) and value.dtype == np.float64 and re.match("(?i)b_?.?$|.*bias", str(name))
            )
            trains = value is True and plain(str(name)) in ("training", "istraining", "train")
            fields[name] = fill_if_flat(value, place) if is_bias and fresh else False if trains else value


PREPARE = {
    "torch": prepare_torch, "plain": prepare_plain, "nnx": prepare_jax, "equinox": prepare_jax,
    "keras": lambda target, *_: target,
}  # fmt: skip


def fill_keras(target: Any) -> None:
    for place, weight in enumerate(target.trainable_weights):
        weight.assign(fill_if_flat(np.asarray(sys.modules["keras"].ops.convert_to_numpy(weight)), place))


def run_pure(init: Callable[..., Any], apply: Callable[..., Any]) -> Callable[..., Any]:
    made = list[Any]()

    def run(*places: Any, **named: Any) -> Any:
        made.extend([init(*places, **named)] if not made else [])
        return apply(made[0], *places, **named)

    return run


def run_linen(plan: BuildPlan, module: Any) -> Runner:
    key, method = sys.modules["jax"].random.PRNGKey(plan.seed), plan.method or "__call__"

    def init(*places: Any, **named: Any) -> Any:
        made = module.init({"params": key, "dropout": key}, *places, **named, method=method)
        return {**made, "params": widen_tree(made.get("params", {}), fresh=True)}

    return Runner(module, getattr(module, method), run_pure(init, partial(module.apply, method=method)))


def run_haiku(plan: BuildPlan) -> Runner:
    """Return a runner for a Haiku module; `target` is the call, because modules exist only inside `hk.transform`."""
    name, key = plan.method or "__call__", sys.modules["jax"].random.PRNGKey(plan.seed)
    made = partial(build, plan.owner, plan.arguments, plan.seed)
    pure = sys.modules["haiku"].transform_with_state(lambda *places, **named: getattr(made(), name)(*places, **named))  # noqa: PLW0108
    run = run_pure(
        lambda *places, **named: widen_tree(pure.init(key, *places, **named), fresh=True),
        lambda state, *places, **named: pure.apply(*state, key, *places, **named)[0],
    )
    return Runner(run, partial(getattr(plan.owner, name), None), run)


def has_parameters(target: Any) -> bool:
    if isinstance(target, partial):  # of JAX: `partial(module.apply, variables)`
        return any(isinstance(one, Mapping) for one in target.args)
    if inspect.isroutine(getattr(target, "__dict__", {}).get("__wrapped__", target)):
        return False
    values = target.parameters() if kind_of(target) == "torch" else getattr(target, "__dict__", {}).values()
    holds = (hasattr(one, "__dict__") or hasattr(one, "shape") or isinstance(one, dict) for one in values)
    return kind_of(target) not in ("plain", "torch") or any(holds)


def owner_in(target: Any) -> Any:
    """Return the only object with parameters that a callable is bound to or closes over, or else the callable."""
    target = target.func if isinstance(target, partial) and inspect.ismethod(target.func) else target
    if isinstance(target, partial) and has_parameters(target.func):
        return target.func
    owners = [target.__self__] if inspect.ismethod(target) and has_parameters(target.__self__) else []
    for cell in (target.__closure__ or ()) if inspect.isfunction(target) else ():
        with suppress(Exception):  # the cell is empty, or the object's own `__getattr__` raises an error
            one = cell.cell_contents
            owners += [one] if not inspect.isclass(one) and not inspect.ismodule(one) and has_parameters(one) else []
    return owners[0] if len(owners) == 1 else target


def widths_of_weights(target: Any) -> list[int]:
    """Return the input widths of a PyTorch module's linear layers, or the sizes of all its matrices if it has none.

    For other objects, return only the number of rows of the first matrix.
    """
    if kind_of(target) == "torch":  # nn.Linear stores weights as [out in]
        if any(map(sys.modules["torch"].nn.parameter.is_lazy, target.parameters())):
            return []
        linear = [int(one.weight.shape[1]) for one in target.modules() if getattr(one, "weight", None) is not None
                  and (hasattr(one, "in_features") or getattr(one, "original_name", "") == "Linear")]  # fmt: skip
        return linear or [size for one in target.parameters() if one.ndim > 1 for size in one.shape]
    values = getattr(target, "__dict__", {}).values()
    return [int(one.shape[0]) for one in values if getattr(one, "ndim", 0) == len("mn")][:1]


def source_inside(runner: Runner) -> str:
    """Return the source code of a layer's call and of everything that it uses from the same file."""
    inside = [getattr(type(one), "forward", None) for one in modules_of(runner.target) if kind_of(one) == "torch"]
    own = [inspect.unwrap(one) for one in (runner.forward, *inside) if one and not is_of_a_library(one)]
    return "\n".join(source_with_helpers(one, classes=True) for one in own)

"""The random generators of other libraries, reimplemented in NumPy to draw the same numbers from the same seed.

After `torch.manual_seed(123)`, the numbers of a notebook depend only on its calls. The same calls, in the same order,
draw the same numbers here, without that library.
"""

from __future__ import annotations

from attn_exp import registry
from attn_exp.errors import UserError, unknown
from attn_exp.problem.generators.generator import Generator, Start, Stream

GENERATORS: dict[str, Generator] = {
    name: generator
    for file in registry.names(__path__, without=("generator",))
    for name, generator in registry.module(__name__, file).GENERATORS.items()
}


def begin(name: str, seed: int, draws_once: bool = False, key: str = "seed") -> Stream:
    """Seed a generator and return its stream; `draws_once` means that only one array is drawn from it.

    `key` is the setting that gives the seed.

    Raises:
        UserError: there is no such generator, or it does not accept the seed.
    """
    if name not in GENERATORS:
        raise UserError(unknown(name, ("streams", *GENERATORS), "generator"))
    generator = GENERATORS[name]
    if not generator.least <= seed or (generator.most is not None and seed > generator.most):
        most = "" if generator.most is None else f" to {generator.most}"
        expected = f"a whole number from {generator.least}{most}" if most else f"at least {generator.least}"
        raise UserError(f"{key}={seed}: expected {expected} for generator={name}")
    return generator.begin(Start(seed, draws_once))

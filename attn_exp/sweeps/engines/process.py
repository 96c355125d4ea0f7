"""Worker processes on this machine; if one dies, its job is returned as `Died`."""

from __future__ import annotations

from functools import partial

from attn_exp.processes import Pool
from attn_exp.sweeps.engines.engine import Died, Engine
from attn_exp.sweeps.task import compute

ENGINE = Engine(lambda plan, workers, address: Pool(partial(compute, plan), workers, Died))

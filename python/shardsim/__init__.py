# SPDX-License-Identifier: Apache-2.0
"""shardsim predicts a data-parallel training step before the money is spent.

    import shardsim
    r = shardsim.simulate("job.yaml", overrides={"cluster.nodes": 16})
    r.step.time_s, r.memory.peak_bytes, r.memory.fits

`shardsim.torch` reads models from nn.Module; `shardsim.record` runs the real libraries on CPU ranks. Both need PyTorch, and neither needs the
compiled module.
"""

import os as _os
from pathlib import Path as _Path

_data = _Path(__file__).parent / "scenarios"
if _data.is_dir():  # of an installed package: the shipped profiles and models
    _os.environ.setdefault("SHARDSIM_DATA", str(_data))

from ._problem import MachineError, Place, PredictionWarning, Problem  # noqa: E402

_functions = ("simulate", "compare", "plan", "sweep", "check", "formula", "import_scenario", "strategies", "models", "clusters")
_objects = ("Simulation", "Comparison", "Plan", "Sweep", "Section")

__all__ = [*_functions, *_objects, "MachineError", "Place", "PredictionWarning", "Problem", "__version__"]

try:
    from ._api import check, clusters, compare, formula, import_scenario, models, plan, simulate, strategies, sweep  # noqa: E402
    from ._core import version as __version__  # noqa: E402
    from ._results import Comparison, Plan, Section, Simulation, Sweep  # noqa: E402
except ImportError as _error:  # the package from its source folder, for shardsim.record: without the compiled module
    if "_core" not in str(_error):
        raise

    def __getattr__(name: str):
        if name in __all__:
            raise ImportError(f"shardsim.{name} needs the compiled module: pip install .")
        raise AttributeError(name)

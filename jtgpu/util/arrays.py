"""Short names of array types in signatures; records that compiled loops take use `jtgpu.util.array_types` instead."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Cell = TypeVar("Cell", bound=np.generic)  # of an array of any type: ``NDArray[Cell]``

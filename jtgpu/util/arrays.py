"""Short names of array types in signatures; records that compiled loops take use `jtgpu.util.array_types` instead."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

"""Types of arrays with two and three axes, for fields of NamedTuples that compiled loops take.

`NDArray` alone has one axis there: `jtgpu.util.signatures` reads the annotations.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Scalar = TypeVar("_Scalar", bound=np.generic)
Matrix = NDArray[_Scalar]  # two axes
Cube = NDArray[_Scalar]  # three axes

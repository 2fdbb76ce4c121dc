"""Environments in which processes use fewer of this processor's instructions.

``python -m tests.support.processors`` prints what ``NPY_DISABLE_CPU_FEATURES`` must be for NumPy without AVX-512: an
empty line where the processor or NumPy has none. (NumPy refuses names that it does not know.)
"""

from __future__ import annotations

import os

import numpy as np

__all__ = ["LEVELS", "no_avx512"]


def _dispatched() -> list[str]:
    """What NumPy has loops for and this processor can do, beyond NumPy's least; also what this process does without."""
    found: list[str] = np.show_config("dicts")["SIMD Extensions"].get("found", [])
    return found + [name for name in os.environ.get("NPY_DISABLE_CPU_FEATURES", "").split() if name not in found]


def no_avx512() -> str:
    """Names of NumPy's features with AVX-512."""
    return " ".join(name for name in _dispatched() if name.startswith(("AVX512", "X86_V4")))


# by name: variables that switch instructions off in NumPy, in OpenBLAS and in glibc, which ignore what they do not know
LEVELS: dict[str, dict[str, str]] = {}
if no_avx512():
    LEVELS["without AVX-512"] = {"NPY_DISABLE_CPU_FEATURES": no_avx512(), "OPENBLAS_CORETYPE": "Haswell"}
if _dispatched():
    LEVELS["least"] = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(_dispatched()),
        "OPENBLAS_CORETYPE": "Prescott",
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-FMA,-FMA_Usable,-FMA4,-AVX512F",
    }

if __name__ == "__main__":
    print(no_avx512())

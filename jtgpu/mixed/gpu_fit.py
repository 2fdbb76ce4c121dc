"""Parameters of a network of numbers alone from a table in a GPU's memory: one pass of sums, by cuda/mixed/moments.cu.

Everything is computed of the rows less a shift near their means, so that numbers far from 0 keep their digits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..device.arrays import DeviceArray, device_of, read_cases
from ..device.context import Device, Memory, open_device
from ..device.driver import Arguments, loaded_kernels
from ..errors import DataError, EvidenceError, closest
from ..model.gaussian import Gaussian
from ..model.mixed import MixedNetwork
from ..util.iteration import Iteration as Pass
from .fit_result import MixedFit
from .fitting import Prior, Sums, log_prior, maximise
from .tree import MixedTree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

KERNELS = ("moments_rows", "moments_fold")
THREADS, PAIRS, RANGES = 256, 4, 1056  # ranges of rows: a multiple of the multiprocessors of an H100, and of others
SAMPLE = 1024  # rows whose mean is the shift
TILE_BYTES = 40 << 10  # of rows in shared memory
ROWS = np.dtype(
    [(name, np.uint64) for name in ("columns", "shift", "partial", "sums", "n")]
    + [
        (name, np.uint32)
        for name in ("n_columns", "n_ranges", "n_pairs", "n_parts", "tile_rows", "is_single", "is_dense", "pad")
    ]
)  # fmt: skip


def device_columns(cases: Any, names: Sequence[str]) -> list[Any] | None:
    """The columns of a table on a GPU: a tensor (B, V), or a mapping of tensors (B,); None for other tables."""
    if not isinstance(cases, Mapping):
        return None if device_of(cases) is None else [cases]
    columns = [cases[v] for v in names if v in cases]
    on_device = [device_of(c) is not None for c in columns]
    if not any(on_device):
        return None
    for v in names:
        if v not in cases:
            raise DataError(f"the table has no column {v!r}{closest(v, [*cases])}")
    if not all(on_device):
        raise DataError(f"column {names[on_device.index(False)]!r} is in host memory, others are on a GPU")
    return columns


class _Columns(NamedTuple):
    """Columns of equal length and type in a GPU's memory."""

    n: int
    dtype: np.dtype[Any]
    places: NDArray[np.uint64]  # (V, 2) address, and bytes from row to row
    arrays: list[DeviceArray]  # keep the memory


def _columns(given: Sequence[Any], names: Sequence[str], device: Device, stream: Any) -> _Columns:
    """The columns, ready to be read by work on the stream."""
    try:
        arrays = [read_cases(x, device, stream) for x in given]
    except EvidenceError as error:
        raise DataError(str(error)) from None
    first = arrays[0]
    if len(arrays) == 1 and len(first.shape) == 2:
        if first.shape[1] != len(names):
            raise DataError(f"the table on the device has shape {first.shape}, expected (rows, {len(names)})")
        places = [(first.address + i * first.strides[1], first.strides[0]) for i in range(len(names))]
    else:
        for v, x in zip(names, arrays, strict=True):
            if len(x.shape) != 1 or x.shape != first.shape or x.dtype != first.dtype:
                raise DataError(
                    f"column {v!r} has shape {x.shape} and {x.dtype}, but {names[0]!r} {first.shape} and {first.dtype}"
                )
        places = [(x.address, x.strides[0]) for x in arrays]
    if first.dtype not in (np.dtype(np.float32), np.dtype(np.float64)) or not first.shape[0]:
        raise DataError(f"a table on a device has rows of float32 or float64, not {first.shape[0]} of {first.dtype}")
    return _Columns(first.shape[0], first.dtype, np.array(places, np.int64).view(np.uint64), arrays)


def device_moments(given: Sequence[Any], names: Sequence[str]) -> tuple[Floats, Floats, int]:
    """Sums of z z', z = (1, row less shift), of `device_columns`; the shift, and the number of rows."""
    number, width = device_of(given[0]), len(names)
    device = open_device(None if number is None or number < 0 else number)
    with device.active(), Memory(device) as memory:
        stream = device.stream()
        table = _columns(given, names, device, stream)
        n, n_pairs, rows = table.n, (width + 1) * (width + 2) // 2, np.zeros(1, ROWS)
        rows["columns"], rows["n"], rows["is_single"] = memory.put(table.places, stream), n, table.dtype.itemsize == 4
        rows["is_dense"] = bool((table.places[:, 1] == table.dtype.itemsize).all())
        rows["partial"], rows["sums"] = memory.empty(8 * n_pairs * RANGES), memory.empty(8 * n_pairs)
        rows["n_columns"], rows["n_pairs"], rows["n_parts"] = width, n_pairs, -(-n_pairs // (THREADS * PAIRS))
        rows["tile_rows"] = max(TILE_BYTES // (8 * (width + 1)), 1)
        kernels, shared = loaded_kernels(device, "mixed/moments", KERNELS), 8 * (width + 1) * int(rows["tile_rows"][0])

        def sums(n_rows: int, shift: Floats) -> Floats:
            rows["n"], rows["n_ranges"] = n_rows, min(RANGES, n_rows)
            with Memory(device) as own:
                rows["shift"], arguments = own.put(shift, stream), Arguments(rows)
                n_blocks = int(rows["n_ranges"][0] * rows["n_parts"][0])
                kernels.launch("moments_rows", n_blocks, THREADS, stream, arguments, shared=shared)
                kernels.launch("moments_fold", -(-n_pairs // THREADS), THREADS, stream, arguments)
                result = np.empty(n_pairs)
                device.download(result, int(rows["sums"][0]), stream)
                stream.synchronize()
            return result

        column = np.arange(1, width + 1)
        first = column * (column + 1) // 2  # the pair of the ones and a column
        n_sample = min(n, SAMPLE)
        shift = np.nan_to_num(sums(n_sample, np.zeros(width))[first] / n_sample, nan=0.0, posinf=0.0, neginf=0.0)
        flat = sums(n, shift)
    moments = np.empty((width + 1, width + 1))
    lower = np.tril_indices(width + 1)
    moments[lower] = moments.T[lower] = flat
    for v, name in enumerate(names):
        if not np.isfinite(moments[0, v + 1]):
            raise DataError(f"column {name!r} of the table on the device has missing or infinite cells; copy it first")
    return moments, shift, n


def fit_on_device(
    parents: Mapping[str, Sequence[str]], columns: Sequence[Any], prior: float, progress: Callable[[Pass], None] | None
) -> MixedFit:
    """Regressions of numbers on their parents from `device_columns`."""
    begun, names = time.perf_counter(), [*parents]
    moments, shift, n = device_moments(columns, names)
    mean = moments[0, 1:] / n
    sd = np.sqrt(np.maximum(np.diagonal(moments)[1:] / n - mean**2, 0.0))
    for v, name in enumerate(names):
        if not sd[v] > 1e-12 * max(abs(float(shift[v])), 1e-300):
            value = float(shift[v] + mean[v])
            raise DataError(f"the column {name!r} is constant ({value:g}); a number needs different values")
    start = MixedNetwork(
        dict.fromkeys(names, float), parents,
        {v: Gaussian(mean[i], dict.fromkeys(parents[v], 0.0), sd[i]) for i, v in enumerate(names)},
    )  # fmt: skip
    tree = MixedTree(start, "cpu", max_configurations=1, options={})
    numbers = tree.answerer.numbers
    scale = np.concatenate([[1.0], numbers.scale])
    scaled = moments / scale[:, None] / scale
    own = [np.array([0, *(p + 1 for p in numbers.parents[g]), g + 1]) for g in range(len(names))]
    sums = [scaled[np.ix_(at, at)][None] for at in own]
    added = Prior({}, [s * (prior / n) for s in sums])
    history: list[Pass] = []
    likelihood = objective = 0.0
    for number in range(2):
        likelihood = sum(_log_likelihood(tree.network, g, moments) for g in range(len(names)))
        objective = likelihood + log_prior(tree, tree.network, added)
        change = objective - history[0].objective if history else 0.0
        history.append(Pass(number, objective, likelihood, change, time.perf_counter() - begun))
        if progress is not None:
            progress(history[-1])
        if not number:
            tree.reload(maximise(tree, Sums({}, sums, likelihood), added))
    shifts = dict(zip(names, shift.tolist(), strict=True))
    cpts = {v: _moved(tree.network.gaussian(v), v, shifts) for v in names}
    return MixedFit(
        tree.network.replace(cpts), likelihood, objective, tuple(history), True, "counts", n, 0, {}, {}
    )  # fmt: skip


def _moved(g: Gaussian, name: str, shift: Mapping[str, float]) -> Gaussian:
    """The density of a number in the coordinates of the rows."""
    back = sum(float(c) * shift[p] for p, c in g.coefficients.items())
    return Gaussian(g.mean + shift[name] - back, g.coefficients, g.sd)


def _log_likelihood(net: MixedNetwork, g: int, moments: Floats) -> float:
    """Sum of ln of the density of a number over the rows."""
    name, n = net.numbers[g], moments[0, 0]
    density = net.gaussian(name)
    contrast = np.zeros(len(moments))
    contrast[0], contrast[g + 1] = -float(density.mean), 1.0
    for p, c in density.coefficients.items():
        contrast[net.numbers.index(p) + 1] = -float(c)
    variance = float(density.sd) ** 2
    return float(-0.5 * (n * np.log(2.0 * np.pi * variance) + contrast @ moments @ contrast / variance))

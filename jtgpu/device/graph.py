"""CUDA graphs, through cuda-bindings, since PyCUDA has none; both use the driver's handles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import BackendUnavailable, TableTooLarge

_INSTALL = "install it with: pip install '.[cuda]' in a checkout (needs the CUDA toolkit)"


class Graph:
    """Recorded device work, launched by one call. Used inside ``device.active()``."""
    # work: Queues the work
    # raises BackendUnavailable: If cuda-bindings is missing.

    def __init__(self, stream: Any, work: Callable[[], None]):
        try:
            from cuda.bindings import driver
        except ImportError as error:
            raise BackendUnavailable(f"CUDA graphs need cuda-bindings ({error}); {_INSTALL}") from None
        self._driver = driver
        self._graph: Any = None
        self._executable: Any = None
        handle = driver.CUstream(stream.handle)
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._checked(driver.cuStreamBeginCapture(handle, mode))
        try:
            work()
        finally:  # otherwise the stream would stay in capture mode
            ended = driver.cuStreamEndCapture(handle)
        self._graph = self._checked(ended)
        self._executable = self._checked(driver.cuGraphInstantiate(self._graph, 0))

    def launch(self, stream: Any) -> None:
        """Queue the whole graph."""
        self._checked(self._driver.cuGraphLaunch(self._executable, self._driver.CUstream(stream.handle)))

    def close(self) -> None:
        """Destroy the graph."""
        if self._executable is not None:
            self._driver.cuGraphExecDestroy(self._executable)
        if self._graph is not None:
            self._driver.cuGraphDestroy(self._graph)
        self._graph = self._executable = None

    def _checked(self, answer: tuple[Any, ...]) -> Any:
        if answer[0] == self._driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
            raise TableTooLarge("the GPU has no memory left for a graph of kernels")
        if answer[0] != self._driver.CUresult.CUDA_SUCCESS:
            raise BackendUnavailable(f"CUDA graph: {answer[0]}")
        return answer[1] if len(answer) > 1 else None

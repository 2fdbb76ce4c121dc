"""`Served`, all compiled networks, and `CompiledNetwork`, those of numbers, slices and decisions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from ..errors import JtgpuError, PlanError
from ..model.kinds import why_not
from ..util import late_imports

if TYPE_CHECKING:
    from ..util.late_imports import Server

N = TypeVar("N")


class Closing(Protocol):
    """Something that holds memory of a backend."""

    def close(self) -> None: ...


class Served(late_imports.Shown):
    """A compiled network that a server can answer questions about."""

    def serve(self, *, host: str = "127.0.0.1", port: int = 0, **options: object) -> Server:
        """Serve this network over HTTP, with a page, in a thread; needs ``jtgpu[serve]``.

        Parameters
        ----------
        host : str, default "127.0.0.1"
            The address to listen at. Other machines need a token, which is made if none is given.
        port : int, default 0
            0: a free one.
        **options
            See `jtgpu.serve.serve`.

        Returns
        -------
        jtgpu.serve.Server
            Ready: ``.url`` is the address for a browser, ``.close()`` stops it. The tree stays open.
        """
        server: Server = late_imports.serving().serve(self, host=host, port=port, **options)
        return server


class CompiledNetwork(Served, ABC, Generic[N]):
    """A network, and the compiled parts that its queries stand on; `JunctionTree` is the one that has no parts."""

    _why_not = staticmethod(why_not)  # what errors about questions of other kinds say

    def __init__(self, net: N, backend: str, arguments: Mapping[str, Any]):
        # arguments: all others by keyword, from which another process makes this object
        self._net, self._arguments, self._is_closed = net, {"backend": backend, **arguments}, False

    @property
    def network(self) -> N:
        """The network that was compiled."""
        return self._net

    @property
    def backend(self) -> str:
        """Name of the backend."""
        return str(self._arguments["backend"])

    @abstractmethod
    def _parts(self) -> Iterable[Closing]:
        """The parts that `close` closes."""

    def close(self) -> None:
        """Free the memory of the backends, as a ``with`` block does at its end; queries raise `JtgpuError` then."""
        self._is_closed = True
        for part in self._parts():
            part.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise JtgpuError("this tree is closed")

    def _check_structure(self, net: object, is_same: bool) -> None:
        """Raise an error if this tree is closed, or if a network for `reload` is not one of the same structure."""
        self._check_open()
        if not is_same:
            raise PlanError(f"{net!r} differs from {self._net!r} in variables, states or arcs, not only in numbers")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        self._check_open()
        return partial(type(self), **self._arguments), (self._net,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({getattr(self._net, 'name', '')!r}, backend={self.backend!r})"

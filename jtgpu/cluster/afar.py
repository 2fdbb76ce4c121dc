"""A run that is watched from afar: Ray Data works within a cluster alone, so a process there leads, and tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .connect import Cluster, connected, the_ray, understood

__all__ = ["is_client", "lead_from_afar"]

ASK_EVERY = 0.5  # seconds
Progress = Callable[[int, int, int], None]


class _Board:
    """An actor that keeps what was told last."""

    def __init__(self) -> None:
        self._last: tuple[int, int, int] | None = None

    def tell(self, *last: int) -> None:
        self._last = (last[0], last[1], last[2])

    def last(self) -> tuple[int, int, int] | None:
        return self._last


def is_client(cluster: Cluster) -> bool:
    """Is this process outside of the cluster, and speaks to it through Ray's client?"""
    if cluster.address.startswith("ray://"):
        return True
    client = getattr(the_ray().util, "client", None)
    return bool(client is not None and client.ray.is_connected())


def lead_from_afar(run: Callable[..., Any], cluster: Cluster, progress: Progress | None, **options: Any) -> Any:
    """What `run` returns, or raises, when a process of the cluster calls it.

    Parameters
    ----------
    run : callable
        Of an installed module; is called with the options, ``cluster=`` and ``progress=``.
    cluster : Cluster
    progress : callable, optional
        Called here, about twice a second, with what `run` tells there.
    """
    with connected(cluster) as ray:
        board = ray.remote(num_cpus=0)(_Board).remote()
        here = replace(cluster, address="auto")

        def lead(options: dict[str, Any]) -> Any:
            def tell(*last: int) -> None:
                board.tell.remote(*last)

            return run(**options, cluster=here, progress=tell)

        going = ray.remote(num_cpus=0, max_retries=0)(lead).remote(options)
        told: tuple[int, int, int] | None = None
        try:
            while not ray.wait([going], timeout=ASK_EVERY)[0]:
                told = _pass_on(ray.get(board.last.remote()), told, progress)
            report = ray.get(going)
            _pass_on(ray.get(board.last.remote()), told, progress)
        except ray.exceptions.RayError as error:
            raise understood(error) from None
        except BaseException:  # Ctrl-C: nobody waits for it any more
            ray.cancel(going)
            time.sleep(ASK_EVERY)  # the connection ends next, and the word must be out
            raise
        return report


def _pass_on(
    now: tuple[int, int, int] | None, before: tuple[int, int, int] | None, progress: Progress | None
) -> tuple[int, int, int] | None:
    if progress is not None and now is not None and now != before:
        progress(*now)
    return now

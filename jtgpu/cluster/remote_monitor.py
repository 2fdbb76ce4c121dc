"""Run a function within a cluster and monitor it from outside, through Ray's client.

Ray Data works only within a cluster, so a process there leads the run and publishes its progress.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .connect import Cluster, connected, import_ray, translate_error

POLL_INTERVAL = 0.5  # seconds
Progress = Callable[[int, int, int], None]
Numbers = tuple[int, int, int]


class _ProgressActor:
    """An actor that holds the latest progress."""

    def __init__(self) -> None:
        self._latest: Numbers | None = None

    def publish(self, *numbers: int) -> None:
        self._latest = (numbers[0], numbers[1], numbers[2])

    def latest(self) -> Numbers | None:
        return self._latest


def is_client(cluster: Cluster) -> bool:
    """Whether this process is outside of the cluster and connected to it through Ray's client."""
    if cluster.address.startswith("ray://"):
        return True
    client = getattr(import_ray().util, "client", None)
    return bool(client is not None and client.ray.is_connected())


def run_in_cluster(run: Callable[..., Any], cluster: Cluster, progress: Progress | None, **options: Any) -> Any:
    """Call a function in a process of the cluster and return what it returns, or raise what it raises."""
    # run: From an installed module; called with the options, ``cluster=`` and ``progress=``
    # progress: Called in this process, about twice a second, with the progress published by `run`
    with connected(cluster) as ray:
        actor = ray.remote(num_cpus=0)(_ProgressActor).remote()
        inside = replace(cluster, address="auto")

        def lead(options: dict[str, Any]) -> Any:
            def publish(*numbers: int) -> None:
                actor.publish.remote(*numbers)

            return run(**options, cluster=inside, progress=publish)

        task = ray.remote(num_cpus=0, max_retries=0)(lead).remote(options)
        reported: Numbers | None = None
        try:
            while not ray.wait([task], timeout=POLL_INTERVAL)[0]:
                reported = _report(ray.get(actor.latest.remote()), reported, progress)
            result = ray.get(task)
            _report(ray.get(actor.latest.remote()), reported, progress)
        except ray.exceptions.RayError as error:
            raise translate_error(error) from None
        except BaseException:  # Ctrl-C
            ray.cancel(task)
            time.sleep(POLL_INTERVAL)  # the request must leave before the connection is closed
            raise
        return result


def _report(latest: Numbers | None, before: Numbers | None, progress: Progress | None) -> Numbers | None:
    if progress is not None and latest is not None and latest != before:
        progress(*latest)
    return latest

"""Metrics of the server, in the text format of Prometheus.

Requests are counted in plain dictionaries, which takes a microsecond a request; families of prometheus_client are made
of them when a client reads ``/metrics``. Workers that share a port write their counts to files, and the worker that
answers adds them up.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from ..util.atomic_file import write_text

Values = dict[tuple[str, ...], float]  # by values of the labels
Gauge = tuple[str, str, tuple[str, ...], Values]  # name, help, labels

SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CASES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0)


class Metrics:
    """Counters of one application."""
    # gauges: Returns name, help, label names, and values by labels of each quantity that is read when it is needed
    # folder: Folder of the counts of several processes; empty: there is one process

    def __init__(self, gauges: Callable[[], list[Gauge]], folder: str = ""):
        self._gauges, self._folder = gauges, Path(folder) if folder else None
        self._requests: dict[tuple[str, str, int], int] = {}  # by network, question, status
        self._seconds: dict[str, list[float]] = {}  # by question: requests of each bucket, then the sum
        self._batch = [0.0] * (len(CASES) + 2)
        self._cases = self._impossible = 0
        self.is_changed = False  # since the last `save`
        self.registry = CollectorRegistry()
        if self._folder is None:
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        self.registry.register(self)

    def record(self, network: str, question: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = network, question, status
        self._requests[key] = self._requests.get(key, 0) + 1
        counts = self._seconds.get(question)
        if counts is None:
            counts = self._seconds[question] = [0.0] * (len(SECONDS) + 2)
        counts[bisect_left(SECONDS, seconds)] += 1
        counts[-1] += seconds
        self.is_changed = True

    def record_cases(self, cases: int, batch: int) -> None:
        """Count answered cases of one request, and the cases of its batch."""
        self._cases += cases
        self._batch[bisect_left(CASES, batch)] += 1
        self._batch[-1] += batch

    def record_impossible(self) -> None:
        """Count a request with impossible evidence."""
        self._impossible += 1

    def save(self) -> None:
        """Write the counts of this process for the others, if there are any."""
        if self._folder is None or not self.is_changed:
            return
        self.is_changed = False
        with suppress(OSError):  # the folder is removed at the end
            write_text(self._folder / f"{os.getpid()}.json", json.dumps(self._counts()), durable=False)

    def _counts(self) -> dict[str, Any]:
        return {
            "requests": [[*key, n] for key, n in self._requests.items()], "seconds": self._seconds,
            "batch": self._batch, "cases": self._cases, "impossible": self._impossible,
        }  # fmt: skip

    def _all_counts(self) -> list[dict[str, Any]]:
        """The counts of all processes."""
        all_counts = [self._counts()]
        if self._folder is not None:
            for path in sorted(self._folder.glob("*.json")):
                if path.stem != str(os.getpid()):
                    with suppress(OSError, ValueError):
                        all_counts.append(json.loads(path.read_text(encoding="utf-8")))
        return all_counts

    def collect(self) -> Iterator[Metric]:
        """Yield all families; called by the registry."""
        processes = self._all_counts()
        requests = CounterMetricFamily("jtgpu_requests", "Requests", labels=("network", "question", "status"))
        counted: dict[tuple[str, str, int], int] = {}
        seconds: dict[str, list[float]] = {}
        for counts in processes:
            for network, question, status, n in counts["requests"]:
                counted[network, question, status] = counted.get((network, question, status), 0) + n
            for question, buckets in counts["seconds"].items():
                seconds[question] = _sum(seconds.get(question), buckets)
        for (network, question, status), n in counted.items():
            requests.add_metric((network, question, str(status)), n)
        yield requests
        timed = HistogramMetricFamily("jtgpu_seconds", "Seconds from request to response", labels=("question",))
        for question, buckets in seconds.items():
            timed.add_metric((question,), _cumulative(SECONDS, buckets), buckets[-1])
        yield timed
        batch = HistogramMetricFamily("jtgpu_batch_cases", "Cases of the batch of a request")
        batches = _sum(None, *(counts["batch"] for counts in processes))
        batch.add_metric((), _cumulative(CASES, batches), batches[-1])
        yield batch
        for name, text in (("cases", "Cases answered"), ("impossible", "Requests with impossible evidence")):
            yield CounterMetricFamily(f"jtgpu_{name}", text, value=sum(counts[name] for counts in processes))
        for name, text, labels, values in self._gauges():
            gauge = GaugeMetricFamily(name, text, labels=labels)
            for of, value in values.items():
                gauge.add_metric(of, value)
            yield gauge

    def text(self) -> bytes:
        """All metrics; with several workers, those of all of them."""
        return generate_latest(self.registry)


def _sum(first: list[float] | None, *others: list[float]) -> list[float]:
    """Lists of the same length added up, number by number."""
    return [sum(numbers) for numbers in zip(*(each for each in (first, *others) if each is not None), strict=True)]


def _cumulative(bounds: tuple[float, ...], buckets: list[float]) -> list[tuple[str, float]]:
    """Requests up to each bound."""
    names = [*map(str, bounds), "+Inf"]
    return [*zip(names, accumulate(buckets[:-1]), strict=True)]

"""What the server measures, in the text format of Prometheus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

__all__ = ["Gauge", "Metrics", "Values"]

Values = dict[tuple[str, ...], float]  # by values of the labels
Gauge = tuple[str, str, tuple[str, ...], Values]  # name, help, labels

SECONDS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
CASES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384)


class Metrics:
    """Counters of one application.

    Parameters
    ----------
    gauges : callable
        Returns name, help, label names, and values by labels of each quantity that is read when it is needed.
    """

    def __init__(self, gauges: Callable[[], list[Gauge]]):
        self.registry = CollectorRegistry()
        self._gauges = gauges
        self._requests = Counter(
            "jtgpu_requests", "Requests", ("network", "question", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "jtgpu_seconds", "Seconds from request to response", ("question",), buckets=SECONDS, registry=self.registry
        )
        self._batch = Histogram(
            "jtgpu_batch_cases", "Cases of the batch of a request", buckets=CASES, registry=self.registry
        )
        self._cases = Counter("jtgpu_cases", "Cases answered", registry=self.registry)
        self._impossible = Counter("jtgpu_impossible", "Requests with impossible evidence", registry=self.registry)
        self._children: dict[tuple[str, str, int], Any] = {}
        self._of_question: dict[str, Any] = {}
        if not os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            ProcessCollector(registry=self.registry)
            PlatformCollector(registry=self.registry)
        self.registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield what is read when it is needed; called by the registry."""
        for name, text, labels, values in self._gauges():
            family = GaugeMetricFamily(name, text, labels=labels)
            for of, value in values.items():
                family.add_metric(of, value)
            yield family

    def record(self, network: str, question: str, status: int, seconds: float) -> None:
        """Count a request."""
        key = network, question, status
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = self._requests.labels(network, question, str(status))
        child.inc()
        timer = self._of_question.get(question)
        if timer is None:
            timer = self._of_question[question] = self._seconds.labels(question)
        timer.observe(seconds)

    def record_cases(self, cases: int, batch: int) -> None:
        """Count answered cases of one request, and the cases of its batch."""
        self._cases.inc(cases)
        self._batch.observe(batch)

    def record_impossible(self) -> None:
        """Count a request with impossible evidence."""
        self._impossible.inc()

    def text(self) -> bytes:
        """All metrics; with several workers, those of all of them."""
        if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
            registry.register(self)
            return generate_latest(registry)
        return generate_latest(self.registry)

"""Limits of a server: `Limits`."""

from __future__ import annotations

from typing import Annotated, Literal

from .record import Opt, Record


class Limits(Record, title="Limits"):
    """Limits of what a client requests, and what is logged."""

    max_body: Annotated[str | int, Opt("Size of a request.", "--max-body SIZE", check=str)] = "8MiB"
    max_upload: Annotated[str | int, Opt("Size of a table of cases.", "--max-upload SIZE", check=str)] = "256MiB"
    max_cases: Annotated[int, Opt("Cases of one request.", least=1)] = 10_000
    max_batch: Annotated[int, Opt("Requests that are computed together.", least=1)] = 1024
    queue: Annotated[int, Opt("Requests that may wait; more get a 503.", least=1)] = 4096
    timeout: Annotated[float, Opt("Time that a query may take.", "--timeout SECONDS", above=0)] = 30.0
    body_timeout: Annotated[float, Opt(
        "Time for a body, or for 16 KiB a second of it.", "--body-timeout SECONDS", above=0)] = 15.0
    exact: Annotated[bool, Opt(
        "Compute one by one, with last digits that do not depend on other requests.")] = False
    log: Annotated[Literal["none", "text", "json"], Opt(
        "A line for each request on stderr.", "--log FORM")] = "none"
    log_evidence: Annotated[bool, Opt("Include requests in these lines.")] = False

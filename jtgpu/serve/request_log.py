"""A line for each request, on stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .exchange import Exchange
from .settings import Settings

__all__ = ["log_request"]


def log_request(settings: Settings, exchange: Exchange, request_id: str, seconds: float) -> None:
    """Write a line about a request, as text or JSON; evidence only if that was requested."""
    entry: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "id": request_id,
        "method": exchange.method,
        "network": exchange.network,
        "question": exchange.question,
        "status": exchange.status,
        "ms": round(1000 * seconds, 3),
        "batch": exchange.cases,
    }
    if settings.log_evidence and exchange.body:
        entry["body"] = exchange.body[:10_000].decode("utf-8", "replace")
    if settings.log == "json":
        line = json.dumps(entry)
    else:
        line = " ".join(str(v) if not isinstance(v, str) or v.isprintable() else ascii(v) for v in entry.values() if v)
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass

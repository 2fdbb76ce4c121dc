"""A line for each request, on stderr."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from .requests import Trace
from .settings import Settings


def log_request(settings: Settings, method: str, trace: Trace, request_id: str, seconds: float) -> None:
    """Write a line about a request, as text or JSON; evidence only if that was requested."""
    entry: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "id": request_id,
        "method": method,
        "network": trace.network,
        "question": trace.question,
        "status": trace.status,
        "ms": round(1000 * seconds, 3),
        "batch": trace.cases,
    }
    if settings.log_evidence and trace.body:
        entry["body"] = trace.body[:10_000].decode("utf-8", "replace")
    if settings.log == "json":
        line = json.dumps(entry)
    else:
        line = " ".join(str(v) if not isinstance(v, str) or v.isprintable() else ascii(v) for v in entry.values() if v)
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        pass

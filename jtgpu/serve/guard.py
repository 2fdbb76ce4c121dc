"""Access control: the headers Host, Origin, Authorization and Content-Type of a request, and those of every response.

A page of another site must not reach a server on this machine. ``Host`` has to name this server, since an attacker's
name may resolve to 127.0.0.1 (DNS rebinding). ``Origin``, which browsers send with requests across sites, has to be the
server's own. Bodies need a content type that a form cannot send.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping

from starlette.datastructures import Headers
from starlette.types import Scope

from .addresses import is_loopback
from .problems import Refusal
from .settings import Settings

Head = Mapping[bytes, bytes]  # headers by their names in lower case


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request by name; the first one of those that are repeated."""
    found: dict[bytes, bytes] = dict(scope["headers"][::-1])
    return found


class Guard:
    """Checks requests against the settings."""

    def __init__(self, settings: Settings):
        self._settings = settings
        self._token = settings.token.encode()
        self._hosts = settings.hosts
        self._good_hosts: set[bytes] = set()  # headers that were accepted
        frames = f"'self' {settings.embed}" if settings.embed else "'none'"
        policy = f"default-src 'self'; img-src 'self' data:; base-uri 'none'; frame-ancestors {frames}"
        self.headers = [
            (b"content-security-policy", policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

    def check(self, headers: Head, scope: Scope) -> None:
        """Check host and origin."""
        host = headers.get(b"host", b"")
        if host not in self._good_hosts:
            self._check_host(host)
        if b"origin" not in headers:
            return
        origin = headers[b"origin"].decode("latin-1")
        if origin.lower() == f"{_scheme(headers, scope)}://{host.decode('latin-1').lower()}":
            return
        if origin not in self._settings.allow_origins:
            raise Refusal("forbidden-origin", f"pages of {origin[:200]!r} have no access; see --allow-origin")

    def _check_host(self, host: bytes) -> None:
        text = host.decode("latin-1").lower()
        name, _, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
        name = name if name and port.isdigit() else text
        if "*" not in self._hosts and name not in self._hosts and text not in self._hosts:
            raise Refusal("foreign-host", f"this server does not answer to the host {text[:200]!r}; see --allow-host")
        if len(self._good_hosts) < 100:
            self._good_hosts.add(host)

    def check_token(self, headers: Head) -> None:
        """Raise `Refusal` unless the request has the token, if there is one."""
        if not self._token:
            return
        kind, _, token = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" or not hmac.compare_digest(token.strip(), self._token):
            raise Refusal("missing-token", "send the token of this server as Authorization: Bearer TOKEN")


def _scheme(headers: Head, scope: Scope) -> str:
    """The scheme that the browser used: a proxy on this machine reports it where it ends TLS."""
    forwarded = headers.get(b"x-forwarded-proto", b"").strip().decode("latin-1").lower()
    client = scope.get("client")
    if forwarded in ("http", "https") and client and is_loopback(client[0]):
        return forwarded
    return str(scope.get("scheme", "http"))


def check_type(headers: Headers, allowed: Collection[str]) -> str:
    """The media type of a body; raises `Refusal` unless it is one of the allowed ones."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in allowed:
        raise Refusal(
            "unsupported-media-type",
            f"the body must be {' or '.join(allowed)}, not {kind[:100]!r}; set the header Content-Type",
        )
    return kind

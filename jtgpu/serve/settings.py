"""`Settings`: what a server accepts, and from whom."""

from __future__ import annotations

import hmac
import ipaddress
import re
import socket
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self, cast

from starlette.types import Scope

from ..errors import ArgumentError
from ..util.arguments import choice, described, flag, number, several, text, unknown_keyword, whole_number
from ..util.system import parse_bytes
from .requests import Refusal

# Addresses: which of them other machines reach, and how a browser writes them.

def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


EVERYWHERE = ("0.0.0.0", "::", "")  # hosts that stand for all addresses of the machine


def own_address() -> str:
    """The address by which other machines reach this one, or else its name."""
    for family, other in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        # a datagram socket sends nothing on `connect`, but takes the address of the route to the other machine
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((other, 9))
            return str(sock.getsockname()[0])
    return socket.gethostname()


def url_of(host: str, port: int, token: str = "") -> str:
    """The address for a browser; the token is in the fragment, which is never sent."""
    name = own_address() if host in EVERYWHERE else host
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/{f'#token={token}' if token else ''}"


ORIGIN = re.compile(r"https?://[^\s/;,]+/?|null", re.IGNORECASE)  # null: of pages without one


@dataclass(frozen=True)
class Settings:
    """Options of `jtgpu.serve.App`.

    Attributes
    ----------
    token : str
        Clients send it as ``Authorization: Bearer TOKEN``; empty: none is required.
    allow_hosts : tuple of str
        Names of hosts in the header ``Host``, besides those of this machine's loopback; ``"*"``: any.
    allow_origins : tuple of str
        Origins of other sites whose pages may send requests, such as ``"https://example.org"``.
    embed : str
        Origin of a site that may show the page in a frame.
    api_only : bool
        Serve no page.
    page : str
        File of a form that the page shows instead of the network; see `jtgpu.serve.page_module`.
    read_only : bool
        Accept no uploads.
    max_body, max_upload : int
        Bytes of a request, and of a table of cases.
    max_cases : int
        Cases of one request.
    max_batch : int
        Requests that are answered together.
    queue : int
        Requests that may wait; more get a 503.
    timeout : float
        Seconds that an answer may take.
    body_timeout : float
        Seconds in which a body, or 16 KiB a second of it, has to arrive.
    exact : bool
        Answer requests one by one, so that the last digits do not depend on which requests are answered together.
    log : {"none", "text", "json"}
        Write a line for each request to stderr.
    log_evidence : bool
        Include the evidence in these lines.
    folder : str
        Folder for uploads that several processes share. Default: a private temporary one, removed at the end.
    sources : mapping of str to str
        Files or bundled names that the networks were read from, by the names of the networks. Code that the page
        exports reads them.
    metrics_folder : str
        Folder for the metrics of several processes that share a port, so that each of them reports all. Default: a
        process reports its own.
    """

    token: str = ""
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    embed: str = ""
    api_only: bool = False
    page: str = ""
    read_only: bool = False
    max_body: int = 8 << 20
    max_upload: int = 256 << 20
    max_cases: int = 10_000
    max_batch: int = 1024
    queue: int = 4096
    timeout: float = 30.0
    body_timeout: float = 15.0
    exact: bool = False
    log: str = "none"
    log_evidence: bool = False
    folder: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    metrics_folder: str = ""
    hosts: frozenset[str] = field(init=False, default=frozenset())  # all accepted ones, lower case

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("max_body", "max_upload"):
            put(self, name, parse_bytes(getattr(self, name), name))
        for name in ("max_cases", "max_batch", "queue"):
            whole_number(name, getattr(self, name), least=1)
        for name in ("timeout", "body_timeout"):
            number(name, getattr(self, name), above=0)
        choice("log", self.log, ("none", "text", "json"))
        for name in ("api_only", "read_only", "exact", "log_evidence"):
            flag(name, getattr(self, name))
        for name in ("allow_hosts", "allow_origins"):
            given = getattr(self, name)
            names = [given] if isinstance(given, str) else several(given)
            if names is None:
                raise ArgumentError(f"{name} must be a list of strings, not {described(given)}")
            put(self, name, tuple(text(name, each) for each in names))
        for name in ("token", "embed", "folder", "metrics_folder", "page"):
            text(name, getattr(self, name))
        if not isinstance(cast(object, self.sources), Mapping):
            raise ArgumentError(f"sources must map names of networks to files, not {described(self.sources)}")
        if self.page and self.api_only:
            raise ArgumentError("page cannot be combined with api_only")
        for origin in self.allow_origins:
            if not ORIGIN.fullmatch(origin):
                raise ArgumentError(f"allow_origins must be origins such as 'https://example.org', not {origin!r}")
        put(self, "allow_origins", tuple(o.rstrip("/") for o in self.allow_origins))
        put(self, "hosts", frozenset(h.lower() for h in ("127.0.0.1", "localhost", "[::1]", *self.allow_hosts)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """The settings that keywords give.

        Raises
        ------
        ArgumentError
            If there is no such option, or its value is invalid.
        """
        known = [name for name, each in cls.__dataclass_fields__.items() if each.init]
        for name in options:
            if name not in known:
                raise unknown_keyword("serve", name, known)
        return cls(**options)

    def with_hosts(self, hosts: Iterable[str]) -> Self:
        """Accept more names of hosts."""
        options = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "hosts"}
        return type(self)(**{**options, "allow_hosts": (*self.allow_hosts, *hosts)})


# Access control: the headers Host, Origin, Authorization and Content-Type of a request, and those of every response.
#
# A page of another site must not reach a server on this machine. ``Host`` has to name this server, since an
# attacker's name may resolve to 127.0.0.1 (DNS rebinding). ``Origin``, which browsers send with requests across
# sites, has to be the server's own. Bodies need a content type that a form cannot send.

Head = Mapping[bytes, bytes]  # headers by their names in lower case


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """The headers of a request by name; the first one of those that are repeated."""
    headers: dict[bytes, bytes] = dict(scope["headers"][::-1])
    return headers


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
            (b"content-security-policy", policy.encode()), (b"x-content-type-options", b"nosniff"),
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
        if not (
            "*" in self._hosts or name in self._hosts or text in self._hosts
            or (not self._hosts.isdisjoint(EVERYWHERE) and _is_address(name))
        ):
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


def _is_address(host: str) -> bool:
    """Whether a host is an address: no name server can make it mean another machine, as it can of a name."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _scheme(headers: Head, scope: Scope) -> str:
    """The scheme that the browser used: a proxy on this machine reports it where it ends TLS."""
    forwarded = headers.get(b"x-forwarded-proto", b"").strip().decode("latin-1").lower()
    client = scope.get("client")
    if forwarded in ("http", "https") and client and is_loopback(client[0]):
        return forwarded
    return str(scope.get("scheme", "http"))


def check_type(headers: Head, allowed: Collection[str]) -> str:
    """The media type of a body; raises `Refusal` unless it is one of the allowed ones."""
    kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
    if kind not in allowed:
        raise Refusal(
            "unsupported-media-type",
            f"the body must be {' or '.join(allowed)}, not {kind[:100]!r}; set the header Content-Type",
        )
    return kind

"""`Settings`: what a server accepts, and from whom."""

import hmac
import ipaddress
import re
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Annotated, Any

from starlette.types import Scope

from ..errors import ArgumentError
from ..options.record import Opt, fields_of
from ..options.serving import Limits
from ..util.arguments import described, several, text, unknown_keyword
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


class Settings(Limits, title="Server"):
    """Options of `jtgpu.serve.App`."""

    max_body: int  # bytes, from here on
    max_upload: int
    token: Annotated[str, Opt("Clients send it as ``Authorization: Bearer TOKEN``; empty: none is required.")] = ""
    allow_hosts: Annotated[tuple[str, ...], Opt(
        "Names of hosts in the header ``Host``, besides those of this machine's loopback; ``\"*\"``: any.")] = ()
    allow_origins: Annotated[tuple[str, ...], Opt(
        "Origins of other sites whose pages may send requests, such as ``\"https://example.org\"``.")] = ()
    embed: Annotated[str, Opt("Origin of a site that may show the page in a frame.")] = ""
    api_only: Annotated[bool, Opt("Serve no page.")] = False
    page: Annotated[str, Opt(
        "File of a form that the page shows instead of the network; see `jtgpu.serve.page_module`.")] = ""
    read_only: Annotated[bool, Opt("Accept no uploads.")] = False
    folder: Annotated[str, Opt(
        "Folder for uploads that several processes share. Default: a private temporary one, removed at the end.")] = ""
    sources: Annotated[Any, Opt(
        "Files or bundled names that the networks were read from, by the names of the networks. Code that the page "
        "exports reads them.")] = None
    metrics_folder: Annotated[str, Opt(
        "Folder for the metrics of several processes that share a port, so that each of them reports all. Default: a "
        "process reports its own.")] = ""

    def __init__(self, **given: Any):
        for name in given.keys() - fields_of(Settings).keys():
            raise unknown_keyword("serve", name, fields_of(Settings))
        super().__init__(**given)
        own = vars(self)
        for name in ("max_body", "max_upload"):
            own[name] = parse_bytes(own[name], name)
        for name in ("allow_hosts", "allow_origins"):
            names = [own[name]] if isinstance(own[name], str) else several(own[name])
            if names is None:
                raise ArgumentError(f"{name} must be a list of strings, not {described(own[name])}")
            own[name] = tuple(text(name, each) for each in names)
        for name in ("token", "embed", "folder", "metrics_folder", "page"):
            text(name, own[name])
        if not isinstance(self.sources or {}, Mapping):
            raise ArgumentError(f"sources must map names of networks to files, not {described(self.sources)}")
        own["sources"] = dict(self.sources or {})
        if self.page and self.api_only:
            raise ArgumentError("page cannot be combined with api_only")
        for origin in self.allow_origins:
            if not ORIGIN.fullmatch(origin):
                raise ArgumentError(f"allow_origins must be origins such as 'https://example.org', not {origin!r}")
        own["allow_origins"] = tuple(origin.rstrip("/") for origin in self.allow_origins)

    @property
    def hosts(self) -> frozenset[str]:
        """All names of hosts that are accepted, in lower case."""
        return frozenset(h.lower() for h in ("127.0.0.1", "localhost", "[::1]", *self.allow_hosts))


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

"""`Settings`: what a server accepts, and from whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ..errors import ArgumentError
from ..util.arguments import choice, described, flag, number, several, text, whole_number
from ..util.system import parse_bytes

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
        File of a form that the page shows instead of the network; see `jtgpu.serve.form_page`.
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
            found = [given] if isinstance(given, str) else several(given)
            if found is None:
                raise ArgumentError(f"{name} must be a list of strings, not {described(given)}")
            put(self, name, tuple(text(name, each) for each in found))
        for name in ("token", "embed", "folder", "metrics_folder", "page"):
            text(name, getattr(self, name))
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
                raise ArgumentError(f"there is no option {name!r}; the options are {', '.join(known)}")
        return cls(**options)

    def with_hosts(self, hosts: Iterable[str]) -> Self:
        """Accept more names of hosts."""
        options = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "hosts"}
        return type(self)(**{**options, "allow_hosts": (*self.allow_hosts, *hosts)})

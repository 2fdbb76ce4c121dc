"""Options of ``jtgpu serve``: the address, access, and limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import ArgumentError
from ..serve.settings import Settings
from .options import one_of

ADDRESS, ACCESS, LIMITS = "Address", "Access", "Limits"


def _option(panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, rich_help_panel=panel, **more)


@dataclass(frozen=True)
class AddressOptions:
    """Where the server listens."""

    host: Annotated[
        str, _option(ADDRESS, "--host", metavar="ADDRESS", help="Address to listen at. Other machines need a token.")
    ] = "127.0.0.1"
    port: Annotated[
        int, _option(ADDRESS, "--port", metavar="N", min=0, max=65535, help="Port to listen at; 0: a free one.")
    ] = 8080
    open: Annotated[bool, _option(ADDRESS, "--open/--no-open", help="Open the page in a browser.")] = False
    workers: Annotated[
        int, _option(ADDRESS, "--workers", metavar="N", min=1, help="Processes that share the port.")
    ] = 1
    grace: Annotated[
        float, _option(ADDRESS, "--grace", metavar="SECONDS", min=0, help="Time to finish requests at the end.")
    ] = 10.0


@dataclass(frozen=True)
class AccessOptions:
    """Who has access, and to what."""

    token: Annotated[
        str | None,
        _option(ACCESS, "--token", metavar="TEXT", help="Token of clients. Default for other machines: new."),
    ] = None
    token_file: Annotated[Path | None, _option(ACCESS, "--token-file", metavar="PATH", help="File with the token.")] = (
        None
    )
    no_token: Annotated[
        bool, _option(ACCESS, "--no-token", help="No token; refused where other machines reach the server.")
    ] = False
    allow_origin: Annotated[
        list[str] | None,
        _option(ACCESS, "--allow-origin", metavar="URL", help="Site whose pages may send requests. Repeatable."),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        _option(ACCESS, "--allow-host", metavar="NAME", help="Name of this server in requests. Repeatable."),
    ] = None
    embed: Annotated[str, _option(ACCESS, "--embed", metavar="URL", help="Site that may show the page in a frame.")] = (
        ""
    )
    api_only: Annotated[bool, _option(ACCESS, "--api-only", help="Serve no page.")] = False
    page: Annotated[
        Path | None, _option(ACCESS, "--page", metavar="PATH", help="JSON file of a form to show on the page.")
    ] = None
    read_only: Annotated[bool, _option(ACCESS, "--read-only", help="Accept no uploads.")] = False

    def keywords(self) -> dict[str, Any]:
        """The settings that these options make."""
        return {
            "token": self._token(), "allow_origins": tuple(self.allow_origin or ()),
            "allow_hosts": tuple(self.allow_host or ()), "embed": self.embed, "api_only": self.api_only,
            "page": "" if self.page is None else str(self.page), "read_only": self.read_only,
        }  # fmt: skip

    def _token(self) -> str:
        if sum((self.token is not None, self.token_file is not None, self.no_token)) > 1:
            raise typer.BadParameter("give one of --token, --token-file and --no-token", param_hint="--token")
        if self.token_file is not None:
            try:
                found = self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise typer.BadParameter(f"{self.token_file}: {reason}", param_hint="--token-file") from None
        else:
            found = self.token or ""
        given = self.token is not None or self.token_file is not None
        if given and not (found and found.isascii() and found.isprintable() and " " not in found):
            raise typer.BadParameter("a token is printable ASCII without spaces", param_hint="--token")
        return found


@dataclass(frozen=True)
class LimitOptions:
    """Limits of what a client requests."""

    max_body: Annotated[str, _option(LIMITS, "--max-body", metavar="SIZE", help="Size of a request.")] = "8MiB"
    max_upload: Annotated[str, _option(LIMITS, "--max-upload", metavar="SIZE", help="Size of a table of cases.")] = (
        "256MiB"
    )
    max_cases: Annotated[int, _option(LIMITS, "--max-cases", metavar="N", min=1, help="Cases of one request.")] = (
        Settings.max_cases
    )
    max_batch: Annotated[
        int, _option(LIMITS, "--max-batch", metavar="N", min=1, help="Requests that are computed together.")
    ] = Settings.max_batch
    queue: Annotated[
        int, _option(LIMITS, "--queue", metavar="N", min=1, help="Requests that may wait; more get a 503.")
    ] = Settings.queue
    timeout: Annotated[float, _option(LIMITS, "--timeout", metavar="SECONDS", help="Time that a query may take.")] = (
        Settings.timeout
    )
    body_timeout: Annotated[
        float,
        _option(LIMITS, "--body-timeout", metavar="SECONDS", help="Time for a body, or for 16 KiB a second of it."),
    ] = Settings.body_timeout
    exact: Annotated[
        bool,
        _option(
            LIMITS,
            "--exact",
            help="Compute one by one, with last digits that do not depend on other requests.",
        ),
    ] = False
    log: Annotated[
        str,
        _option(
            LIMITS,
            "--log",
            metavar="FORM",
            callback=one_of("none", "text", "json"),
            help="A line for each request on stderr: none, text or json.",
        ),
    ] = "none"
    log_evidence: Annotated[bool, _option(LIMITS, "--log-evidence", help="Include requests in these lines.")] = False

    def keywords(self) -> dict[str, Any]:
        """The settings that these options make."""
        found = {name: getattr(self, name) for name in self.__dataclass_fields__}
        try:
            Settings(**found)
        except (ArgumentError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        return found

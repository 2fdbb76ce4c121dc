"""``jtgpu serve``: networks as a web service with a page."""

from __future__ import annotations

import functools
import secrets
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from .. import serve as room
from ..backends import free_on_devices
from ..errors import ArgumentError, BackendUnavailable, TableTooLarge, format_bytes
from ..formats.registry import file_suffixes
from ..inference.network_plan import NetworkPlan
from ..model.discrete import DiscreteModel
from ..serve.settings import Settings, is_loopback, url_of
from ..serve.trees import AnyNetwork, AnyTree, has_plan, where
from ..util.arguments import Option
from ..util.system import free_memory, parse_bytes
from .console import command, print_json, warn
from .networks import load_any_kind
from .options import Json
from .planning import COMPILING, RunOptions, SlicedPlanOptions
from .tables import status

# Options of ``jtgpu serve``: the address, access, and limits.

ADDRESS, ACCESS, LIMITS = "Address", "Access", "Limits"


@dataclass(frozen=True)
class AddressOptions:
    """Where the server listens."""

    host: Annotated[str, Option(
        "--host ADDRESS", "Address to listen at. Other machines need a token.", panel=ADDRESS)] = "127.0.0.1"
    port: Annotated[int, Option(
        "--port N", "Port to listen at; 0: a free one.", least=0, most=65535, panel=ADDRESS)] = 8080
    open: Annotated[bool, Option("--open/--no-open", "Open the page in a browser.", panel=ADDRESS)] = False
    workers: Annotated[int, Option("--workers N", "Processes that share the port.", least=1, panel=ADDRESS)] = 1
    grace: Annotated[float, Option(
        "--grace SECONDS", "Time to finish requests at the end.", least=0, panel=ADDRESS)] = 10.0


@dataclass(frozen=True)
class AccessOptions:
    """Who has access, and to what."""

    token: Annotated[str | None, Option(
        "--token TEXT", "Token of clients. Default for other machines: new.", panel=ACCESS)] = None
    token_file: Annotated[Path | None, Option("--token-file PATH", "File with the token.", panel=ACCESS)] = None
    no_token: Annotated[bool, Option(
        "--no-token", "No token; refused where other machines reach the server.", panel=ACCESS)] = False
    allow_origin: Annotated[list[str] | None, Option(
        "--allow-origin URL", "Site whose pages may send requests. Repeatable.", panel=ACCESS)] = None
    allow_host: Annotated[list[str] | None, Option(
        "--allow-host NAME", "Name of this server in requests. Repeatable.", panel=ACCESS)] = None
    embed: Annotated[str, Option("--embed URL", "Site that may show the page in a frame.", panel=ACCESS)] = ""
    api_only: Annotated[bool, Option("--api-only", "Serve no page.", panel=ACCESS)] = False
    page: Annotated[Path | None, Option("--page PATH", "JSON file of a form to show on the page.", panel=ACCESS)] = None
    read_only: Annotated[bool, Option("--read-only", "Accept no uploads.", panel=ACCESS)] = False

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
                token = self.token_file.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
                raise typer.BadParameter(f"{self.token_file}: {reason}", param_hint="--token-file") from None
        else:
            token = self.token or ""
        given = self.token is not None or self.token_file is not None
        if given and not (token and token.isascii() and token.isprintable() and " " not in token):
            raise typer.BadParameter("a token is printable ASCII without spaces", param_hint="--token")
        return token


@dataclass(frozen=True)
class LimitOptions:
    """Limits of what a client requests."""

    max_body: Annotated[str, Option("--max-body SIZE", "Size of a request.", panel=LIMITS)] = "8MiB"
    max_upload: Annotated[str, Option("--max-upload SIZE", "Size of a table of cases.", panel=LIMITS)] = "256MiB"
    max_cases: Annotated[int, Option(
        "--max-cases N", "Cases of one request.", least=1, panel=LIMITS)] = Settings.max_cases
    max_batch: Annotated[int, Option(
        "--max-batch N", "Requests that are computed together.", least=1, panel=LIMITS)] = Settings.max_batch
    queue: Annotated[int, Option(
        "--queue N", "Requests that may wait; more get a 503.", least=1, panel=LIMITS)] = Settings.queue
    timeout: Annotated[float, Option(
        "--timeout SECONDS", "Time that a query may take.", panel=LIMITS)] = Settings.timeout
    body_timeout: Annotated[float, Option(
        "--body-timeout SECONDS", "Time for a body, or for 16 KiB a second of it.", panel=LIMITS,
    )] = Settings.body_timeout
    exact: Annotated[bool, Option(
        "--exact", "Compute one by one, with last digits that do not depend on other requests.", panel=LIMITS)] = False
    log: Annotated[str, Option(
        "--log FORM", "A line for each request on stderr: none, text or json.", choices=("none", "text", "json"),
        panel=LIMITS)] = "none"
    log_evidence: Annotated[bool, Option("--log-evidence", "Include requests in these lines.", panel=LIMITS)] = False

    def keywords(self) -> dict[str, Any]:
        """The settings that these options make."""
        settings = {name: getattr(self, name) for name in self.__dataclass_fields__}
        try:
            Settings(**settings)
        except (ArgumentError, ValueError) as error:
            raise typer.BadParameter(str(error)) from None
        return settings


EXAMPLES = (
    "jtgpu serve alarm --open",
    "jtgpu serve nets/asia.net --name big=models/munin.net.xz --port 0",
    "jtgpu serve alarm --host 0.0.0.0 --token-file token.txt --workers 4 --log json",
)
MEMORY_SHARE = 0.8  # of the free memory



class Planned(NamedTuple):
    """A network, and its plan unless its parts are planned as it is compiled."""

    net: AnyNetwork
    plan: NetworkPlan | None


@command
def serve(  # noqa: PLR0913 (a Typer command)
    files: Annotated[list[str] | None, Option(
        "NET...", "Network files or names of bundled networks; each is served under the name of its file.",
        complete="networks")] = None,
    name: Annotated[list[str] | None, Option("--name NAME=FILE", "A network under another name. Repeatable.")] = None,
    *,
    address: AddressOptions,
    access: AccessOptions,
    limits: LimitOptions,
    plan: SlicedPlanOptions,
    run_on: RunOptions,
    json: Json = False,
) -> None:
    """Serve networks over HTTP, with a page for a browser, until Ctrl-C.

    Prints the address once every network is planned, compiled and warmed up. Listens at this machine only, unless
    --host names another address; then clients need a token, which is part of the printed address.
    """
    begun = time.perf_counter()
    networks = _networks(files or [], name or [])
    if plan.saved is not None and len(networks) > 1:
        raise typer.BadParameter("a saved plan is that of one network", param_hint="--plan")
    options = access.keywords() | limits.keywords() | {"sources": networks}
    if not is_loopback(address.host) and not options["token"]:
        if access.no_token:
            raise typer.BadParameter(f"other machines reach {address.host}: a token is needed", param_hint="--no-token")
        options["token"] = secrets.token_urlsafe(32)
    room.bind(address.host, address.port, shared=address.workers > 1).close()  # before minutes of planning
    run_on = _available(run_on)
    with status("planning", run_on.progress) as step:
        plans: dict[str, Planned] = {}
        for n, file in networks.items():
            step(f"planning {n}")
            net = load_any_kind(file)
            own = plan.make(net, file, run_on) if isinstance(net, DiscreteModel) and has_plan(net) else None
            plans[n] = Planned(net, own)
        if address.workers > 1:
            _check_memory(plans, address.workers, plan)

    def ready(port: int, trees: Mapping[str, AnyTree] | None = None) -> None:
        url = url_of(address.host, port, options["token"])
        if json:
            backends = sorted({where(t)["backend"] for t in trees.values()}) if trees else [run_on.backend]
            seconds = time.perf_counter() - begun
            about = {"url": url, "networks": [*plans], "backend": ", ".join(backends), "seconds": round(seconds, 3)}
            print_json(about)
        else:
            print(url, flush=True)
        if address.open:
            webbrowser.open(url)

    if address.workers > 1:
        compile_trees = functools.partial(_compile_in_worker, plans, run_on)
        room.run_workers(compile_trees, address.workers, address.host, address.port, options, address.grace, ready)
    else:
        _serve_here(plans, run_on, address, options, ready)


def _serve_here(
    plans: Mapping[str, Planned], run_on: RunOptions, address: AddressOptions, options: Mapping[str, Any],
    ready: Callable[[int, Mapping[str, AnyTree]], None],
) -> None:  # fmt: skip
    """Serve in this process."""
    trees: dict[str, AnyTree] = {}
    try:
        with status(COMPILING, run_on.progress) as step:
            for name, made in plans.items():
                trees[name] = _compile(run_on, made, step)
            app = room.make_app(trees, address.host, **options)
            app.warm(step)
        sock = room.bind(address.host, address.port)
        port = int(sock.getsockname()[1])
        room.run(app, sock, grace=address.grace, ready=lambda: ready(port, trees))
    finally:
        for tree in trees.values():
            tree.close()


def _compile_in_worker(plans: Mapping[str, Planned], run_on: RunOptions, number: int) -> dict[str, AnyTree]:
    """The trees of a worker; if several GPUs are given, each worker uses one."""
    cards = run_on.device_option().get("devices")
    if isinstance(cards, list) and len(cards) > 1:
        run_on = RunOptions(run_on.backend, run_on.threads, run_on.dtype, str(cards[number % len(cards)]))
    return {name: _compile(run_on, made, lambda line: None) for name, made in plans.items()}


def _available(run_on: RunOptions) -> RunOptions:
    """The options; those of the CPU, with a warning, if they name a GPU and there is none."""
    if run_on.backend not in ("auto", "gpu") or (run_on.backend == "auto" and run_on.devices is None):
        return run_on
    try:
        free_on_devices("gpu", **run_on.device_option())
    except BackendUnavailable as error:
        warn(f"the CPU is used, since no GPU is available: {error}")
        return RunOptions("cpu", run_on.threads, progress=run_on.progress)
    return run_on


def _compile(run_on: RunOptions, made: Planned, step: Callable[[str], None]) -> AnyTree:
    """Compile a plan, on the CPU with a warning if the GPU fails; networks without one on the CPU."""
    plan = made.plan
    if plan is None:
        options: Any = {"threads": run_on.threads} if run_on.threads else {}
        return made.net.compile("cpu", **options)
    try:
        return run_on.compile(plan, step)
    except BackendUnavailable as error:
        if run_on.backend != "gpu" and run_on.devices is None:
            raise
        warn(f"the CPU is used, since the GPU failed: {error}")
        return plan.compile("cpu", progress=step)


def _networks(files: Sequence[str], named: Sequence[str]) -> dict[str, str]:
    """Names of networks and their files."""
    pairs = [(_name(file), file) for file in files]
    for text in named:
        name, equals, file = text.partition("=")
        if not (name and equals and file) or "/" in name:
            raise typer.BadParameter(f"expected NAME=FILE, a name without slashes, got {text!r}", param_hint="--name")
        pairs.append((name, file))
    if not pairs:
        raise typer.BadParameter("name a network, such as: jtgpu serve asia", param_hint="NET")
    networks: dict[str, str] = {}
    for name, file in pairs:
        if name in networks:
            raise typer.BadParameter(
                f"{networks[name]} and {file} have the same name {name!r}; pass --name OTHER={file}",
                param_hint="--name",
            )
        networks[name] = file
    return networks


def _name(file: str) -> str:
    """The name of a file without its suffix."""
    name = Path(file).name
    suffixes = sorted(file_suffixes(), key=len, reverse=True)
    return next((name[: -len(s)] for s in suffixes if name.lower().endswith(s) and len(name) > len(s)), name)


def _check_memory(plans: Mapping[str, Planned], workers: int, plan: SlicedPlanOptions) -> None:
    """Raise `TableTooLarge` if the tables of all workers do not fit."""
    needed = workers * sum(made.plan.cost().bytes for made in plans.values() if made.plan is not None)
    limit = int(MEMORY_SHARE * free_memory()) if plan.memory is None else parse_bytes(plan.memory, "memory_limit")
    if needed > limit:
        raise TableTooLarge(
            f"{workers} workers need {format_bytes(needed)}; the limit is {format_bytes(limit)}", -1, needed, limit
        )

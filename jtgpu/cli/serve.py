"""``jtgpu serve``: networks as a web service with a page."""

from __future__ import annotations

import functools
import secrets
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from click import BadParameter

from .. import serve as room
from ..backends import free_on_devices
from ..errors import ArgumentError, BackendUnavailable, TableTooLarge, format_bytes
from ..formats.registry import file_suffixes
from ..inference.network_plan import NetworkPlan
from ..model.discrete import DiscreteModel
from ..options.compute import Compute, CutPlanning
from ..options.serving import Limits
from ..serve.settings import Settings, is_loopback, url_of
from ..serve.trees import AnyNetwork, AnyTree, has_plan, where
from ..util.system import free_memory, parse_bytes
from .console import print_json, warn
from .declared import Access, Address, Serve
from .networks import load_any_kind
from .planning import COMPILING, make_plan
from .tables import status

MEMORY_SHARE = 0.8  # of the free memory


class Planned(NamedTuple):
    """A network, and its plan unless its parts are planned as it is compiled."""

    net: AnyNetwork
    plan: NetworkPlan | None


def serve(o: Serve, address: Address, access: Access, limits: Limits, plan: CutPlanning, run_on: Compute) -> None:
    """Run ``jtgpu serve``."""
    begun = time.perf_counter()
    networks = _networks(o.files, o.name)
    if plan.plan is not None and len(networks) > 1:
        raise BadParameter("a saved plan is that of one network", param_hint="--plan")
    options = _settings(access, limits) | {"sources": networks}
    if not is_loopback(address.host) and not options["token"]:
        if access.no_token:
            raise BadParameter(f"other machines reach {address.host}: a token is needed", param_hint="--no-token")
        options["token"] = secrets.token_urlsafe(32)
    room.bind(address.host, address.port, shared=address.workers > 1).close()  # before minutes of planning
    run_on = _available(run_on)
    with status("planning", run_on.progress) as step:
        plans: dict[str, Planned] = {}
        for n, file in networks.items():
            step(f"planning {n}")
            net = load_any_kind(file)
            own = make_plan(plan, net, file, run_on) if isinstance(net, DiscreteModel) and has_plan(net) else None
            plans[n] = Planned(net, own)
        if address.workers > 1:
            _check_memory(plans, address.workers, plan)

    def ready(port: int, trees: Mapping[str, AnyTree] | None = None) -> None:
        url = url_of(address.host, port, options["token"])
        if o.json:
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


def _settings(access: Access, limits: Limits) -> dict[str, Any]:
    """The settings of the server."""
    given = vars(limits)
    try:
        Settings(**given)
    except (ArgumentError, ValueError) as error:
        raise BadParameter(str(error)) from None
    return given | {
        "token": _token(access), "allow_origins": access.allow_origin, "allow_hosts": access.allow_host,
        "embed": access.embed, "api_only": access.api_only, "page": "" if access.page is None else str(access.page),
        "read_only": access.read_only,
    }  # fmt: skip


def _token(access: Access) -> str:
    given = access.token is not None or access.token_file is not None
    if sum((access.token is not None, access.token_file is not None, access.no_token)) > 1:
        raise BadParameter("give one of --token, --token-file and --no-token", param_hint="--token")
    token = access.token or ""
    if access.token_file is not None:
        try:
            token = access.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise BadParameter(f"{access.token_file}: {reason}", param_hint="--token-file") from None
    if given and not (token and token.isascii() and token.isprintable() and " " not in token):
        raise BadParameter("a token is printable ASCII without spaces", param_hint="--token")
    return token


def _serve_here(
    plans: Mapping[str, Planned], run_on: Compute, address: Address, options: Mapping[str, Any],
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


def _compile_in_worker(plans: Mapping[str, Planned], run_on: Compute, number: int) -> dict[str, AnyTree]:
    """The trees of a worker; if several GPUs are given, each worker uses one."""
    cards = run_on.device_option().get("devices")
    if isinstance(cards, list) and len(cards) > 1:
        run_on = run_on.replaced(devices=[cards[number % len(cards)]])
    return {name: _compile(run_on, made, lambda line: None) for name, made in plans.items()}


def _available(run_on: Compute) -> Compute:
    """The options; those of the CPU, with a warning, if they name a GPU and there is none."""
    if run_on.backend not in ("auto", "gpu") or (run_on.backend == "auto" and run_on.devices is None):
        return run_on
    try:
        free_on_devices("gpu", **run_on.device_option())
    except BackendUnavailable as error:
        warn(f"the CPU is used, since no GPU is available: {error}")
        return Compute(backend="cpu", threads=run_on.threads, progress=run_on.progress)
    return run_on


def _compile(run_on: Compute, made: Planned, step: Callable[[str], None]) -> AnyTree:
    """Compile a plan, on the CPU with a warning if the GPU fails; networks without one on the CPU."""
    plan = made.plan
    if plan is None:
        return made.net.compile("cpu", **run_on.threads_option())
    try:
        tree: AnyTree = run_on.compile(plan, step)
        return tree
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
            raise BadParameter(f"expected NAME=FILE, a name without slashes, got {text!r}", param_hint="--name")
        pairs.append((name, file))
    if not pairs:
        raise BadParameter("name a network, such as: jtgpu serve asia", param_hint="NET")
    networks: dict[str, str] = {}
    for name, file in pairs:
        if name in networks:
            raise BadParameter(
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


def _check_memory(plans: Mapping[str, Planned], workers: int, plan: CutPlanning) -> None:
    """Raise `TableTooLarge` if the tables of all workers do not fit."""
    needed = workers * sum(made.plan.plan.cost().bytes for made in plans.values() if made.plan is not None)
    given = plan.memory_limit
    limit = int(MEMORY_SHARE * free_memory()) if given is None else parse_bytes(given, "memory_limit")
    if needed > limit:
        raise TableTooLarge(
            f"{workers} workers need {format_bytes(needed)}; the limit is {format_bytes(limit)}", -1, needed, limit
        )

"""Networks as a Ray Serve application: `deployment`. Each replica holds the trees and answers the whole API.

A replica batches its requests as `jtgpu serve` does, without a timer; Ray distributes requests over the replicas,
replaces replicas that die, and starts more of them on request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..errors import ArgumentError, JtgpuError
from ..inference.network_plan import NetworkPlan
from ..util.arguments import described, number, text, whole_number
from .settings import Settings

if TYPE_CHECKING:
    from ..util.options import BackendName

AT_ONCE = 5_000_000  # bytes of a table that one replica answers at once
ONGOING = 1024  # requests of a replica


def deployment(
    plans: NetworkPlan | Mapping[str, NetworkPlan], *, token: str, name: str = "jtgpu", backend: BackendName = "auto",
    replicas: int = 1, cpus: float = 1.0, gpus: float = 0.0, **options: Any,
) -> Any:  # fmt: skip
    """A Ray Serve application that answers questions about networks; run it by ``ray.serve.run``.

    Parameters
    ----------
    plans : NetworkPlan or mapping of str to NetworkPlan
        Plans by the names that clients use; one plan has the name of its network. A replica receives the plans, never
        plans itself, and compiles them.
    token : str
        Clients send it as ``Authorization: Bearer TOKEN``. Empty: everyone who reaches the cluster has access.
    name : str, default "jtgpu"
        Of the deployment.
    backend : str, default "auto"
    replicas : int, default 1
    cpus, gpus : float
        Cores and GPUs of a replica.
    **options
        See `jtgpu.serve.settings.Settings`. ``allow_hosts`` is ``["*"]`` by default, since Ray's proxies receive the
        requests. Replicas that share no ``folder`` have no jobs: with several of them, tables have at most 5 MB.

    Returns
    -------
    ray.serve.Application

    Raises
    ------
    JtgpuError
        Without ``ray[serve]``.
    ArgumentError
        If an option is invalid.

    Examples
    --------
    >>> import jtgpu, jtgpu.serve
    >>> app = jtgpu.serve.deployment(jtgpu.load("alarm").plan(), token="secret", replicas=2)  # doctest: +SKIP
    >>> ray.serve.run(app, route_prefix="/")  # doctest: +SKIP
    """
    named = _named(plans)
    whole_number("replicas", replicas, least=1)
    number("cpus", cpus, least=0)
    number("gpus", gpus, least=0)
    options = {"allow_hosts": ("*",), **options, "token": text("token", token)}
    if replicas > 1 and not options.get("folder"):
        options.setdefault("max_upload", AT_ONCE)
    Settings.of(options)
    serve = _ray_serve()
    resources = {"num_cpus": cpus, "num_gpus": gpus}
    replica = serve.ingress(_builder(named, backend, options))()
    return serve.deployment(
        name=text("name", name), num_replicas=replicas, max_ongoing_requests=ONGOING, ray_actor_options=resources
    )(replica).bind()


def _named(plans: NetworkPlan | Mapping[str, NetworkPlan]) -> dict[str, NetworkPlan]:
    if isinstance(plans, NetworkPlan):
        return {plans.model.name.replace("/", "-") or "network": plans}
    if (
        not isinstance(cast(object, plans), Mapping)
        or not plans
        or not all(isinstance(cast(object, p), NetworkPlan) for p in plans.values())
    ):
        raise ArgumentError(f"plans must be a plan or a mapping such as {{'asia': plan}}, not {described(plans)}")
    return dict(plans)


def _builder(plans: Mapping[str, NetworkPlan], backend: BackendName, options: Mapping[str, Any]) -> Callable[[], Any]:
    """A function that a replica calls to make its application."""

    def build() -> Any:
        from .app import App

        app = App({name: plan.compile(backend) for name, plan in plans.items()}, **options)
        app.warm()
        return app

    return build


def _ray_serve() -> Any:
    """Ray Serve, imported on first use."""
    try:
        from ray import serve
    except ImportError as error:
        raise JtgpuError(f"Ray Serve needs {error.name}: install jtgpu[serve] and ray[serve]") from None
    return serve

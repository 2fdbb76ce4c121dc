"""Writers of dynamic networks: XDSL here, JSON in `jtgpu.formats.dynamic_json`."""

from __future__ import annotations

from ..errors import FormatError
from ..model.dynamic import DynamicNetwork
from . import dynamic_json

WRITTEN = "JSON (.dynamic.json)"


def dumps_dynamic(net: DynamicNetwork, format_name: str) -> str:
    """The text of a file with a dynamic network."""
    # raises FormatError: If the format has no slices, or cannot represent something in the network.
    if format_name == "dynamic JSON":
        return dynamic_json.dumps(net)
    raise FormatError(
        f"a {format_name} file cannot contain a dynamic network; formats that can are {WRITTEN}, and dyn.unroll(10) is "
        "the Bayesian network of ten slices"
    )

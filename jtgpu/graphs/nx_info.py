"""Facts about the backend ``"jtgpu"`` that networkx reads when it is imported; imports nothing, to take no time."""

from __future__ import annotations


def get_info() -> dict[str, object]:
    """Describe the backend."""
    return {
        "backend_name": "jtgpu",
        "project": "jtgpu",
        "package": "jtgpu",
        "short_summary": "Exact betweenness on all cores, with weights and any number of shortest paths.",
        "functions": {
            name: {"additional_docs": "On all cores; bit-identical for any number of threads."}
            for name in ("betweenness_centrality", "edge_betweenness_centrality")
        },
    }

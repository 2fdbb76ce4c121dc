"""From a junction tree to the contractions that run: a contraction forest and its reverse sweep.

A *contraction forest* has the model's factors as leaves. An inner node multiplies its children and sums out every
variable that no node outside its subtree contains; its scope is what the rest of the model still needs. The roots have
empty scope, and their product is P(e).

Every lowering is such a forest, built along the junction tree from the leaf cliques to the root:

* ``"clique"``: a node is a clique, its children are the clique's factors and the incoming messages. The sweep is
  Shafer-Shenoy propagation (Shafer and Shenoy, Probability propagation, 1990).
* ``"pairwise"``: the work of a clique is split into contractions of two tables, the nodes of a binary join tree
  (Shenoy, Binary join trees for computing marginals in the Shenoy-Shafer architecture, 1997); the clique's full table
  is never built.
* ``"shallow"``: as ``"pairwise"``, then the tree is balanced until its critical path is short (`jtgpu.plans.balance`):
  somewhat more products and up to half the levels, which is what single cases on a GPU wait for.

The reverse sweep is the derivative of the forward one (Darwiche, A differential approach to inference in Bayesian
networks, JACM 50, 2003): with D_root = 1, the child a of a node n with siblings b has D_a = sum D_n * prod U_b. The
posterior of a variable is U_n * D_n summed onto it, at the node where that is cheapest. There are no divisions, so
zeros need no special treatment.
"""

from __future__ import annotations

from .lower import LOWERINGS, PRICE, lay_out, lower, program_arrays, relowered
from .program import ContractionProgram

__all__ = ["LOWERINGS", "PRICE", "ContractionProgram", "lay_out", "lower", "program_arrays", "relowered"]

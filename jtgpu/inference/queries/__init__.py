"""The queries of a compiled model, one module for each kind.

A query takes a `jtgpu.inference.compiled.CompiledModel` and evidence by number, runs cases on its backend, and returns
one of `jtgpu.inference.results`. Queries know plans and the interface of backends, but no particular backend, so each
works on all of them. Functions whose first parameter is ``self`` are methods of `jtgpu.JunctionTree`.
"""

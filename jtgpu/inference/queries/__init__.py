"""Questions beyond single posteriors, each a module: what a backend answers, turned into what was asked.

They stand on `jtgpu.backends.base.Backend` and a plan, so what they know of holds on every backend; `jtgpu.inference.tree` has a
thin method for each and imports its module on first use.
"""

"""Parameters from data: CPTs of a given structure, by counting or by the EM algorithm; see `jtgpu.learn.fit`."""

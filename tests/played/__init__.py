"""A GPU played by the host; see `tests.support.emulated.plugin`."""

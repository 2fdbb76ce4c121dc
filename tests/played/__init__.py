"""A GPU played by the host; see `tests.host_device`."""

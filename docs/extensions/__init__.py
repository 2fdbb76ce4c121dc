"""Sphinx extensions of the documentation site: pages that are made from the package itself."""

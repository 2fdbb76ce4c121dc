"""Layered drawings of directed acyclic graphs, after Sugiyama, Tagawa and Toda (1981): integers in, integers out."""

"""Screening on GPUs: a tree of boxes built on the device, and searches of it."""

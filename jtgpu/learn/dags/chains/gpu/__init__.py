"""Chains over orders and partitions on GPUs, a warp a chain."""

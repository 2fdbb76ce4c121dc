"""Networks of states and numbers: conditional Gaussians, answered exactly (Lauritzen and Jensen, 2001)."""

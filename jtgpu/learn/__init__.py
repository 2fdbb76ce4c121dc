"""Learning from data: a Bayesian-network classifier."""

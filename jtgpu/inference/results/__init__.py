"""Results of queries: probabilities and configurations, labelled with the names of variables and states."""

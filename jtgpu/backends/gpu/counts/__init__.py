"""Expected counts of tables of cases on a GPU."""

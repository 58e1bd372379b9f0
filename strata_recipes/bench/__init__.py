"""Arms side by side: the order of runs, what became of each, statistics of pairs, and the report as values. Runs nothing, opens nothing."""

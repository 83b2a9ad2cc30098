"""Steps over whole tables by all ranks, beside the same on one rank that gathers the rows."""

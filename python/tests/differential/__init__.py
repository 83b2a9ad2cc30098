"""Random queries on ranks of one process, compared with Polars' own answers: one seed, one case."""

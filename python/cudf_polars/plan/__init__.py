"""The typed plan: what a Polars query does, read from Polars and turned back into Polars."""

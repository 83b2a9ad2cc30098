"""The engines that Polars calls through ``collect(engine=...)``."""

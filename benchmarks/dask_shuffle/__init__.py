"""A Dask DataFrame shuffled through rapidsmpf, beside Dask's own ways."""

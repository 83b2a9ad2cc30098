"""``PartitionBy`` of a large table by several ranks, beside one rank."""

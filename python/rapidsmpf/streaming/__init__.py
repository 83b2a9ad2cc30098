"""What the nodes of a query run on, and how the rows of one fragment get into the next."""

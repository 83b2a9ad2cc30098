"""What a rank holds in memory under a budget."""

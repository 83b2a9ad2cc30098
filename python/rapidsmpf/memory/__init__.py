"""Memory: tiers, budgets, and bytes that can be moved between tiers."""

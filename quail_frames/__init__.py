"""AI operators for Polars data frames: lazy expressions, a cost-based plan, and a streaming runtime of our own."""

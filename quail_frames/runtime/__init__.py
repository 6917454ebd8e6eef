"""Running a physical plan: engine, scheduler, batches, KV memory, models. Imports neither polars nor sqlglot."""

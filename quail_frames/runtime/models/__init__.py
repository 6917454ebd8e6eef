"""Models: finding their files, reading their weights, and the decoder in torch. Imports neither polars nor sqlglot."""

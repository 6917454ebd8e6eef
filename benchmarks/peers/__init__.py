"""The same questions, weights, token ids, cores and dtype through quail-frames and through another engine."""

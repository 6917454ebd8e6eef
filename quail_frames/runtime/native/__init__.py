"""C kernels for CPUs with AMX: the layers of a bfloat16 decoder and its attention. `source/` has the C."""

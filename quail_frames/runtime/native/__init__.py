"""C kernels for CPUs with AMX: what lies between the matrix products of a bfloat16 decoder. `source/` has the C."""

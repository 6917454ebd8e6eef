"""Triton kernels, one operation a module. Importing any of these needs Triton; nothing imports them before use."""

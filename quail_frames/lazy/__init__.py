"""What the user says: AI expressions, prompts, the lazy frame, and driving a plan through the engine.

The only part (with `namespaces`) that knows Polars; imports optimizer, runtime and plan.
"""

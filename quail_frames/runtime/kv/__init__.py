"""KV memory: pages, contexts that own them, and what stays resident for later reuse."""

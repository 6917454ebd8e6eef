"""Read-outs: from the logits at an ask's read rows to its answer."""

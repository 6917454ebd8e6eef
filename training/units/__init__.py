"""Training units, drawn by a seeded generator: each is a text or two with all the questions asked of them."""

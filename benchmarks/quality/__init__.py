"""How good the answers are: held-out tasks asked through the public interface, `python -m benchmarks.quality`.

Nothing of the suite, texts, labels or wordings, is in the training of the packaged adapter.
"""

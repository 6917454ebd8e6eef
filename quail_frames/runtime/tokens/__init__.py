"""Token pieces of prompts: tokenizers, ragged token arrays, prompt layouts."""

"""Label scoring over a trie: what is asked, and how log-probabilities become label scores.

`trie_decode` walks the trie greedily and runs the model only where labels branch; `trie_tree` scores all labels in
one tree-masked ask; `letters` reads one row; `decision_choice` reads the last row of every option through a head of
its own. Definitions: docs/prompts.md.
"""

from quail_frames.plan.label_scoring.decode import DecodeProgram, DecodeStep, decode_program
from quail_frames.plan.label_scoring.figures import ScoringFigures, decision_figures, letter_figures
from quail_frames.plan.label_scoring.tree import TreeProgram, tree_program

__all__ = [
    "DecodeProgram",
    "DecodeStep",
    "ScoringFigures",
    "TreeProgram",
    "decision_figures",
    "decode_program",
    "letter_figures",
    "tree_program",
]

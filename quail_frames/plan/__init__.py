"""The shared vocabulary: AI calls, conditions, physical plans. Imports no other part of the package."""

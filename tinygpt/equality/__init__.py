"""Is a checkpointed model the plain one, bit by bit? Every variant, eager and compiled, under every wrapper."""

from tinygpt.equality.case import Case, Verdict, cases, compare

__all__ = ["Case", "Verdict", "cases", "compare"]

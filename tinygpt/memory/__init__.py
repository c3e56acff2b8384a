"""The memory of a run, measured."""

from tinygpt.memory.measure import Counters, Reading, counters, measure

__all__ = ["Counters", "Reading", "counters", "measure"]

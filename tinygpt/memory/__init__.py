"""The memory of a run: measured, predicted, guarded."""

from tinygpt.memory.estimate import Estimate, estimate_peak
from tinygpt.memory.guard import guard
from tinygpt.memory.measure import Counters, Reading, counters, measure
from tinygpt.memory.probe import Probe, probe

__all__ = ["Counters", "Estimate", "Probe", "Reading", "counters", "estimate_peak", "guard", "measure", "probe"]

"""Pictures of what was measured, from its JSON alone: a dict in, the bytes of SVG and PNG files out.

Four kinds: the frontier of memory and time, the peak over the depth, the memory in the course of a step, and the
wrappers and frameworks side by side. Separate from the tables because they need matplotlib, which is loaded when a
picture is drawn and not before.
"""

from tinygpt.report.plots.drawing import Drawn, draw

__all__ = ["Drawn", "draw"]

"""The saving that every preset must show: its rows, what of them a machine can run, and the verdict."""

from tinygpt.savings.judge import RowReport, judge
from tinygpt.savings.machine import this_machine
from tinygpt.savings.plan import Machine, Plan, plan
from tinygpt.savings.reading import read_row
from tinygpt.savings.rows import threshold

__all__ = ["Machine", "Plan", "RowReport", "judge", "plan", "read_row", "this_machine", "threshold"]

"""Where in a group of dispatches a piece of work begins: why a peak on the CPU reads now this, now that.

MLX's CPU backend counts the operations of a stream in groups of ten, and an evaluation that waits can only wait for
whole groups (``DISPATCHES_PER_TASK`` in mlx/backend/cpu/encoder.h). Up to nine operations run ahead, so a peak depends
on where in a group the work begins. Trials that begin at each of the ten places read the same least peak every time,
unless something crowds the thread that dispatches: then the operations before have freed their buffers sooner than they
ever do on an idle machine, and a trial reads less (up to 2 % in one of eight, with three busy processes on that
thread's core; MLX 0.32.4, two cores, 2026-12-01). What compares peaks closely takes the median of several trials.
"""

import mlx.core as mx

GROUP = 10

# Places at which trials begin, relative to the first, for work that dispatches nothing. Work that dispatches k
# operations adds k to every further trial; for every k from 0 to 9 these 17 still cover all ten places. Found by
# search; 16 or fewer were not.
PLACES = (0, 4, 2, 8, 7, 8, 5, 1, 2, 5, 2, 9, 8, 3, 3, 6, 3)


def move_to_place(trial: int) -> None:
    """Dispatch what it takes to begin the trial of that number at its place; places come round again."""
    if trial:
        here, before = (PLACES[number % len(PLACES)] for number in (trial, trial - 1))
        for _ in range((here - before) % GROUP):
            mx.eval(-mx.array(1.0))

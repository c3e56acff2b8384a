"""How bytes and counts are written for people: binary units, and said so."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


def format_bytes(size_bytes: float) -> str:
    """Return a size with one decimal in the largest binary unit that it fills, as in ``"1.5 GiB"``."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size_bytes) >= unit:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes:.0f} B"


def format_mib(size_bytes: float) -> str:
    """Return a size in MiB with one decimal, for columns and lines that must compare."""
    return f"{size_bytes / MIB:,.1f} MiB"

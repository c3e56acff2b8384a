"""Where a run took place: what a report must say for its numbers to mean anything."""

import importlib.metadata
import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

# What changes MLX's results, their memory or their speed from outside.
VARIABLES = (
    "MLX_BFS_MAX_WIDTH",
    "MLX_DISABLE_COMPILE",
    "MLX_ENABLE_TF32",
    "MLX_MAX_MB_PER_BUFFER",
    "MLX_MAX_OPS_PER_BUFFER",
)

_BACKENDS = ("mlx", "mlx-metal", "mlx-cpu", "mlx-cuda", "mlx-cuda-12", "mlx-cuda-13")


def backend() -> str:
    """Return what MLX computes on by default: ``cpu``, ``metal`` or ``cuda``."""
    import mlx.core as mx  # noqa: PLC0415  (a report is also read where MLX is not installed)

    if mx.default_device() == mx.Device(mx.cpu):
        return "cpu"
    return "metal" if mx.metal.is_available() else "cuda"


def describe() -> dict[str, Any]:
    """Return the versions, the device and the variables of this process, ready for JSON."""
    return {
        "backend": backend(),
        "device": _processor() if backend() == "cpu" else _gpu(),
        "packages": {name: version for name in _BACKENDS if (version := _version(name))},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _gpu() -> str:
    import mlx.core as mx  # noqa: PLC0415

    device_info = getattr(mx, "device_info", None) or mx.metal.device_info
    with suppress(RuntimeError, ValueError):
        return str(device_info().get("device_name", ""))
    return ""


def _processor() -> str:
    """Return the name of the CPU, from the system: MLX tells it from 0.30 on, and one machine must have one name."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or platform.machine()


def written_by() -> dict[str, str]:
    """Return what a file says about where it comes from: releases and backend."""
    from tinygpt import __version__  # noqa: PLC0415

    return {"tinygpt": __version__, "mlx": _version("mlx") or "unknown", "backend": backend()}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None

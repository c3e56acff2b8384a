"""The command line: ``tinygpt train``, ``tinygpt check``, ``tinygpt report``."""

from tinygpt.cli.entry import main, parser

__all__ = ["main", "parser"]

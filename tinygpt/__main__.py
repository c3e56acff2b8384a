"""``python -m tinygpt`` is the ``tinygpt`` command."""

import sys

from tinygpt.cli import main

if __name__ == "__main__":
    sys.exit(main())

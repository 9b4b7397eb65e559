"""``python -m tilesight``: the command line."""

import sys

from tilesight.cli import main

if __name__ == "__main__":
    sys.exit(main())

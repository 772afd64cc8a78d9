"""`python -m kvplan`."""

import sys

from kvplan.commands.app import main

if __name__ == "__main__":
    sys.exit(main())

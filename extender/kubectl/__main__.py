"""Lets `python -m extender.kubectl` run the plugin where its script is not on the path. It must hold no logic."""

import sys

from extender.kubectl import main

if __name__ == "__main__":
    sys.exit(main())

"""The checkout's entry, the same as the console script `strata`: one config in, a plan, a run, one results folder out."""

import sys

from strata_recipes.modes.entry import main

if __name__ == "__main__":
    sys.exit(main())

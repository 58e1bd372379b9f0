"""The checkout's entry, the same as the console script `strata`: one config in, a plan, a run, one results folder out."""

import sys

if __name__ == "__main__":
    try:
        from strata_recipes.modes.entry import process
    except KeyboardInterrupt:  # before our own handler stands
        sys.exit(130)
    process()

"""The config files, one folder a group. A package only so that a wheel carries them as strata_recipes.conf."""

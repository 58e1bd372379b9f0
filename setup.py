"""What pyproject.toml cannot say: all packages are found, and conf/ is one of them, as strata_recipes.conf."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["strata_recipes*", "kernels_numba*"]), "strata_recipes.conf"],
    package_dir={"strata_recipes.conf": "conf"},
    package_data={"strata_recipes": ["assets/*.gguf", "assets/tables/*.yaml"], "strata_recipes.conf": ["**/*.yaml"]},
)

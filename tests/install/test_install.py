"""Plain, editable and wheel installs, each in its own environment and used from another folder.

The environments borrow this one's dependencies by links, so that nothing is fetched; our own packages are not among the links.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("strata_recipes", "kernels_numba", "__editable__")
SOURCES = ("strata_recipes", "kernels_numba", "conf")
FILES = ("run.py", "setup.py", "pyproject.toml", "README.md", "LICENSE")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the environments are linked, which Windows allows to few")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is shipped, so that no build folder is left in the tree."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "elsewhere"


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a new environment with this one's dependencies."""
    links = tmp_path / "dependencies"
    links.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(OURS):
            (links / entry.name).symlink_to(entry)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    )
    Path(site.stdout.strip(), "dependencies.pth").write_text(f"import site; site.addsitedir({str(links)!r})\n")
    return python


def call(*command: str | Path, cwd: Path) -> str:
    """What a command prints; it must end with 0, and sees no PYTHONPATH of ours."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def pip(python: Path, *arguments: str | Path, cwd: Path) -> None:
    call(python, "-m", "pip", *arguments, "--no-deps", "--no-build-isolation", "--no-index", "--quiet", cwd=cwd)


def conf_of(python: Path, cwd: Path) -> Path:
    script = "from strata_recipes.config.compose import compose_config, conf_dir; compose_config(); print(conf_dir())"
    return Path(call(python, "-c", script, cwd=cwd).strip())


def test_a_plain_install_from_elsewhere_and_from_the_checkout(python: Path, checkout: Path, elsewhere: Path) -> None:
    pip(python, "install", checkout, cwd=elsewhere)
    installed = conf_of(python, elsewhere)
    assert installed.parts[-3:] == ("site-packages", "strata_recipes", "conf")
    strata = python.with_name("strata")
    assert "kv: fp16, fp32, int8, q4_0" in call(strata, "--help", cwd=elsewhere)
    assert "chunk: 64" in call(python, checkout / "run.py", "--cfg", "job", "prefill.chunk=64", cwd=elsewhere)
    assert conf_of(python, checkout) == (checkout / "conf").resolve()
    assert "kv: fp16, fp32, int8, q4_0" in call(python, "run.py", "--help", cwd=checkout)
    assert list(elsewhere.iterdir()) == []


def test_an_editable_install_follows_the_checkout(python: Path, checkout: Path, elsewhere: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(checkout, mine, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip(python, "install", "--editable", mine, cwd=elsewhere)
    assert conf_of(python, elsewhere) == (mine / "conf").resolve()
    (mine / "conf" / "kv" / "added.yaml").write_text("format: fp16\n")
    assert "kv: added, fp16, fp32, int8, q4_0" in call(python.with_name("strata"), "--help", cwd=elsewhere)


def test_a_wheel_holds_what_is_shipped_and_runs_from_anywhere(python: Path, checkout: Path, elsewhere: Path, tmp_path: Path) -> None:
    pip(python, "wheel", checkout, "--wheel-dir", tmp_path / "wheels", cwd=elsewhere)
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == shipped(checkout)
    pip(python, "install", wheel, cwd=elsewhere)
    assert conf_of(python, elsewhere).parts[-3:] == ("site-packages", "strata_recipes", "conf")
    assert "format: fp16" in call(python.with_name("strata"), "--cfg", "job", "kv=fp16", cwd=elsewhere)


def shipped(folder: Path) -> set[str]:
    """All sources, all configs as strata_recipes.conf, the demo model and the published tables."""
    code = {path.relative_to(folder).as_posix() for name in SOURCES[:2] for path in (folder / name).rglob("*.py")}
    conf = {
        f"strata_recipes/{path.relative_to(folder).as_posix()}" for path in (folder / "conf").rglob("*") if path.suffix in (".yaml", ".py")
    }
    tables = {path.relative_to(folder).as_posix() for path in (folder / "strata_recipes" / "assets" / "tables").iterdir()}
    return code | conf | tables | {"strata_recipes/assets/storyteller.gguf"}

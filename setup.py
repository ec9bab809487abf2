"""Build of the package; pyproject.toml describes it, requirements.txt pins what it needs."""

from pathlib import Path

from setuptools import setup

pins = Path(__file__).with_name("requirements.txt").read_text(encoding="utf-8").split("\n")
# requirements.txt also installs this package itself: -e .
setup(install_requires=[line for line in pins if line and not line.startswith("-")])

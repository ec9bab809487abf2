"""Base of the tiny runs that name none; `pytest --base 2.5` changes it, for the failure table."""

name = "2.0"

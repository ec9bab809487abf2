#!/usr/bin/env bash
# The whole check: format, lint, types, import contracts, tests. Arguments go to pytest alone:
# ./test.sh tests/test_restore.py -k matched
set -eu
cd "$(dirname "$0")"
. ./setup_venv.sh
setup_venv requirements.txt requirements-dev.txt || exit $?
if [ $# -eq 0 ]; then
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .
    .venv/bin/mypy
    .venv/bin/lint-imports
fi
exec .venv/bin/python -m pytest "$@"

#!/usr/bin/env bash
# Format, lint, types, import contracts and tests: ./test.sh runs the short tests, for every commit;
# ./test.sh --all also runs those marked long. Other arguments go to pytest alone:
# ./test.sh tests/test_runs_restore.py -k matched
set -eu
cd "$(dirname "$0")"
. ./setup_venv.sh
setup_venv dev download distributed mcp trackers || exit $?
# The browser tests drive Debian's Chromium; the font draws Amharic in their screenshots.
if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -y -qq chromium fonts-sil-abyssinica >/dev/null
fi
if [ $# -eq 0 ] || [ "$*" = --all ]; then
    .venv/bin/ruff format --check .
    .venv/bin/ruff check .
    .venv/bin/mypy
    .venv/bin/lint-imports
    # A file's tests share what it makes once; tests/conftest.py puts the longest files first.
    selected="not long"
    [ $# -eq 0 ] || selected=""
    set -- -n auto --dist loadfile --no-loadscope-reorder -m "$selected"
fi
exec .venv/bin/python -m pytest "$@"

#!/usr/bin/env bash
# Makes .venv, then opens the page on http://127.0.0.1:7863 with the demo project prepared: ./run.sh [page flags]
set -eu
cd "$(dirname "$0")"
. ./setup_venv.sh
setup_venv || exit $?
exec .venv/bin/python webui_amharic.py "$@"

#!/usr/bin/env bash
# Makes .venv, then opens the page on http://127.0.0.1:7863 with the demo project prepared:
# ./run.sh [--torch cpu|cu126|default] [page flags]
set -eu
cd "$(dirname "$0")"
if [ "${1-}" = --torch ]; then
    TORCH=${2-}
    shift $(($# < 2 ? 1 : 2))
fi
. ./setup_venv.sh
setup_venv || exit $?
exec .venv/bin/python webui_amharic.py "$@"

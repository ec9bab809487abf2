#!/usr/bin/env bash
# Makes .venv, then runs the embedded demo from recordings to a trained model: ./run.sh [pipeline flags]
set -eu
cd "$(dirname "$0")"
. ./setup_venv.sh
setup_venv requirements.txt || exit $?
if [ $# -eq 0 ]; then
    set -- --demo
fi
exec .venv/bin/python tools/run_pipeline.py "$@"

#!/usr/bin/env bash
# Measure everything about the training step and preprocessing that needs a GPU, in one call of under 9 minutes:
#     benchmarks/gpu_round.sh [OUTPUT_FOLDER] [--device cpu --size tiny --steps 2]
# Results: OUTPUT_FOLDER/table.md and OUTPUT_FOLDER/preprocess.md; copy table.md to
# benchmarks/results/gpu_round_NAME.md. Each part runs in its own process with a time limit; OUTPUT_FOLDER/rows.jsonl
# keeps the finished rows if a part fails. The variable PYTHON names the interpreter.
set -u
cd "$(dirname "$0")/.."
case "${1:-}" in
    "" | --*) output=$(mktemp -d) ;;
    *) output=$1; shift ;;
esac
mkdir -p "$output"
rows=$output/rows.jsonl
rm -f "$rows"
python=${PYTHON:-python3}
limit_s=520
preprocess_s=90  # kept free for the last benchmark
export PYTHONUNBUFFERED=1
status=0
parts="numbers:60 speed:90 lora:40 compile:170 cached:60 options:110 codes:60 profile:80 reference:90 data:90"
# compilation takes minutes on a CPU
case "$*" in *"--device cpu"*) parts=${parts/compile:* cached:60 /} ;; esac
# the number behind each part is its time limit in seconds; no part needs all of it
for part in $parts; do
    left=$((limit_s - preprocess_s - SECONDS))
    seconds=${part#*:}
    [ "$seconds" -gt "$left" ] && seconds=$left
    [ "$seconds" -lt 5 ] && { echo "${part%:*}: no time left"; status=1; continue; }
    timeout --kill-after=5 "$seconds" "$python" -m benchmarks.gpu_round --part "${part%:*}" --rows "$rows" "$@" \
        || { echo "${part%:*}: failed with exit status $?"; status=1; }
done
left=$((limit_s - SECONDS))
device=cuda size=published clips=200
case "$*" in *"--device cpu"*) device=cpu size=tiny clips=8 ;; esac
if [ "$left" -gt 20 ]; then
    timeout --kill-after=5 "$left" "$python" -m benchmarks.preprocess --device "$device" --size "$size" \
        --clips "$clips" --output "$output/preprocess.md" || { echo "preprocess: failed with exit status $?"; status=1; }
else
    echo "preprocess: no time left"; status=1
fi
"$python" -m benchmarks.gpu_round --part table --rows "$rows" --output "$output/table.md" "$@" || status=1
exit $status

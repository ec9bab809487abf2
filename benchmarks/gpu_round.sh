#!/usr/bin/env bash
# Everything about the training step and preprocessing that only a card can tell, in one call of less than 9
# minutes:
#     benchmarks/gpu_round.sh [OUTPUT_FOLDER] [--device cpu --size tiny --steps 2]
# Each part has its own process and its own limit; what is done is in OUTPUT_FOLDER/rows.jsonl even if a part
# fails. PYTHON names the interpreter.
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
export PYTHONUNBUFFERED=1
status=0
parts="numbers:60 speed:90 reference:120 options:110 profile:80 data:90 compile:150"
case "$*" in *"--device cpu"*) parts=${parts% compile*} ;; esac  # compiling takes minutes there, and does not pay
# the seconds that a part may take at most: none of them needs it all
for part in $parts; do
    left=$((limit_s - SECONDS))
    seconds=${part#*:}
    [ "$seconds" -gt "$left" ] && seconds=$left
    [ "$seconds" -lt 5 ] && { echo "${part%:*}: no time is left"; status=1; continue; }
    timeout --kill-after=5 "$seconds" "$python" -m benchmarks.gpu_round --part "${part%:*}" --rows "$rows" "$@" \
        || { echo "${part%:*}: ended with status $?"; status=1; }
done
left=$((limit_s - SECONDS))
device=cuda size=published clips=200
case "$*" in *"--device cpu"*) device=cpu size=tiny clips=8 ;; esac
if [ "$left" -gt 20 ]; then
    timeout --kill-after=5 "$left" "$python" -m benchmarks.preprocess --device "$device" --size "$size" \
        --clips "$clips" --output "$output/preprocess.md" || { echo "preprocess: ended with status $?"; status=1; }
else
    echo "preprocess: no time is left"; status=1
fi
"$python" -m benchmarks.gpu_round --part table --rows "$rows" "$@" | tee "$output/table.md"
exit $status

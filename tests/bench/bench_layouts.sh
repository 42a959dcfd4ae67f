#!/bin/bash
# Predicted against measured: makes a device profile of this machine, trains under layouts of two
# sizes of GPT on the CPU, and prints the median time of their steps beside what is predicted with
# the profile; the fastest tenth of the steps as well, since other programs running here make every
# measured time longer: look at the load.
#   PROFILE=FILE takes that profile instead of making one; ONLY=PATTERN some of the layouts.
set -u
cd "$(dirname "$0")/../.." || exit 1
perilune=${BUILD:-build}/perilune
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
profile=${PROFILE:-$folder/cpu.json}

cat README.md ir/*.c ir/*.h planner/*.c runtime/*/*.c >"$folder/text.txt"
if [ -z "${PROFILE:-}" ]; then
    "$perilune" profile --device cpu -o "$profile" 2>"$folder/err" ||
        { cat "$folder/err"; exit 1; }
fi

# layout NAME STEPS OPTIONS...: one line of the table, and one of $folder/errors
layout() {
    local name=$1 steps=$2
    shift 2
    [[ $name == *${ONLY:-}* ]] || return 0
    if ! "$perilune" plan models/gpt.lua --device cpu "$@" --profile "$profile" \
        -o "$folder/gpt.plan" >/dev/null 2>"$folder/err" ||
        ! "$perilune" show "$folder/gpt.plan" --profile "$profile" --json >"$folder/plan.json" ||
        ! "$perilune" train "$folder/gpt.plan" --data "$folder/text.txt" --val-fraction 0 -q \
            --steps "$steps" --log "$folder/run.jsonl" >/dev/null 2>"$folder/err"; then
        echo "$name: $(head -1 "$folder/err")"
        failed=1
        return
    fi
    # Without the first quarter of the steps, in which memory is touched and products are prepared.
    local predicted measured # the median and the fastest tenth, in seconds
    predicted=$(grep -o '"step_us": *[0-9.e+]*' "$folder/plan.json" | head -1 | sed 's/.*: *//')
    measured=$(grep -o '"seconds": *[0-9.e+-]*' "$folder/run.jsonl" | sed 's/.*: *//' |
        tail -n "$((steps - steps / 4))" | sort -g |
        awk '{ s[NR] = $1 } END { print s[int((NR + 1) / 2)], s[int((NR + 9) / 10)] }')
    awk -v name="$name" -v predicted="$predicted" -v measured="$measured" -v to="$folder/errors" \
        'BEGIN {
        split(measured, m, " ")
        error = predicted * 1e-4 / m[1] - 100
        least = predicted * 1e-4 / m[2] - 100
        printf "%-40s %9.1f %9.1f %9.1f %+7.1f %% %+7.1f %%\n", name, predicted * 1e-3, m[1] * 1e3,
            m[2] * 1e3, error, least
        print error < 0 ? -error : error, least < 0 ? -least : least >>to
    }'
}

failed=0
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
printf '%-40s %9s %9s %9s %9s %9s\n' 'ms a step' predicted median fastest error error
batch="--global-batch 16"
# shellcheck disable=SC2086 # options are words
tiny() { layout "tiny, micro-batch $1, $2" 60 --micro-batch "$1" $batch $3; }
tiny 4 "1 rank" ""
tiny 4 "t=2" "--mesh t=2"
tiny 4 "d=2" "--mesh d=2"
tiny 4 "p=2" "--mesh p=2"
tiny 4 "p=2 in 2 chunks" "--mesh p=2 --schedule interleaved --chunks 2"
tiny 4 "t=2 d=2" "--mesh t=2,d=2"
tiny 4 "t=2 p=2" "--mesh t=2,p=2"
tiny 4 "d=2 p=2" "--mesh d=2,p=2"
tiny 1 "1 rank" ""
tiny 1 "p=2" "--mesh p=2"
tiny 16 "1 rank" ""
tiny 8 "d=2" "--mesh d=2"
tiny 4 "1 rank, recomputing" "--recompute full"
tiny 4 "1 rank, bf16" "--precision bf16"
batch="--set size=124m --set seq=256 --global-batch 4"
# shellcheck disable=SC2086
large() { layout "124m, seq 256, micro-batch $1, $2" 8 --micro-batch "$1" $batch $3; }
large 1 "1 rank" ""
large 1 "t=2" "--mesh t=2"
large 1 "d=2" "--mesh d=2"
large 1 "p=2" "--mesh p=2"
large 2 "1 rank" ""
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg)"
for column in 1 2; do
    awk -v c=$column '{ sum += $c; if ($c > most) most = $c; within += $c <= 15 }
        END { if (NR) printf "%s mean error %.1f %%, largest %.1f %%; within 15 %%: %d of %d\n",
            c == 1 ? "median: " : "fastest:", sum / NR, most, within, NR }' "$folder/errors"
done
exit $failed

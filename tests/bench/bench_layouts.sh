#!/bin/bash
# Predicted against measured: in each of several rounds makes a device profile of this machine, then
# trains under layouts of two sizes of GPT on the CPU. Prints the predicted time of a step, the
# median of the measured ones, the fastest tenth of them, and how far the prediction is from both:
# medians over the rounds, so that what other programs running here do to one round does not count.
#   ROUNDS=N (3); PROFILE=FILE takes that profile instead of making them; ONLY=PATTERN some layouts.
set -u
cd "$(dirname "$0")/../.." || exit 1
perilune=${BUILD:-build}/perilune
rounds=${ROUNDS:-3}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

cat README.md ir/*.c ir/*.h planner/*.c runtime/*/*.c >"$folder/text.txt"

# layout NAME STEPS OPTIONS...: a line of $folder/times: name, predicted, median and fastest tenth
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
    local predicted measured # milliseconds
    predicted=$(grep -o '"step_us": *[0-9.e+]*' "$folder/plan.json" | head -1 | sed 's/.*: *//')
    measured=$(grep -o '"seconds": *[0-9.e+-]*' "$folder/run.jsonl" | sed 's/.*: *//' |
        tail -n "$((steps - steps / 4))" | sort -g |
        awk '{ s[NR] = 1e3 * $1 } END { print s[int((NR + 1) / 2)] "\t" s[int((NR + 9) / 10)] }')
    printf '%s\t%s\t%s\n' "$name" "$(awk -v us="$predicted" 'BEGIN { print us / 1e3 }')" \
        "$measured" >>"$folder/times"
    echo "round $round of $rounds: $name: predicted $(tail -1 "$folder/times" | cut -f2) ms," \
        "measured $(tail -1 "$folder/times" | cut -f3)" >&2
}

# shellcheck disable=SC2086 # options are words
one_round() {
    local batch="--global-batch 16"
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
    large() { layout "124m, seq 256, micro-batch $1, $2" 5 --micro-batch "$1" $batch $3; }
    large 1 "1 rank" ""
    large 1 "t=2" "--mesh t=2"
    large 1 "d=2" "--mesh d=2"
    large 1 "p=2" "--mesh p=2"
    large 2 "1 rank" ""
}

failed=0
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
for round in $(seq "$rounds"); do
    profile=${PROFILE:-$folder/cpu.json}
    if [ -z "${PROFILE:-}" ] && ! "$perilune" profile --device cpu -o "$profile" 2>"$folder/err" \
        >/dev/null; then
        cat "$folder/err"
        exit 1
    fi
    one_round
done
echo "load after: $(cut -d' ' -f1-3 /proc/loadavg); rounds: $rounds"
awk -F '\t' '
    function median(list, n, at,    i, j, swap, sorted) {
        for (i = 1; i <= n; i++) sorted[i] = list[at, i]
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++) if (sorted[j] < sorted[i]) {
            swap = sorted[i]; sorted[i] = sorted[j]; sorted[j] = swap
        }
        return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
    }
    function say(what, c,    i, e, sum, most, within) {
        for (i = 1; i <= n_names; i++) {
            e = errors[i, c] < 0 ? -errors[i, c] : errors[i, c]
            sum += e; if (e > most) most = e; within += e <= 15
        }
        printf "%s mean error %.1f %%, largest %.1f %%; within 15 %%: %d of %d\n", what,
            sum / n_names, most, within, n_names
    }
    !($1 in index_of) { index_of[$1] = ++n_names; names[n_names] = $1 }
    {
        i = index_of[$1]; r = ++n_rounds[i]
        predicted[i, r] = $2; measured[i, r] = $3; fastest[i, r] = $4
        error[i, r] = 100 * $2 / $3 - 100; least[i, r] = 100 * $2 / $4 - 100
    }
    END {
        if (!n_names) exit
        printf "%-40s %9s %9s %9s %9s %9s\n", "ms a step", "predicted", "median", "fastest",
            "error", "error"
        for (i = 1; i <= n_names; i++) {
            errors[i, 1] = median(error, n_rounds[i], i)
            errors[i, 2] = median(least, n_rounds[i], i)
            printf "%-40s %9.1f %9.1f %9.1f %+7.1f %% %+7.1f %%\n", names[i],
                median(predicted, n_rounds[i], i), median(measured, n_rounds[i], i),
                median(fastest, n_rounds[i], i), errors[i, 1], errors[i, 2]
        }
        say("median: ", 1)
        say("fastest:", 2)
    }' "$folder/times"
exit $failed

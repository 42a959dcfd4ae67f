#!/usr/bin/env bash
# Where commands write: never over what they read, one thing to standard output, and a target that
# cannot be opened is wrong usage (2), failing while writing is failed work (1), everywhere.
# Catches: a required script that is overwritten, two documents in one stream, one that is dropped
# in silence, a command with exit codes of its own.
set -u
suite=outputs
. tests/cli/cases.sh

model=models/gpt.lua
small=(--set layers=2 --set model=32 --set heads=2 --set seq=16 --micro-batch 1 --global-batch 4)
runs=tests/data/published_runs.csv
plan=$folder/small.plan
text=$folder/text.txt
head -c 4000 README.md >"$text"
works 'a plan' '' plan $model "${small[@]}" -o "$plan"

# --- what scripts require ---
mkdir "$folder/mod" "$folder/cl"
cp $model "$folder/mod/gpt.lua"
sed -i '1i require "helper"' "$folder/mod/gpt.lua"
echo 'return {}' >"$folder/mod/helper.lua"
ln "$folder/mod/helper.lua" "$folder/alias.lua"
at=$folder/mod/gpt.lua:1:
fails 'plan over a required script' 2 \
    "$at --output $folder/mod/helper.lua: would replace what is required here" \
    plan "$folder/mod/gpt.lua" "${small[@]}" -o "$folder/mod/helper.lua"
fails 'the same by another name' 2 "$at --output $folder/alias.lua: would replace what" \
    plan "$folder/mod/gpt.lua" "${small[@]}" -o "$folder/alias.lua"
fails 'page of a search' 2 "$at --html $folder/mod/helper.lua: would replace what" plan \
    "$folder/mod/gpt.lua" --cluster cpu --ranks 1 --html "$folder/mod/helper.lua"
fails 'weights' 2 "$at --save $folder/mod/helper.lua: would replace what" train \
    "$folder/mod/gpt.lua" "${small[@]}" --data "$text" --save "$folder/mod/helper.lua"
fails 'log' 2 "$at --log $folder/mod/helper.lua: would replace what" train \
    "$folder/mod/gpt.lua" "${small[@]}" --data "$text" --log "$folder/mod/helper.lua"
result 'the required script is as it was' \
    "$([ "$(cat "$folder/mod/helper.lua")" = 'return {}' ] || echo 'it is not')"
echo 'return { selene = require "selene" }' >"$folder/cl/parts.lua"
echo 'return require("parts").selene' >"$folder/cl/own.lua"
cp "$folder/cl/parts.lua" "$folder/parts.lua"
over=(--html "$folder/cl/parts.lua")
at="$folder/cl/own.lua:1: --html $folder/cl/parts.lua: would replace what is required here"
fails "plan over a cluster's part" 2 "$at" plan $model --cluster "$folder/cl/own.lua" --ranks 8 \
    "${over[@]}"
fails "scale over a cluster's part" 2 "$at" scale $model --cluster "$folder/cl/own.lua" \
    --ranks 8..8 "${over[@]}"
fails "rent over a cluster's part" 2 "$at" rent $model --cluster "l40s,$folder/cl/own.lua" \
    --global-batch 8 --days-for-tokens 1e9 --within-days 9 "${over[@]}"
sed -E 's/,(sc21|korthikanti),/,mine,/; s/A100-SXM-80GB/MI300X/; 4,$d' $runs >"$folder/mine.csv"
fails "validate over a cluster's part" 2 "$at" validate "$folder/mine.csv" \
    --cluster "$folder/cl/own.lua" "${over[@]}"
fails "show over a cluster's part" 2 "$folder/cl/own.lua:1: --output" show "$plan" \
    --cluster "$folder/cl/own.lua" -o "$folder/cl/parts.lua"
fails "compare over a cluster's part" 2 "$folder/cl/own.lua:1: --output" compare "$plan" "$plan" \
    --cluster "$folder/cl/own.lua" -o "$folder/cl/parts.lua"
result "the cluster's part is as it was" "$(cmp "$folder/cl/parts.lua" "$folder/parts.lua" 2>&1)"
works 'beside them it is written' 'model     gpt' plan "$folder/mod/gpt.lua" "${small[@]}" \
    -o "$folder/mod/other.plan"

# --- standard output takes one thing ---
search=(plan $model --cluster cpu --ranks 1 --global-batch 4)
both='would both be written to standard output'
fails 'validate: JSON and drawing' 2 "--json and --svg $both" validate $runs --json --svg -
fails 'validate: page and drawing' 2 "--html and --svg $both" validate $runs --html - --svg -
fails 'search: plan and page' 2 "--html and --output $both" "${search[@]}" --html - -o -
fails 'search: page and JSON' 2 "--json and --html $both" "${search[@]}" --html - --json
fails 'search: plan and JSON' 2 "--json and --output $both" "${search[@]}" -o - --json
fails 'plan and JSON' 2 "--json and --output $both" plan $model -o - --json
fails 'scale: page and JSON' 2 "--json and --html $both" scale $model --cluster cpu --ranks 1..1 \
    --html - --json
fails 'checkpoints to standard output' 2 'train: --checkpoint: takes a file' train "$plan" \
    --data "$text" --checkpoint -
works 'a drawing alone' '<svg' validate $runs --family korthikanti_single --svg -
result 'and nothing else' "$([[ $out == '<svg'* && $out == *'</svg>' ]] || echo "${out:0:200}")"
works 'show --json -o - is one thing' '"model"' show "$plan" --json -o -
works 'compare --json -o - is one thing' '{' compare "$plan" "$plan" --json -o -

# --- targets that cannot be opened: 2, before the work; that cannot be written to the end: 1 ---
# targets COMMAND OPTION ARGUMENT...: each wrong target as OPTION's value.
targets() {
    local name="$1 $2" option=$2
    shift 2
    fails "$name: a missing folder" 2 "$folder/none/x: cannot create a file beside it" "$@" "$option" \
        "$folder/none/x"
    fails "$name: a folder" 2 "$folder/cl: is a folder, not a regular file" "$@" "$option" \
        "$folder/cl"
    fails "$name: a device" 2 '/dev/full: is a device, not a regular file' "$@" "$option" /dev/full
}
targets plan -o plan $model "${small[@]}"
targets 'plan by search' -o "${search[@]}"
targets 'plan by search' --html "${search[@]}"
targets show -o show "$plan"
targets compare -o compare "$plan" "$plan"
targets scale --html scale $model --cluster cpu --ranks 1..1
targets rent --html rent $model --cluster cpu --global-batch 8 --days-for-tokens 1e9 --ranks 1..1
targets validate --html validate $runs
targets validate --svg validate $runs
targets opt -o opt "$folder/none.ir" --pass simplify
targets profile -o profile --device cpu
targets train --save train "$plan" --data "$text"
targets train --checkpoint train "$plan" --data "$text"
targets train --trace train "$plan" --data "$text"
fails 'train --log: a missing folder' 2 "$folder/none/x: cannot write the run log" train "$plan" \
    --data "$text" --log "$folder/none/x"
fails 'train --log: a folder' 2 "$folder/cl: cannot write the run log" train "$plan" \
    --data "$text" --log "$folder/cl"
fails 'train --log: a device' 2 '/dev/full: cannot be the run log' train "$plan" --data "$text" \
    --log /dev/full
cp "$text" "$folder/plain"
fails 'train --tensorboard: a file' 2 "$folder/plain: cannot write TensorBoard's events into it" \
    train "$plan" --data "$text" --log "$folder/none.jsonl" --tensorboard "$folder/plain"
result 'before a log is touched' "$([ ! -e "$folder/none.jsonl" ] || echo 'there is one')"
fails 'train --tensorboard: standard output' 2 'train: --tensorboard: takes a folder' train "$plan" \
    --data "$text" --tensorboard -
works 'train --tensorboard' "wrote   $folder/board/a/events.out.tfevents." train "$plan" \
    --data "$text" --steps 3 --tensorboard "$folder/board/a"
result 'has every step' "$(n=$(grep -ao 'train/loss' "$folder"/board/a/* | wc -l)
    v=$(grep -ao 'validation/loss' "$folder"/board/a/* | wc -l)
    [ "$n" -eq 3 ] && [ "$v" -eq 1 ] || echo "$n losses, $v of validation")"
mkdir "$folder/shards"
cp "$text" "$folder/shards/a"
cp "$text" "$folder/shards/b"
fails 'train --save: into the folder of its data' 2 \
    "--save $folder/shards/w.st: is in the folder that --data reads" train "$plan" \
    --data "$folder/shards" --save "$folder/shards/w.st"
cp "$text" "$folder/real"
ln -s ../real "$folder/shards/c"
fails 'train --log: a text of its folder by another name' 2 \
    "--log $folder/real: is in the folder that --data reads" train "$plan" \
    --data "$folder/shards" --log "$folder/real"
rm "$folder/shards/c"
works 'train: a folder of texts' ' tokens of 2 files to train on' train "$plan" \
    --data "$folder/shards" --steps 1
fails 'train --token-bytes' 2 'train: --token-bytes: 3 is none of 1, 2 and 4' train "$plan" \
    --data "$text" --token-bytes 3
works 'weights' '' train "$plan" --data "$text" --steps 1 --save "$folder/w.st"
targets generate -o generate "$plan" --load "$folder/w.st"

# limited NAME ARGUMENT...: files may have no bytes at all; status 1 and one line.
limited() {
    local name=$1 why=
    shift
    err=$(ulimit -f 0; exec "$perilune" "$@" 2>&1 >/dev/null </dev/null)
    status=$?
    [ "$status" -eq 1 ] || why="status $status; "
    [[ $err == *'cannot write: File too large' && $err != *$'\n'* ]] || why+="it says $err"
    result "$name: while writing" "$why"
}
limited plan plan $model "${small[@]}" -o "$folder/limited"
limited 'plan by search' "${search[@]}" -o "$folder/limited"
limited show show "$plan" --html -o "$folder/limited"
limited compare compare "$plan" "$plan" -o "$folder/limited"
limited validate validate $runs --family korthikanti_single --html "$folder/limited"
limited generate generate "$plan" --load "$folder/w.st" --length 2 --quiet -o "$folder/limited"
limited train train "$plan" --data "$text" --steps 1 -q --save "$folder/limited"

# A log that cannot be written on costs itself, not the run; so do events.
err=$(ulimit -f 8; exec "$perilune" train "$plan" --data "$text" --steps 200 --log "$folder/long.jsonl" \
    --tensorboard "$folder/long" 2>&1 >/dev/null </dev/null)
status=$?
[[ $status -eq 1 && $err == *'cannot write the run log: File too large'*'on; training goes on'*'step 200/200'* ]]
result 'train --log: a full disk' "$([ $? -eq 0 ] || echo "status $status: $err")"
[[ $err == *"TensorBoard's events: File too large"*'no events for TensorBoard from step '*'step 200/200'* ]]
result 'train --tensorboard: a full disk' "$([ $? -eq 0 ] || echo "$err")"

# What can be written at the end is, whatever cannot.
steady=$folder/steady.plan gone=$folder/gone
run plan $model "${small[@]}" --ema 0.9 -o "$steady"
mkdir "$gone"
"$perilune" train "$steady" --data "$text" --steps 1000000 --log "$folder/gone.jsonl" --save "$gone/s.st" \
    --save-ema "$folder/kept.st" --metrics "$gone/run.prom" >"$folder/out" 2>"$folder/err" </dev/null &
for ((i = 0; i < 300; i++)); do
    [ -s "$folder/gone.jsonl" ] && break
    sleep 0.05
done
result 'train --metrics: from the beginning' "$(grep -q 'state="running"} 1' "$gone/run.prom" || cat "$gone/run.prom")"
rm -r "$gone"
kill -TERM $!
wait $!
status=$? err=$(cat "$folder/err")
[[ $status -eq 1 && $err == *"gone/run.prom: cannot "*'no metrics after step '*"gone/s.st: cannot "* ]]
result 'train: a folder that has gone' "$([ $? -eq 0 ] || echo "status $status: $err")"
works 'train --save-ema: beside a --save that failed' 'loss    ' evaluate "$plan" --load "$folder/kept.st" --data "$text"

# --- tokens of Megatron-LM, and their index ---
printf 'MMIDIDX\0\0' >"$folder/m.idx"
: >"$folder/m.bin"
fails 'over the index' 2 "--save $folder/m.idx: would replace what" train "$plan" --data "$folder/m.bin" --save "$folder/m.idx"
fails 'over its tokens' 2 "--save $folder/m.bin: would replace what" train "$plan" --data "$folder/m.idx" --save "$folder/m.bin"

# --- streams that are closed ---
"$perilune" train "$plan" --data "$text" --steps 2 --log "$folder/closed.jsonl" >&- 2>&-
status=$?
result 'what is printed is not in the log' \
    "$([[ $status -eq 1 && $(cut -c1-9 "$folder/closed.jsonl") == '{"step":1'$'\n''{"step":2' ]] || echo "$status: $(cat "$folder/closed.jsonl")")"

[ "$n_failed" -eq 0 ]

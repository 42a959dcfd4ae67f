#!/usr/bin/env bash
# Failures in predicted days: wrong input, what options change, and a checkpoint's bytes against the
# file that training writes. Catches: an option ignored in silence, states or frozen weights that are
# not counted, failures assumed where nobody states any.
set -u
suite=goodput
. tests/cli/cases.sh

plan=(plan models/gpt.lua --set size=1.7b --cluster h100-dgx --ranks 16 --global-batch 64 --mesh d=16 --zero 1)
days=("${plan[@]}" --days-for-tokens 1e11)

# --- wrong input ---
fails 'hours that are none' 2 "--mtbf: 'x' is not a number of hours, or none" "${days[@]}" --mtbf x
fails 'not a number' 2 "--mtbf: 'nan' is not a number of hours, or none" "${days[@]}" --mtbf nan
fails 'hours below 0' 2 '--mtbf: -3 is not from 0.001 to 1e+09 hours, or none' "${days[@]}" --mtbf -3
fails 'a restart before its failure' 2 '--restart-minutes: -1 is not from 0 to 1e+06' "${days[@]}" --restart-minutes -1
fails 'a checkpoint without end' 2 "--checkpoint-seconds: 'inf' is not a number" "${days[@]}" --checkpoint-seconds inf
fails 'no days' 2 '--mtbf: only with --days-for-tokens, whose days it is for' "${plan[@]}" --mtbf 1000
fails 'no days to write in' 2 '--checkpoint-async: only with --days-for-tokens' \
    scale models/gpt.lua --cluster h100-dgx --ranks 1..8 --checkpoint-async
fails 'no search' 2 '--restart-minutes: only with --cluster or --ranks' plan models/gpt.lua --restart-minutes 3
fails 'restarts of nothing' 2 '--restart-minutes: nothing fails with --mtbf none; leave out one of them' \
    "${days[@]}" --mtbf none --restart-minutes 3

# --- what is said ---
works 'few devices' '100 G tokens take 1.6 days, ' "${days[@]}"
[[ $out == *'goodput    99.'*' %: a failure every 132.0 days on 16 devices, a checkpoint every '* ]]
result 'and what fails' "$([ $? -eq 0 ] || echo "$out")"
run "${days[@]}" --mtbf none
result 'none is as before' "$([[ $status -eq 0 && $out == *'100 G tokens take 1.6 days, '* && $out != *goodput* ]] || echo "$err$out")"
works 'no progress' 'days without failures, and have no end with them' "${days[@]}" --mtbf 1
works 'no failures on processors' 'no failures are assumed: cluster cpu-10gbe states none; --mtbf HOURS' \
    plan models/gpt.lua --cluster cpu-10gbe --ranks 4 --global-batch 16 --days-for-tokens 1e9
works 'no storage' 'not known: cluster a100-80gb-4hdr states no rate of its storage' \
    plan models/gpt.lua --cluster a100-80gb-4hdr --ranks 8 --global-batch 64 --days-for-tokens 1e9
works 'but as long as is said' '(--checkpoint-every ' plan models/gpt.lua --cluster a100-80gb-4hdr --ranks 8 \
    --global-batch 64 --days-for-tokens 1e12 --checkpoint-seconds 2
run plan models/gpt.lua --cluster a100-80gb-4hdr --ranks 8 --global-batch 64 --days-for-tokens 1e6 \
    --checkpoint-seconds 2 --restart-minutes 3
[[ $(tr -s ' \n' ' ' <<<"$out") == *'a checkpoint at the end alone (2.00 s), 180 s to restart'* ]]
result 'one at the end' "$([ $? -eq 0 ] || echo "$out")"

# field KEY: of out's goodput.
field() { sed -n '/"goodput": {/,/}/p' "$folder/out" | sed -n "s/.*\"$1\": \([^,]*\),*/\1/p" | head -n 1; }
# less WHAT A B
less() { result "$1" "$(awk "BEGIN { exit !(${2:-1} < ${3:-0}) }" || echo "$2, then $3")"; }

# Llama 3 405B: 419 interruptions in 54 days on 16,384 devices; over 90 % of the time was effective.
llama=(plan models/llama.lua --set size=405b --cluster h100-roce --ranks 16384 --global-batch 2048
    --mesh t=8,d=128,p=16 --days-for-tokens 15.6e12 --json)
run "${llama[@]}"
blocking=$(field share)
less 'over 90 % of Llama 3 405B trained' 0.9 "$blocking"
less 'and not all' "$blocking" 0.95
run "${llama[@]}" --checkpoint-async
less 'behind training more does' "$blocking" "$(field share)"
run "${llama[@]}" --mtbf 5000
less 'with ten times the failures less does' "$(field share)" 0.6
run scale models/gpt.lua --set size=1.7b --cluster h100-dgx --ranks 8..32 --global-batch 64 --mesh p=1,t=1 --zero 1 \
    --days-for-tokens 1e12 --mtbf 500 --json
shares=$(sed -n 's/.*"share": //p' "$folder/out" | tr -d ,)
result 'more devices fail more often' \
    "$([[ $(wc -l <<<"$shares") -eq 3 ]] && sort -rgc <<<"$shares" 2>&1 || echo "$shares")"

# --- a checkpoint's bytes ---
yes 'The moon is closest now, and then it is not. ' | head -c 20000 >"$folder/text"
# weighs OPTIONS...: what is predicted is what is written.
weighs() {
    run plan "$@" --cluster cpu --ranks 1 --global-batch 1 --days-for-tokens 1e6 --json
    local bytes=$(field checkpoint_bytes) size header
    run train "$@" --micro-batch 1 --global-batch 1 --device cpu --data "$folder/text" --steps 1 --val-fraction 0 \
        --checkpoint "$folder/of.ckpt"
    size=$(wc -c <"$folder/of.ckpt") header=$(od -A n -t d8 -N 8 "$folder/of.ckpt")
    result "a checkpoint of $*" "$([ "${bytes%.*}" = $((size - header - 8)) ] || echo "$bytes, not $((size - header - 8)); $err")"
}
weighs models/gpt.lua
weighs models/llama.lua --set optimizer=muon --set lora=4
weighs models/gpt.lua --optimizer-state bf16
weighs models/t5.lua

[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# perilune sweep: wrong input, and real runs of a tiny model: their order, a sweep that goes on where
# it was, successive halving, failures, and what show, compare and fit make of the folder.
#
# Catches: a wrong option of some run that is found only when it starts; runs that do not get what
# varies, or other losses than train alone has; a run that is run twice, or not again when it was
# interrupted; halving that decides otherwise when it goes on; results of another sweep in one table.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite=sweep
. tests/cli/cases.sh
export OMP_NUM_THREADS=1
seq 1 3000 | tr '\n' ' ' >"$folder/text"
base=(models/gpt.lua --set seq=16 --set model=16 --set heads=2 --set vocab=256 --micro-batch 2
    --global-batch 2 --device cpu --data "$folder/text")
tiny=("${base[@]}" --set layers=1 --steps 6 --threads 1)

losses() { cut -d, -f1-4 "$1"; } # step, loss, norm, rate of a log

# --- wrong input ---
dir=(--dir "$folder/bad")
fails 'nothing varies' 2 'what is to vary?' sweep "${tiny[@]}" "${dir[@]}"
fails 'no folder' 2 'give --dir DIR' sweep "${tiny[@]}" --vary lr=1,2
fails 'no data' 2 'what are the runs to learn from' sweep models/gpt.lua --vary lr=1,2 "${dir[@]}"
fails 'unknown key' 2 "'lrr' is no option of train; did you mean lr?" \
    sweep "${tiny[@]}" "${dir[@]}" --vary lrr=1,2
fails 'key of the sweep' 2 "'log' is not for varying" sweep "${tiny[@]}" "${dir[@]}" --vary log=a,b
fails 'empty value' 2 "lr: has an empty value" sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,,2
fails 'no number' 2 "--lr: 'fast' is not a number" sweep "${tiny[@]}" "${dir[@]}" --vary lr=1e-3,fast
result 'names the run' "$([[ $err == *'in run 002: lr=fast'* ]] || echo "$err")"
fails 'no such setting' 2 "has no setting 'layer'" sweep "${tiny[@]}" "${dir[@]}" --vary set.layer=1,2
fails 'of train' 2 'is more than the peak learning rate' \
    sweep "${tiny[@]}" "${dir[@]}" --vary min-lr=0,2
result 'names that run' "$([[ $err == *'in run 002: min-lr=2'* ]] || echo "$err")"
fails 'given twice' 2 "'lr' is given for all runs, too" \
    sweep "${tiny[@]}" "${dir[@]}" --lr 1 --vary lr=1,2
fails 'setting given twice' 2 "'set.layers' is given for all runs, too" \
    sweep "${tiny[@]}" "${dir[@]}" --vary set.layers=1,2
fails 'too many' 2 'more than 1024 combinations' \
    sweep "${tiny[@]}" "${dir[@]}" --vary seed=1..100 --vary warmup=1..100
fails 'too few to draw' 2 'no more than 2 different' \
    sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,2 --random 3
fails 'none to stop' 2 'none can be left out' \
    sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,2 --stop-worse 3
fails 'nothing before the end' 2 'the last rung of run 001 would be its end, step 6' \
    sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,2 --stop-worse 2 --eval-every 6
fails 'flag' 2 'is true or false' sweep "${tiny[@]}" "${dir[@]}" --vary max-logit=true,maybe
fails 'no data file' 2 'No such file' \
    sweep models/gpt.lua --data "$folder/none" "${dir[@]}" --vary lr=1,2
fails 'log' 2 'each has log.jsonl' sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,2 --log a
fails 'checkpoints that go' 2 'needs --checkpoint NAME' \
    sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,2 --checkpoint-every 2 --checkpoint-keep 2
fails 'folder of a file' 2 "a file's name alone" \
    sweep "${tiny[@]}" "${dir[@]}" --vary lr=1,2 --save a/b
fails 'no folder there' 2 'Not a directory' sweep "${tiny[@]}" --vary lr=1,2 --dir "$folder/text/a"
fails 'file as folder' 2 'is no folder' sweep "${tiny[@]}" --vary lr=1,2 --dir "$folder/text"
fails 'stop-at' 2 'the run has 6 steps' train "${tiny[@]}" --stop-at 7
run train "${tiny[@]}" --stop-at 2 --metrics "$folder/run.prom" --quiet
result 'which is not its end' "$([ "$status" -eq 0 ] && grep -q 'state="stopped"} 1' "$folder/run.prom" || echo "$status: $err")"
printf 'return { {lr = 1e-3}, {lr = {}} }' >"$folder/bad.lua"
fails 'script' 2 "'lr' is table" sweep "${tiny[@]}" "${dir[@]}" --trials "$folder/bad.lua"
result 'nothing was made' "$(ls -d "$folder/bad" 2>/dev/null)"

# --- scripts, and what runs come to ---
cat >"$folder/ladder.lua" <<'LUA'
return function(run)
    if run["set.layers"] == 3 then return nil end
    return { steps = 4 * run["set.layers"], set = { dropout = run["set.layers"] / 8 } }
end
LUA
works 'function' '"tokens": 512.0' sweep "${base[@]}" --vary set.layers=1..4 --dry-run --json \
    --trials "$folder/ladder.lua"
result 'three of four' "$([[ $out == *'"003"'* && $out != *'"004"'* && $out == *'"dropout=0.5"'* ]] || echo "$out")"
printf 'return { {lr = 1e-3, seed = 5}, {lr = 2e-3, ["max-logit"] = true} }' >"$folder/list.lua"
works 'list' '001  0.001     5          -' sweep "${tiny[@]}" --dry-run --trials "$folder/list.lua"
works 'lists of lists' '002  d=1,p=1' sweep "${base[@]}" --dry-run --vary 'mesh=t=2;d=1,p=1'
run sweep "${tiny[@]}" --dry-run --vary lr=log:1e-4..1e-1 --random 3 --random-seed 7
first=$out
run sweep "${tiny[@]}" --dry-run --vary lr=log:1e-4..1e-1 --random 3 --random-seed 7
result 'the same seed' "$([ "$out" = "$first" ] || echo "$out")"

# --- a grid over seeds ---
grid=("${tiny[@]}" --vary lr=1e-3,1e-2 --vary seed=1,2 --dir "$folder/grid")
works 'grid' 'over seeds' sweep "${grid[@]}" --jobs 2 --save w.safetensors --html "$folder/grid.html"
table=$out
result 'the best first' "$([[ $table =~ 1e-2.*1e-2.*1e-3.*1e-3.*lr=1e-2\ +2.*lr=1e-3\ +2 ]] || echo "$table")"
result 'a page' "$(grep -q '<polyline class="run v1"' "$folder/grid.html" || echo none)"
run train "${tiny[@]}" --lr 1e-2 --seed 2 --log "$folder/alone.jsonl" --quiet
result 'as train alone' "$(diff <(losses "$folder/alone.jsonl") <(losses "$folder/grid/004/log.jsonl"))"
result 'outputs' "$([ -s "$folder/grid/004/w.safetensors" ] || echo none)"
fails 'other outputs' 2 'in what is compared, stopped or written' sweep "${grid[@]}"
works 'again' "$table" sweep "${grid[@]}" --save w.safetensors
result 'nothing again' "$([ "$err" = 'going on: 4 of 4 runs have ended' ] || echo "$err")"
fails 'another sweep' 2 'its run 001 has --steps 6 where this one' \
    sweep "${grid[@]}" --save w.safetensors --steps 7
fails 'fewer runs' 2 'of 4 runs, not 2' sweep "${tiny[@]}" --vary lr=1e-3,1e-2 --dir "$folder/grid"
works 'show' "$table" show "$folder/grid"
works 'show --json' '"ordered_by": "val_loss"' show "$folder/grid" --json
works 'compare' '3  '"$folder/grid/003/log.jsonl"': parts at' compare "$folder/grid"
fails 'fit' 2 '4 runs: a law has five numbers' fit "$folder/grid"
cp "$folder/grid/002/log.jsonl" "$folder/kept"
sed -i '2s/.*/damaged/' "$folder/grid/002/log.jsonl"
works 'damaged log' '/002/log.jsonl:2: no line of a run log' show "$folder/grid"
mv "$folder/kept" "$folder/grid/002/log.jsonl"
echo '{' >"$folder/grid/002/result.json"
fails 'damaged result' 2 'is damaged: remove it' show "$folder/grid"
rm "$folder/grid/002/result.json"
works 'one again' '"done": 4' sweep "${grid[@]}" --save w.safetensors --json
result 'that one alone' "$([[ $err == *'4/4  002 '* && $err != *'/001 '* ]] || echo "$err")"
sed -i 's/"settings"/"sitting"/' "$folder/grid/sweep.json"
fails 'damaged definition' 2 'is damaged: run 1' show "$folder/grid"

# --- a run that fails, and jobs for others ---
failing=("${base[@]}" --set layers=1 --steps 14 --vary lr=1e-3,900 --dir "$folder/failing")
run sweep "${failing[@]}" --write-jobs "$folder/jobs"
result 'jobs' "$([ "$status" -eq 0 ] && [ "$(wc -l <"$folder/jobs")" -eq 2 ] || echo "$status: $err")"
sed -n 2p "$folder/jobs" | sh
result 'a job of others' "$([ "$(cat "$folder/failing/002/result.json")" = '{"exit":1}' ] || echo none)"
run sweep "${failing[@]}"
result 'failed' "$([[ $status -eq 1 && $err == *'1 of 2'* && $out == *'001 '*'failed: exit 1: '*'not finite'* ]] ||
    echo "$status: $err; $out")"
printf '  note: of it\nwrote   a log\n' >>"$folder/failing/002/output.txt"
works 'its error, not its last line' 'not finite' show "$folder/failing"
echo '{"exit":137}' >"$folder/failing/002/result.json"
works 'a signal' 'exit 137 (Killed): ' show "$folder/failing"
run sweep "${failing[@]}" --retry
result 'retried' "$([[ $status -eq 1 && $err == *'2/2  002  lr=900: failed'* ]] || echo "$status: $err")"

# --- successive halving ---
halving=("${base[@]}" --set layers=1 --steps 8 --vary lr=1e-3,2e-3,4e-3,8e-3 --dir "$folder/half"
    --stop-worse 2)
run sweep "${halving[@]}"
table=$out
result 'halving' "$([[ $status -eq 0 && $(grep -c stopped <<<"$out") -eq 3 &&
    $err == *'from step 2 of 8'*'from step 4 of 8'*'2 runs go on'*'1 run goes on'* ]] || echo "$err; $out")"
run train "${base[@]}" --set layers=1 --steps 8 --lr 8e-3 --log "$folder/alone.jsonl" --quiet
result 'as without a stop' "$(diff <(losses "$folder/alone.jsonl") <(losses "$folder/half/004/log.jsonl"))"
result 'no checkpoints stay' "$(ls "$folder"/half/*/*.ckpt 2>/dev/null)"
rm "$folder/half/001/result.json" "$folder/half/004/result.json"
run sweep "${halving[@]}"
without_times() { awk '{ print $1, $2, $3, $4, $5, $8 }' <<<"$1"; }
result 'decided as before' "$(diff <(without_times "$out") <(without_times "$table"))"

# --- by another value than losses ---
by=("${base[@]}" --set layers=1 --steps 4 --max-logit --vary lr=1e-3,1e-1,2e-3 --by max_logit)
run sweep "${by[@]}" --dir "$folder/by" --stop-worse 3 --html "$folder/by.html"
value() { sed -n "$2s/.*\"max_logit\":\([0-9.e+-]*\).*/\1/p" "$folder/by/$1/log.jsonl"; }
best=$(for r in 001 002 003; do echo "$(value $r 2) $r"; done | sort -g | sed -n '3s/.* //p')
result 'the greatest goes on' "$([[ $status -eq 0 && $out == *"max_logit  tokens/s"*$'\n'"$best  "*' 4 '*stopped*stopped*'by max_logit, the greatest'* ]] ||
    echo "$best: $err; $out")"
result 'the value itself' "$([[ $out == *$'\n'"$best  "*"  $(printf %.4f "$(value "$best" 4)")  "* ]] || echo "$out")"
by[${#by[@]} - 1]=none
fails 'by what is not there' 1 "--by none: no run's log has such a value" \
    sweep "${by[@]}" --dir "$folder/by-none" --stop-worse 3 --quiet
fails 'nor at the end' 1 "--by none: no run's log has such a value" \
    sweep "${by[@]:0:${#by[@]}-4}" --vary lr=1e-3 --by none --dir "$folder/by-end" --quiet
result 'none is left out' "$(ls "$folder"/by-none/*/result.json 2>/dev/null)"

# --- interrupted ---
long=("${base[@]}" --set layers=1 --vary steps=3000,4 --checkpoint c.ckpt --dir "$folder/long")
"$perilune" sweep "${long[@]}" >"$folder/long.out" 2>"$folder/long.err" &
pid=$!
for _ in $(seq 500); do
    [ -s "$folder/long/001/log.jsonl" ] && break
    sleep 0.01
done
fails 'at the same time' 2 'is at work there' sweep "${long[@]}"
kill -TERM "$pid"
wait "$pid"
result 'interrupted' "$([ $? -eq 130 ] && grep -q 'the same command goes on' "$folder/long.err" &&
    [ ! -e "$folder/long/001/result.json" ] && [ -e "$folder/long/001/c.ckpt" ] || cat "$folder/long.err")"
works 'goes on' '002 ' sweep "${long[@]}"
result 'from where it was' "$([ "$(grep -c '^model ' "$folder/long/001/output.txt")" -eq 2 ] || echo none)"
result 'all steps once' "$([ "$(cut -d, -f1 "$folder/long/001/log.jsonl" | sort -u | wc -l)" -eq 3000 ] &&
    [ "$(wc -l <"$folder/long/001/log.jsonl")" -eq 3000 ] || wc -l "$folder/long/001/log.jsonl")"

[ "$n_failed" -eq 0 ]

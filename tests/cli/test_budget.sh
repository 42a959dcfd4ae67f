#!/usr/bin/env bash
# budget and fit: wrong input gets one clear line and exit code 2; logs of train say what a law needs;
# the law of made-up runs is found; what a budget says agrees with the law, the search and itself.
# Catches: losses that are not the law's, N or D of a run that are not its own, budgets that differ by
# how they are told, a best one that is not, plans of another size.
set -u
suite=budget
. tests/cli/cases.sh

# value KEY: the first number or text of that key in the JSON of the last run.
value() {
    sed -n "s/^ *\"$1\": \"\\{0,1\\}\\([^\",]*\\)\"\\{0,1\\},\\{0,1\\}\$/\\1/p" "$folder/out" | head -n "${2:-1}" | tail -n 1
}
# near NAME A B: within 1e-6 of each other.
near() {
    local why="'$2', not '$3'"
    [ -n "$2" ] && awk "BEGIN { r = ($2) / ($3) - 1; exit !(r * r <= 1e-12) }" && why=
    result "$1" "$why"
}

# --- fit: wrong input ---
fails 'fit of nothing' 2 'fit: which RUNS? see perilune help fit' fit
fails 'fit of a text' 2 'README.md: neither a run'"'"'s log (.jsonl) nor a table of runs (.csv)' fit README.md
fails 'fit of a file that is not there' 2 'none.csv: cannot open' fit "$folder/none.csv"
printf 'parameters,loss\n1e6,3\n' >"$folder/bad.csv"
fails 'a table without tokens' 2 "bad.csv:1: there is no column 'tokens'" fit "$folder/bad.csv"
printf 'parameters,tokens,loss\n1e6,1e7,3\n1e6,-1,3\n' >"$folder/bad.csv"
fails 'a number that is none' 2 "bad.csv:3: tokens '-1' is not a number from 1 to 1e+24" fit "$folder/bad.csv"
printf 'parameters,tokens,loss\n1e6,1e7,nan\n' >"$folder/bad.csv"
fails 'a loss that is none' 2 "bad.csv:2: loss 'nan' is not a number above 0 and up to 1000" fit "$folder/bad.csv"
printf 'parameters,tokens,loss\n1e6,1e7,3\n' >"$folder/bad.csv"
fails 'one run' 2 '1 run: a law has five numbers: it takes 6 runs at least' fit "$folder/bad.csv"
echo '{"step":1,"loss":3,"samples":4}' >"$folder/old.jsonl"
fails 'a log that does not say its parameters' 2 'old.jsonl: the log does not say "parameters"' fit "$folder/old.jsonl"
echo '{"step":1,"loss":null,"samples":4,"parameters":9,"row_tokens":8}' >"$folder/lost.jsonl"
fails 'a run that lost its way' 2 'lost.jsonl: its last losses are no losses of a finished run' fit "$folder/lost.jsonl"

# --- fit ---
awk 'BEGIN { print "name,parameters,tokens,loss"
    for (i = 0; i < 4; i++) for (j = 0; j < 4; j++) {
        n = 1e6 * 4 ^ i; d = n * 10 * 3 ^ j
        printf "run %d %d,%.17g,%.17g,%.17g\n", i, j, n, d, 1.5 + 200 * n ^ -0.3 + 900 * d ^ -0.35 } }' >"$folder/runs.csv"
run fit "$folder/runs.csv" --json -o "$folder/law.json" --html "$folder/law.html"
result 'a law is fitted' "$([ $status -eq 0 ] || echo "status $status: $err")"
near 'its E' "$(value E)" 1.5
near 'its alpha' "$(value alpha)" 0.3
near 'its beta' "$(value beta)" 0.35
result 'the page has its parts' "$(grep -q '<section id="runs">' "$folder/law.html" && grep -q 'run 3 3' "$folder/law.html" || echo missing)"
works 'as text' 'law        L(N, D) = 1.5 + 200 / N^0.3 + 900 / D^0.35, nats a token' fit "$folder/runs.csv"
awk 'BEGIN { print "parameters,tokens,loss"; for (i = 0; i < 9; i++) { n = 1e5 * 2 ^ (i % 3); d = 1e6 * 3 ^ int(i / 3)
    print n "," d "," 90 * n ^ -0.3 + 90 * d ^ -0.3 } }' >"$folder/low.csv"
works 'runs that do not tell E' 'warning    these runs do not tell E, below which no loss comes' fit "$folder/low.csv"
works 'the law alone' '"format": 1' fit "$folder/runs.csv" -o -
cp "$folder/runs.csv" "$folder/same.csv"
fails 'a law is not written over its runs' 2 'same.csv: would replace what fit reads' fit "$folder/same.csv" -o "$folder/same.csv"
result 'which stay' "$(cmp "$folder/runs.csv" "$folder/same.csv" 2>&1)"

# A log says N, D and the last validation loss of its run.
head -c 20000 README.md >"$folder/text.txt"
run train models/moe.lua --set layers=1 --set model=32 --set seq=32 --data "$folder/text.txt" --steps 3 \
    --global-batch 8 --log "$folder/run.jsonl" --quiet
met=$(sed -n 's/.*"active_parameters":\([0-9]*\).*/\1/p' "$folder/run.jsonl")
said=$(sed -n 's/.*"val_loss":\([0-9.]*\).*/\1/p' "$folder/run.jsonl" | tail -n 1)
result 'a log begins with what a law needs' "$([ "$(grep -c '"row_tokens":32' "$folder/run.jsonl")" = 1 ] || head -n 2 "$folder/run.jsonl")"
run fit "$folder/runs.csv" "$folder/run.jsonl" --json
result 'a log and a table' "$([ $status -eq 0 ] || echo "status $status: $err")"
near 'a mixture counts what a token meets' "$(value parameters 21)" "$met"
near 'tokens of a log' "$(value tokens 21)" $((3 * 8 * 32))
near 'loss of a log' "$(value loss 22)" "$said"

# --- budget: wrong input ---
gpt=(budget models/gpt.lua --cluster h100-dgx --ranks 8 --global-batch 64)
fixed=(--micro-batch 2 --mesh t=1,p=1 --schedule 1f1b --recompute none --zero 1 --lanes 1)
fails 'no budget' 2 'what is the budget?: --days of the ranks, --money for them, or a --loss to reach' "${gpt[@]}"
fails 'two budgets' 2 'a budget is one of these: --days' "${gpt[@]}" --days 1 --money 3
fails 'a law that is not there' 2 "--law: there is no law 'x'; there are: besiroglu-2024, hoffmann-2022" "${gpt[@]}" --days 1 --law x
echo '{"E": 1}' >"$folder/no.json"
fails 'a file that is no law' 2 'no.json: is no scaling law' "${gpt[@]}" --days 1 --law "$folder/no.json"
fails 'a size that is not there' 2 "--sizes: the model has no size '125m'; did you mean 124m?" "${gpt[@]}" --days 1 --sizes 125m
works 'a size that learns otherwise' 'the law is of models that say next tokens' budget models/llama.lua \
    --cluster h100-dgx --ranks 8 --global-batch 64 --days 1 --sizes tiny,llada-8b "${fixed[@]}"
works 'a size that does not' 'best       tiny' budget models/llama.lua --cluster h100-dgx --ranks 8 --global-batch 64 \
    --days 1 --sizes tiny "${fixed[@]}"
result 'is not warned of' "$([[ $out != *'next tokens'* ]] || echo "$out")"
fails 'a size twice' 2 "--sizes: '124m' is there twice" "${gpt[@]}" --days 1 --sizes 124m,124m
fails 'a size by --set' 2 '--set size: the size is what is looked for' "${gpt[@]}" --days 1 --set size=124m
fails 'a size by a file' 2 '--set-from: a file of weights is of one size' "${gpt[@]}" --days 1 --set-from README.md
fails 'days and tokens' 2 "'--days-for-tokens' is an option of plan" "${gpt[@]}" --days 1 --days-for-tokens 3e9
fails 'failures of nothing' 2 '--checkpoint-async: nothing fails with --mtbf none' "${gpt[@]}" --days 1 --mtbf none --checkpoint-async
fails 'failures without end' 2 "--mtbf: 'inf' is not a number of hours, or none" "${gpt[@]}" --days 1 --mtbf inf
fails 'money without a price' 2 '--money: cluster cpu states no price' budget models/gpt.lua --cluster cpu --ranks 2 --money 3
fails 'adapters' 2 'are frozen; a scaling law is of models that learn from the beginning' "${gpt[@]}" --days 1 --set lora=4
fails 'a loss below E' 2 '--loss: 1.5 is not above E, 1.8172' "${gpt[@]}" --loss 1.5
fails 'a setting that no size has' 2 "the model has no setting 'depth'" "${gpt[@]}" --days 1 --set depth=3
fails 'options that allow no search' 2 'global batch 64 is not a multiple of micro-batch 3' "${gpt[@]}" --days 1 --micro-batch 3
fails 'too many ranks' 2 '--ranks: 2: h200 has 1 device' budget models/gpt.lua --cluster h200 --ranks 2 --days 1
cat >"$folder/plain.lua" <<'END'
return model { name = "plain", axes = { seq = 8, model = 8, heads = 1, vocab = 8 }, layers = 1, loss = function() end }
END
fails 'a model of one size' 2 'plain.lua: the model has no sizes to choose from' budget "$folder/plain.lua" --cluster h200 --ranks 1 --days 1
fails 'a size that fits nowhere' 1 'no size would do: none both fits 8 ranks of h100-dgx and takes a step within the budget' \
    "${gpt[@]}" "${fixed[@]}" --masters whole --loss-parts 1 --offload 0 --days 1 --sizes 1t

# --- budget ---
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 350m,124m,1t --masters whole --loss-parts 1 --offload 0 --json \
    -o "$folder/best.plan" --html "$folder/budget.html"
result 'a budget of days' "$([ $status -eq 0 ] || echo "status $status: $err")"
# Daly's time of a checkpoint's work; the budget pays for whole steps.
work="$(value checkpoint_every) * $(value step_seconds)" mean=$(value failure_seconds)
taken="$mean * exp($(value restart_seconds) / $mean) * (exp(($work + $(value checkpoint_seconds)) / $mean) - 1)"
near 'the goodput is of its checkpoints' "$(value share)" "$work / ($taken)"
near 'tokens are what the time suffices for, failures too' "$(value tokens 2)" \
    "int(2 * 86400 * $work / ($taken) / $(value step_seconds)) * 64 * 1024"
near 'a checkpoint is of that size' "$(value checkpoint_bytes 2)" "12 * $(value parameters 3)"
near 'the loss is the law'"'"'s' "$(value loss 2)" \
    "1.8172 + 482.01 / $(value active_parameters) ^ 0.3478 + 2085.43 / $(value tokens 2) ^ 0.3658"
near 'sizes go upwards' "$(value parameters 2)" 124439808
result 'what does not fit says so' "$([[ $out == *'"trouble": "nothing fits: '*' missing per device"'* ]] || echo "$out")"
best=$(value best) loss=$(value loss 3) days=$(value tokens 3)
result 'the best is the larger one here' "$([ "$best" = 350m ] || echo "$best")"
works 'its plan is sound' 'is sound: 8 ranks' check "$folder/best.plan"
works 'and is of that size' '355 M parameters' show "$folder/best.plan"
result 'the page has its parts' "$(grep -q '<section id="loss">' "$folder/budget.html" && grep -q '350m: 355 M parameters' "$folder/budget.html" || echo missing)"
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 124m --mtbf none --json
near 'without failures tokens are of all the time' "$(value tokens 2)" "int(2 * 86400 / $(value step_seconds)) * 64 * 1024"
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 124m --mtbf none
result 'and nothing is said of them' "$([[ $status -eq 0 && $out != *good* ]] || echo "$err$out")"
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 124m,350m --mtbf 20
[[ $out == *'  memory  good tokens '*'goodput    '*' %: a failure every 150.0 min on 8 devices, a checkpoint'* ]]
result 'failures have a column and a line' "$([ $? -eq 0 ] || echo "$err$out")"
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 124m,350m --mtbf 1.3351
[[ $status -eq 0 && $out == *'350m '*' no progress is expected: a failure every '*'best       124m: '* ]]
result 'no progress is said' "$([ $? -eq 0 ] || echo "$err$out")"
run "${gpt[@]}" "${fixed[@]}" --days 0.0002 --sizes 124m
result 'a budget of seconds' "$([[ $out == *'budget     17.3 seconds, 0.0'[0-9]*' device-hours'* ]] || echo "$out")"
run "${gpt[@]}" "${fixed[@]}" --money 1152 --sizes 350m --json # 8 devices x 48 hours x 3.00
near 'money buys days' "$(value days)" 2
near 'and tokens' "$(value tokens 2)" "$days"
run "${gpt[@]}" "${fixed[@]}" --loss "$loss" --sizes 124m,350m --json
near 'the loss takes the days that gave it' "$(value days 2)" 2
result 'or is not reached' "$([[ $(value best) = 350m && $out == *'does not reach the loss with any number of tokens: 2.55'* ]] || echo "$out")"
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 350m --tokens-limit 10e9 --json
near 'data that come again' "$(value epochs)" "$days / 10e9"
near 'are worth less' "$(value worth_tokens)" "10e9 * (1 + 15.387756 * (1 - exp(-($days / 10e9 - 1) / 15.387756)))"
run "${gpt[@]}" "${fixed[@]}" --days 2 --sizes 124m,350m --law "$folder/law.json"
result 'an own law' "$([[ $status -eq 0 && $out == *'/law.json: L(N, D) = 1.5 + 200 / N^0.3'*'best'*'350m: loss'*'sure       350m is the best by '*' laws'* ]] || echo "$status $err $out")"
[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# evaluate: losses and choices. Catches: a window that counts twice or not at all, a loss that depends
# on batch or layout, a choice that is scored with its prompt or one token off, a wrong denominator.
set -u
suite=evaluate
. tests/cli/cases.sh

t=tests/data/tokenizers/qwen2.json w=$folder/w.st text=$folder/text.txt
sizes=(--set layers=2 --set model=32 --set seq=40 --set vocab=426 --set heads=2)
for i in $(seq 120); do echo "The moon went by, and $((i % 7)) low tides followed it."; done >"$text"
run train models/gpt.lua "${sizes[@]}" --tokenizer $t --data "$text" --val "$text" --steps 150 --lr 5e-3 \
    --micro-batch 8 --global-batch 8 --save "$w" --log "$folder/run.jsonl"
weights=(--set-from "$w" --load "$w" --tokenizer $t)
of=(evaluate models/gpt.lua "${weights[@]}" --json)
number() { grep -o "\"$1\": [^,}]*" "$folder/out" | head -n 1 | cut -d ' ' -f 2; } # KEY
near() { # NAME A B: within f32's rounding
    result "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (!(a > 0 && (a - b) ^ 2 < (1e-5 * b) ^ 2)) print a " and " b }')"
}

works 'a text' '{"windows": ' "${of[@]}" --data "$text"
loss=$(number loss) windows=$(number windows)
near 'perplexity is its exponential' "$(number perplexity)" "$(awk -v l="$loss" 'BEGIN { printf "%.9g", exp(l) }')"
result 'in no whole number of batches' "$([ $((windows % 16)) -ne 0 ] && [ $((windows % 7)) -ne 0 ] || echo "$windows windows")"
run "${of[@]}" --data "$text" --micro-batch 7 --global-batch 7
near 'the same in other batches' "$(number loss)" "$loss"
run "${of[@]}" --data "$text" --micro-batch 1 --global-batch 4 --mesh t=2,p=2
near 'the same on four ranks' "$(number loss)" "$loss"
run "${of[@]}" --data "$text" --micro-batch "$windows" --global-batch "$windows"
near 'the same in one batch' "$(number loss)" "$loss"
log() { grep -o "\"$1\": *[^,}]*" "$folder/run.jsonl" | tail -n 1 | grep -o '[0-9.]*$'; }
about() { # NAME A B: but for windows that fill a batch up and then count twice
    result "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (!(a > 0 && (a - b) ^ 2 < (2e-2 * b) ^ 2)) print a " and " b }')"
}
about 'as training says of the same text' "$loss" "$(log val_loss)"
about 'by byte, too' "$(number bits_per_byte)" "$(log val_bits_per_byte)"
head -n 40 "$text" >"$folder/less.txt"
run "${of[@]}" --data "$text" --data "$folder/less.txt"
sum=$(awk 'BEGIN { RS = "[{]" } /"path"/ { split($0, f, /[:,]/); l += f[6] * f[8]; n += f[6] } END { printf "%.9g", l / n }' "$folder/out")
near 'of several, each label alike' "$(number loss)" "$sum"

near 'over as few windows as fill no batch' "$(run "${of[@]}" --data "$folder/less.txt" --global-batch 64; number loss)" \
    "$(run "${of[@]}" --data "$folder/less.txt" --global-batch 1 --micro-batch 1; number loss)"

# A mixture's loss has its balance in it; what is told has not.
run train models/moe.lua --set layers=1 --set model=16 --set heads=2 --set kv_heads=2 --set seq=16 --data "$text" \
    --steps 3 --val-fraction 0 --save "$folder/moe.st"
mixture=(evaluate models/moe.lua --set-from "$folder/moe.st" --load "$folder/moe.st" --data "$text" --json)
run "${mixture[@]}" --set balance=0
loss=$(number loss)
run "${mixture[@]}" --set balance=1
near 'without the balance of experts' "$(number loss)" "$loss"
for balance in 0.001 0.002 0.01; do
    run "${mixture[@]}" --set balance=$balance
    near "nor with little of it, $balance" "$(number loss)" "$loss"
done
run "${mixture[@]}" --set balance=1 --micro-batch 3 --global-batch 6 --mesh p=1,d=2
near 'on two ranks, too' "$(number loss)" "$loss"

# What a choice costs is what evaluating the two texts says: log p(a b) - log p(a).
echo '{"prompt": "The moon", "choices": [" went by", " followed it", " tides"], "answer": 0}' >"$folder/q.jsonl"
echo '{"ctx": "The moon went by, and 3 low tides", "endings": [" went by, and", " followed it"], "label": "1"}' >>"$folder/q.jsonl"
works 'choices' '"questions": 2, "right": 1, "right_stderr": 0, "right_per_byte": 1, ' "${of[@]}" \
    --choices "$folder/q.jsonl"
sed 's/"answer": 0/"answer": 2/; s/"label": "1"/"label": 0/' "$folder/q.jsonl" >"$folder/wrong.jsonl"
works 'wrong ones, on another layout' '"questions": 2, "right": 0, ' "${of[@]}" --choices "$folder/wrong.jsonl" \
    --mesh t=2,p=2 --micro-batch 3 --global-batch 6
long=$(for _ in $(seq 20); do printf 'The moon went by, and 3 low tides followed it. '; done)
echo '{"prompt": "'"$long"'The moon", "choices": [" went by", " followed it"], "answer": 0}' >"$folder/long.jsonl"
works 'a prompt that is too long' '"right": 1, "right_per_byte": 1, "right_per_character": 1, "by_chance": 0.5, "cut_prompts": 2' "${of[@]}" \
    --choices "$folder/long.jsonl"
works 'in words' 'choices 100.00 +- 0.00 % right, 100.00 +- 0.00 % per character; by chance 41.67 %' evaluate models/gpt.lua "${weights[@]}" \
    --data "$text" --choices "$folder/q.jsonl"
[[ $out == *'a token, perplexity'*'bits per byte; text.txt: '*'tokens/s'* ]]
result 'with losses' "$([ $? -eq 0 ] || echo "$out")"
works 'with a token before it' '"questions": 2' "${of[@]}" --choices "$folder/q.jsonl" --bos '<|endoftext|>'
fails 'a token that is not there' 2 'bos' "${of[@]}" --choices "$folder/q.jsonl" --bos '<bos>'
fails 'options of data' 2 'evaluate: --eot: is for --data, and for --choices with --chat' "${of[@]}" --choices "$folder/q.jsonl" \
    --eot auto
one=$("$perilune" "${of[@]}" --choices "$folder/q.jsonl" --no-cache --quiet --micro-batch 1 --global-batch 1)
result 'however many at once' "$(diff <(echo "$one") <("$perilune" "${of[@]}" --choices "$folder/q.jsonl" \
    --no-cache --quiet --micro-batch 16 --global-batch 16))"
run "${of[@]}" --choices "$folder/q.jsonl" --mesh p=2
result 'why there are no caches' "$([[ $err == 'note: choices are scored by whole sequences: '*'divided over t and d alone' ]] ||
    echo "$err")"
printf '\n' >>"$folder/q.jsonl"
works 'empty lines are none' '"questions": 2' "${of[@]}" --choices "$folder/q.jsonl"

fails 'no weights' 2 'evaluate: which weights?' evaluate models/gpt.lua --data "$text"
fails 'on nothing' 2 'evaluate: on what?' "${of[@]}"
fails 'a model that looks ahead' 2 'evaluate: this attention is not causal' evaluate models/bert.lua \
    --load "$w" --choices "$folder/q.jsonl"
bad() { # NAME TEXT LINE
    echo "$3" >"$folder/bad.jsonl"
    fails "$1" 2 "$2" "${of[@]}" --choices "$folder/bad.jsonl"
}
bad 'no JSON' 'bad.jsonl:1' 'x'
bad 'no choices' "bad.jsonl:1: no object with a string 'prompt'" '{"prompt": "a"}'
bad 'one choice' "list 'choices' of 2 to" '{"prompt": "a", "choices": ["b"], "answer": 0}'
bad 'no answer' "'answer' (or 'label') is no number from 0 to 1" '{"prompt": "a", "choices": ["b", "c"]}'
bad 'an answer beyond' 'is no number from 0 to 1' '{"prompt": "a", "choices": ["b", "c"], "answer": 2}'
bad 'a choice that is a number' 'choice 1 is no string' '{"prompt": "a", "choices": ["b", 3], "answer": 0}'
bad 'an empty prompt' 'the prompt has no token' '{"prompt": "", "choices": ["b", "c"], "answer": 0}'
bad 'an empty choice' 'the choice has no token' '{"prompt": "a", "choices": ["", "c"], "answer": 0}'
bad 'a choice that is too long' 'choice 0 has' '{"prompt": "a", "choices": ["'"$long"'", "c"], "answer": 0}'
bad 'nothing in it' 'bad.jsonl: has no question' ''
fails 'no such file' 2 'none.jsonl' "${of[@]}" --choices "$folder/none.jsonl"
fails 'choices of bytes' 2 'a vocabulary of 256 bytes' evaluate tests/models/skips.lua --set layers=2 \
    --load "$folder/none" --choices "$folder/q.jsonl"

# Benchmarks, beside what EleutherAI's harness makes of the same rows and weights (make_benchmarks.py).
data=tests/data/benchmarks
tasks=(hellaswag arc mmlu piqa winogrande boolq openbookqa sciq commonsense_qa copa lambada)
run import $data/model -o "$folder/tiny.safetensors"
tiny=(evaluate models/gpt.lua --set-from "$folder/tiny.safetensors" --load "$folder/tiny.safetensors" --tokenizer $t)
all=() twos=()
for task in "${tasks[@]}"; do
    cp $data/"$task".jsonl "$folder"
    all+=(--choices "$folder/$task.jsonl")
    [ "$task" = mmlu ] && twos+=(--choices "$folder/$task.jsonl") && continue
    head -n 2 $data/"$task".jsonl >"$folder/$task.two.jsonl"
    twos+=(--choices "$folder/$task.two.jsonl")
done
scores() { grep -o '"log_probabilities":\[[^]]*' "$1" | sed 's/.*\[//' | tr ',' '\n'; } # FILE
alike() { # NAME GOT EXPECTED: files of predictions
    result "$1: what is asked" "$(diff <(sed "s|$folder/||; s/,\"log_probabilities.*//" "$2") \
        <(sed 's/,"log_probabilities.*//' "$3"))"
    result "$1: log-probabilities" "$([ "$(scores "$2" | wc -l)" -eq "$(scores "$3" | wc -l)" ] || echo 'others'
        paste <(scores "$2") <(scores "$3") | awk '($1 - $2) ^ 2 > (1e-5 * $2) ^ 2 { print $1 " and " $2 }')"
    result "$1: greedy answers" "$(diff <(grep -o '"is_greedy":[a-z]*' "$2") <(grep -o '"is_greedy":[a-z]*' "$3"))"
}
shares() { # NAME SHOTS: of $folder/out
    result "$1: shares" "$(tr '{' '\n' <"$folder/out" | awk -v shots="$2" '
        function value(key) { return match($0, "\"" key "\": [^,}]*") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) : "none" }
        NR == FNR && match($0, /"task": "[a-z_]*/) { task = substr($0, RSTART + 9, RLENGTH - 9); at = task " -" }
        NR == FNR && match($0, /"name": "[a-z_]*/) { at = task " " substr($0, RSTART + 9, RLENGTH - 9) }
        NR == FNR { line[at] = $0; next }
        $2 == shots { at = $1 " " $3; want = $5; name = $4; $0 = line[at]; got = value(name); n++
            if (got == "none" || (got - want) ^ 2 > (1e-5 * want) ^ 2) print at " " name ": " got " and " want }
        END { if (n < 30) print n " shares" }' - $data/shares.txt)"
}
for shots in 0 1; do
    files=("${all[@]}")
    [ $shots -eq 1 ] && files=("${twos[@]}")
    run "${tiny[@]}" "${files[@]}" --shots $shots --json --predictions "$folder/told"
    for task in "${tasks[@]}"; do cat $data/"$task".expect$shots; done >"$folder/expect"
    alike "benchmarks, $shots examples" "$folder/told" "$folder/expect"
    shares "benchmarks, $shots examples" $shots
done
run "${tiny[@]}" --choices "$folder/mmlu.jsonl" --choices "$folder/arc.jsonl" --mesh t=2,p=2 --micro-batch 1 \
    --global-batch 2 --predictions "$folder/told"
cat $data/{mmlu,arc}.expect0 >"$folder/expect"
alike 'on four ranks' "$folder/told" "$folder/expect"
for task in mmlu arc; do
    cp $data/$task.parquet "$folder/$task.jsonl"
    run "${tiny[@]}" --choices "$folder/$task.jsonl" --predictions "$folder/told"
    alike "Parquet: $task" "$folder/told" $data/$task.expect0
done
sed 's/"label":1/"answer":true/; s/"label":0/"answer":false/' $data/boolq.jsonl >"$folder/boolq.jsonl"
run "${tiny[@]}" --choices "$folder/boolq.jsonl" --predictions "$folder/told"
alike 'boolq with true and false' "$folder/told" $data/boolq.expect0

works 'the first questions' '2 questions of hellaswag, 2 examples before each' "${tiny[@]}" --choices $data/hellaswag.jsonl \
    --choices-limit 2 --shots 2
one=$("$perilune" "${tiny[@]}" --choices $data/arc.jsonl --shots 1 --seed 3 --predictions -)
result 'examples by the seed' "$([ "$one" = "$("$perilune" "${tiny[@]}" --choices $data/arc.jsonl --shots 1 --seed 3 \
    --predictions - --micro-batch 1 --global-batch 1)" ] && for seed in 1 2 3; do
    "$perilune" "${tiny[@]}" --choices $data/arc.jsonl --shots 1 --seed $seed --predictions - | md5sum
done | sort -u | wc -l | grep -qx 1 && echo 'the same, whatever the seed')"
head -n 1 $data/piqa.jsonl >"$folder/first.jsonl"
sed -n 2p $data/piqa.jsonl >"$folder/second.jsonl"
works 'of another file' 'Question: To open a jar,\nAnswer: turn its lid.\n\nQuestion: How' "${tiny[@]}" \
    --choices "$folder/second.jsonl" --shots 1 --shots-from "$folder/first.jsonl" --predictions -
works 'of the file itself' '"task": "own", "shots": 1' "${of[@]}" --choices "$folder/q.jsonl" --shots 1
fails 'too few examples' 2 "arc.jsonl:1: --shots 3: '$data/arc.jsonl' has 2 other questions" "${tiny[@]}" \
    --choices $data/arc.jsonl --shots 3
fails 'too few of a subject' 2 "has 1 other question of anatomy" "${tiny[@]}" --choices $data/mmlu.jsonl --shots 2
fails 'examples of another benchmark' 2 "mmlu.jsonl:1: arc: no object with a 'answerKey'" "${tiny[@]}" \
    --choices $data/arc.jsonl --shots 1 --shots-from $data/mmlu.jsonl
fails 'examples of what?' 2 'evaluate: --shots: is for --choices' "${tiny[@]}" --data "$text" --shots 1
fails 'how many examples?' 2 'evaluate: --shots-from: how many of them?' "${tiny[@]}" --choices $data/arc.jsonl \
    --shots-from $data/arc.jsonl
fails 'an unknown benchmark' 2 "evaluate: --task: 'hella' is none of own, hellaswag, " "${tiny[@]}" --choices $data/arc.jsonl \
    --task hella
fails 'rows of another' 2 "arc.jsonl:1: piqa: no object with a 'goal'" "${tiny[@]}" --choices $data/arc.jsonl --task piqa
bad 'unknown rows' 'bad.jsonl:1: is no row of a benchmark known here: it has stem, key; known are own (prompt, ' '{"stem": "a", "key": 1}'
bad 'no choices of five' "arc: 'choices' is no object with lists of texts, 'text' and 'label', of 2 to 256" \
    '{"question": "a", "choices": {"text": ["b", "c"], "label": ["A"]}, "answerKey": "A"}'
bad 'three choices' "mmlu: 'choices' is no list of texts of 4" '{"question": "a", "choices": ["b", "c", "d"], "answer": 0}'
bad 'a number for a text' "piqa: 'sol1' is no text" '{"goal": "a", "sol1": 1, "sol2": "c", "label": 0}'
bad 'an answer that is not published' "piqa: the answer '-1' is none of the 2 choices" \
    '{"goal": "a", "sol1": "b", "sol2": "c", "label": -1}'
bad 'a subject that is a number' "bad.jsonl:1: mmlu: 'subject' is no text" \
    '{"question": "a", "choices": ["b", "c", "d", "e"], "answer": 0, "subject": 5}'
bad 'no gap' "bad.jsonl:1: winogrande: 'sentence' has no gap, _" '{"sentence": "a", "option1": "b", "option2": "c", "answer": "1"}'
bad 'an unknown connector' "bad.jsonl:1: copa: 'question' is neither cause nor effect" '{"premise": "a.", "question": "why", "choice1": "b", "choice2": "c", "label": 0}'

# While training: what `evaluate` says of the same weights, and training itself is as without.
small=(train models/gpt.lua --set layers=1 --set model=32 --set seq=160 --set vocab=426 --set heads=2 --tokenizer $t)
steps=(--data "$text" --steps 2 --eval-every 1 --micro-batch 2 --global-batch 4)
cp $data/arc.jsonl "$folder/arc_3.jsonl"
cp $data/arc.jsonl "$folder/arc_norm.jsonl"
scored=(--choices $data/arc.jsonl --choices $data/lambada.jsonl --choices $data/arc.jsonl --shots 1 --choices-limit 2)
run "${small[@]}" "${steps[@]}" --save "$folder/without.safetensors"
works 'scored while training' '2 questions of lambada, 1 example before each' "${small[@]}" "${steps[@]}" "${scored[@]}" \
    --save "$folder/with.safetensors" --log "$folder/scored.jsonl"
result 'which stays what it is' "$(cmp "$folder/without.safetensors" "$folder/with.safetensors" 2>&1)"
result 'at each validation' "$(grep -c '"choices_arc":.*"choices_arc_norm":.*"choices_lambada":.*"choices_arc_3":' "$folder/scored.jsonl" |
    grep -vx 2)"
run evaluate models/gpt.lua --set-from "$folder/with.safetensors" --load "$folder/with.safetensors" --tokenizer $t "${scored[@]}" \
    --json
of_log() { tail -n 1 "$folder/scored.jsonl" | grep -o "\"$1\":[^,}]*" | cut -d : -f 2; } # KEY
near 'with a perplexity' "$(number perplexity)" "$(of_log choices_lambada_perplexity)"
result 'and shares' "$([ "$(number right)" = "$(of_log choices_arc)" ] && [ "$(number right_per_character)" = "$(of_log choices_arc_norm)" ] ||
    tail -n 1 "$folder/scored.jsonl")"
for layout in d=1 t=2,p=2; do
    run "${small[@]}" "${steps[@]}" "${scored[@]}" --mesh $layout --val-fraction 0 --log "$folder/$layout.jsonl"
done
last() { tail -n 1 "$1" | grep -o 'perplexity":[^,}]*' | cut -d : -f 2; } # LOG
near 'on four ranks, without other validation' "$(last "$folder/t=2,p=2.jsonl")" "$(last "$folder/d=1.jsonl")"
run "${small[@]}" "${steps[@]}" "${scored[@]}" --val-fraction 0 --no-cache --log "$folder/rows.jsonl"
near 'as whole sequences' "$(last "$folder/rows.jsonl")" "$(last "$folder/d=1.jsonl")"
run "${small[@]}" "${steps[@]}" "${scored[@]}" --val-fraction 0 --loss-parts 2 --log "$folder/parts.jsonl"
near 'on a plan without logits' "$(last "$folder/parts.jsonl")" "$(last "$folder/d=1.jsonl")"
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) \
        "$perilune" "${small[@]}" "${steps[@]}" "${scored[@]}" --val-fraction 0 --mesh d=2 --log "$folder/two.jsonl" \
        >"$folder/rank.$rank" 2>&1 &
done
wait
near 'by two processes, each its share' "$(last "$folder/two.jsonl")" "$(last "$folder/d=1.jsonl")"
fails 'as whole sequences of a plan without logits' 2 'train: the plan never has all logits' "${small[@]}" "${steps[@]}" \
    "${scored[@]}" --lanes 2 --no-cache
fails 'caches of nothing' 2 'train: --no-cache: is for --choices' "${small[@]}" "${steps[@]}" --no-cache
fails 'on rows of another' 2 "arc.jsonl:1: winogrande: no object with a 'sentence'" "${small[@]}" "${steps[@]}" "${scored[@]}" \
    --task winogrande
fails 'examples of what, while training?' 2 'train: --shots: is for --choices' "${small[@]}" "${steps[@]}" --shots 1
run tokenizer encode $t "$text" -o "$folder/tokens.bin"
fails 'by which tokens?' 2 "tokens.bin' is tokens: of which --tokenizer FILE?" train models/gpt.lua --set vocab=426 --set seq=160 \
    --data "$folder/tokens.bin" --choices $data/arc.jsonl
works 'no two have one name' 'wrote' "${small[@]}" --data "$text" --steps 1 --micro-batch 2 --global-batch 4 \
    --choices "$folder/arc_3.jsonl" --choices $data/arc.jsonl --choices $data/arc.jsonl --choices "$folder/arc_norm.jsonl" \
    --choices-limit 2 --log "$folder/names.jsonl"
result 'nor one value' "$(tail -n 1 "$folder/names.jsonl" | grep -o '"choices[a-z_0-9]*":' | sort -u | wc -l | grep -vx 8)"
fails 'too many files' 2 'train: --choices: 8 files at most' "${small[@]}" "${steps[@]}" "${scored[@]}" "${scored[@]}" "${scored[@]}"

# Answers in writing, beside what the harness makes of the same rows and weights (make_problems.py).
written() { # FILE: without what the harness does not tell; bytes that are no UTF-8 are one sign there, a run of them here
    sed 's/, "tokens": [0-9]*, "ended": [a-z]*//; s/\\u00[89a-f][0-9a-f]/\\ufffd/g; s/\(\\ufffd\)\+/\\ufffd/g' "$1"
}
right() { sed -n "s/.*\"name\": \"$1\", \"right\": \([^,}]*\), \"right_stderr\": \([^,}]*\).*/\1 \2/p" "$folder/out"; }
for shots in 0 1; do
    files=()
    for task in gsm8k math; do
        file=$folder/$task$([ $shots -eq 1 ] && echo .two).jsonl
        head -n $((shots == 1 ? 2 : 9)) $data/$task.jsonl >"$file"
        files+=(--problems "$file")
    done
    run "${tiny[@]}" "${files[@]}" --shots $shots --length 40 --json --predictions "$folder/told"
    result "written, $shots examples" "$(diff <(written "$folder/told" | sed "s|$folder/||") <(cat $data/{gsm8k,math}.expect$shots |
        sed 's/\(\\ufffd\)\+/\\ufffd/g'))"
    while read -r _ at filter share error; do
        [ "$at" = $shots ] || continue
        result "written, $shots examples: $filter" "$(echo "$(right "$filter")" | awk -v share="$share" -v error="$error" \
            '!(($1 - share) ^ 2 < 1e-12 && NF == 2 && ($2 - error) ^ 2 < 1e-12) { print $0 " and " share " " error }')"
    done <$data/written.txt
done
solves=("${tiny[@]}" --problems $data/gsm8k.jsonl --length 40)
works 'a prompt that leaves no room' 'the beginning of 1 of 4 prompts did not fit the context' "${solves[@]}" --predictions "$folder/told"
run "${solves[@]}" --side-by-side 1 --predictions -
result 'one by one the same' "$(diff "$folder/told" "$folder/out")"
sed 's/.*"prompt": \("[^"]*"\).*/{"prompt": \1}/' "$folder/told" | head -n 3 >"$folder/prompts.jsonl"
run generate "${tiny[@]:1}" --prompts "$folder/prompts.jsonl" --length 40 --temperature 0 -o "$folder/texts.jsonl"
result 'as generate writes' "$(diff <(grep -o '"text": .*"tokens": [0-9]*' "$folder/texts.jsonl") \
    <(head -n 3 "$folder/told" | grep -o '"text": .*"tokens": [0-9]*'))"
run "${solves[@]}" --samples 4 --temperature 1 --json --predictions "$folder/told"
result 'of several answers' "$(awk -v json="$(cat "$folder/out")" '
    /"sample": / { n[$0 ~ /"line": 1,/ ? 1 : $0 ~ /"line": 2,/ ? 2 : $0 ~ /"line": 3,/ ? 3 : 4] += /"flexible-extract": {"right": true/ }
    function value(key) { return match(json, "flexible.*\"" key "\": [^,}]*") ? substr(json, RSTART, RLENGTH) : "" }
    function about(key, want,  got) {
        got = value(key); sub(/.*: /, "", got)
        if (got == "" || (got - want) ^ 2 > 1e-12) print key ": " got " and " want
    }
    END {
        for (i = 1; i <= 4; i++) { c = n[i]; mean += c / 16; any += (c > 0) / 4; two += (1 - (4 - c) * (3 - c) / 12) / 4 }
        about("right", mean); about("pass_at_2", two); about("pass_at_4", any)
        if (NR != 16 || mean == 0 || mean == 1) print NR " answers, " mean " right"
    }' "$folder/told")"
run "${solves[@]}" --samples 2 --temperature 1 --seed 3 --predictions "$folder/again"
result 'by seed and number' "$(diff <(grep '"sample": [34]' "$folder/told" | sed 's/"sample": [34], //') \
    <(sed 's/"sample": [12], //' "$folder/again"))"
cp $data/verl.jsonl "$folder/own.jsonl"
echo '{"prompt": "How many?", "answer": 7.25}' >>"$folder/own.jsonl"
works 'in a chat' 'own.jsonl: 3 problems, answered in a chat as chatml' "${tiny[@]}" --problems "$folder/own.jsonl" --chat \
    --length 30 --chat-template chatml --predictions "$folder/told"
run generate "${tiny[@]:1}" --prompts "$folder/own.jsonl" --chat --chat-template chatml --length 30 --temperature 0 -o "$folder/texts.jsonl"
result 'as generate answers' "$(diff <(grep -o '"text": .*"tokens": [0-9]*' "$folder/texts.jsonl") <(grep -o '"text": .*"tokens": [0-9]*' \
    "$folder/told"; grep -o '"answer": "[^"]*"' "$folder/told" | tr '\n' ' ' |
    grep -vx '"answer": "9" "answer": "12.5" "answer": "7.25" '))"
run "${tiny[@]}" --problems $data/verl.parquet --chat --length 30 --chat-template chatml --predictions "$folder/again"
result 'Parquet: records of verl' "$(diff <(head -n 2 "$folder/told" | sed 's/"path": "[^"]*"//') <(sed 's/"path": "[^"]*"//' "$folder/again"))"
fails 'messages of no chat' 2 "own.jsonl:1: no object with a string 'prompt'; messages need --chat" "${tiny[@]}" --length 9 \
    --problems "$folder/own.jsonl"
fails 'no answer in writing' 2 "'answer' (or 'ground_truth' of 'reward_model') is neither a text nor a number" "${tiny[@]}" \
    --length 9 --problems "$folder/prompts.jsonl"
fails 'choices are not written' 2 'arc.jsonl:1: arc: its answers are chosen: give the file as --choices' "${tiny[@]}" --problems $data/arc.jsonl
fails 'nor are problems chosen' 2 'gsm8k.jsonl:1: gsm8k: its answers are written: give the file as --problems' "${tiny[@]}" \
    --choices $data/gsm8k.jsonl
fails 'too long an answer' 2 'evaluate: --length: 256 tokens of an answer leave no room' "${tiny[@]}" --problems $data/gsm8k.jsonl
fails 'the same answer twice' 2 'evaluate: --samples: the likeliest answer is always the same' "${solves[@]}" --samples 2
fails 'vectors of problems' 2 'evaluate: --vectors: is not for --problems' "${solves[@]}" --vectors "$folder/v"
fails 'problems and data' 2 'evaluate: --data: is not for --problems' "${solves[@]}" --data "$text"
fails 'options of problems' 2 'evaluate: --length: is for --problems' "${tiny[@]}" --choices $data/arc.jsonl --length 9
echo '{"problem": "1 + 1?", "solution": "It is 2."}' >"$folder/bad.jsonl"
fails 'a solution without an answer' 2 'bad.jsonl:1: math: the solution has no answer in a \boxed{}' "${tiny[@]}" --problems "$folder/bad.jsonl"

[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# Classes of texts and rewards by commands: lines and columns of texts with labels, training, what is
# told of them. Catches: a label that becomes another class, a file of another kind that is taken for
# texts with classes, predictions out of order, a base whose head is not left out, a figure that is
# not what the predictions say.
set -u
suite=classes
. tests/cli/cases.sh

t=$folder/tok.json train=$folder/train.jsonl test=$folder/test.jsonl w=$folder/w.st
good=(lovely warm clever bright) bad=(dull cold slow grim) plain=(film story scene music)
make_texts() { # FIRST LAST
    local i class word
    for i in $(seq "$1" "$2"); do
        class=$((i * 7 % 3)) word=
        [ $class -ne 0 ] || word=${bad[i % 4]}
        [ $class -ne 1 ] || word="${good[i % 4]} but ${bad[(i + 1) % 4]}"
        [ $class -ne 2 ] || word=${good[i % 4]}
        [ $((i % 2)) -eq 0 ] || class="\"$(echo bad mixed good | cut -d ' ' -f $((class + 1)))\""
        echo "{\"text\": \"the ${plain[i % 4]} we saw was $word in the end\", \"label\": $class}"
    done
}
make_texts 1 240 >"$train"
make_texts 241 300 >"$test"
run tokenizer train "$train" --vocab 400 -o "$t" --special-token '<|endoftext|>' --special-token '[PAD]' \
    --special-token '[CLS]' --special-token '[SEP]'
model=(models/llama.lua --set layers=1 --set model=32 --set heads=2 --set kv_heads=2 --set ffn=64 --set seq=32
    --set vocab=400)
small=("${model[@]}" --set classes=bad,mixed,good --micro-batch 10 --global-batch 20 --tokenizer "$t")
number() { grep -o "\"$1\": [^,}]*" "$folder/out" | head -n 1 | cut -d ' ' -f 2; } # KEY
near() { # NAME A B
    result "$1" "$(awk -v a="$2" -v b="$3" 'BEGIN { if (!(a > 0 && (a - b) ^ 2 < (1e-5 * b) ^ 2)) print a " and " b }')"
}

# --- training and what it says ---
works 'train' '300 texts of ' train "${small[@]}" --data "$train" --val "$test" --steps 60 --lr 5e-3 \
    --save "$w" --log "$folder/a.jsonl"
[[ $out == *'33.3 % bad, 33.3 % mixed, 33.3 % good'* && $out == *' right there; entropy of the classes 1.0986'* ]]
result 'says what the classes are' "$([ $? -eq 0 ] || echo "$out")"
[[ $(tail -n 1 "$folder/a.jsonl") == *'"accuracy":1,"val_accuracy":1}'* ]]
result 'learns them' "$([ $? -eq 0 ] || tail -n 1 "$folder/a.jsonl")"
log=$(grep -o '"val_loss":[^,}]*' "$folder/a.jsonl" | cut -d : -f 2)
weights=(models/llama.lua --set-from "$w" --load "$w" --tokenizer "$t" --micro-batch 8)
works 'evaluate' 'classes 100.00 % right, mean F1 1.0000, loss' evaluate "${weights[@]}" --data "$test"
run evaluate "${weights[@]}" --data "$test" --json
near 'as training says' "$(number loss)" "$log"
loss=$(number loss)
run evaluate "${weights[@]}" --data "$test" --json --micro-batch 7 --mesh t=2,p=1
near 'on other ranks and in other batches' "$(number loss)" "$loss"
result 'counts each text once' "$([ "$(number texts)" = 60 ] || cat "$folder/out")"
grep '"label": [0-9]' "$test" >"$folder/numbers.jsonl"
run evaluate "${weights[@]}" --set classes=schlecht,mäßig,良い --data "$folder/numbers.jsonl"
result 'columns of whatever letters' "$(grep -E '^ +(schlecht|mäßig   |良い    )  precision' "$folder/out" |
    grep -c . | grep -qx 3 || cat "$folder/out")"

# --- the same of an early state, whose figures are no ones ---
run train "${small[@]}" --data "$train" --val-fraction 0 --steps 8 --save "$folder/early.st"
early=(models/llama.lua --set-from "$folder/early.st" --load "$folder/early.st" --tokenizer "$t" --micro-batch 8)
run evaluate "${early[@]}" --data "$test" --json --predictions "$folder/p.jsonl"
right=$(grep -c '"label": "\([a-z]*\)", .*"given": "\1"' "$folder/p.jsonl")
near 'accuracy is what predictions say' "$(number accuracy)" "$(awk -v r="$right" 'BEGIN { print r / 60 }')"
result 'some are wrong' "$([ "$right" -gt 0 ] && [ "$right" -lt 60 ] || echo "$right right")"
loss=$(awk -F '[][]' '{ split($2, p, ", "); match($0, /"given": "[a-z]*/); g = substr($0, RSTART + 10, RLENGTH - 10)
    sum -= log(p[g == "bad" ? 1 : g == "mixed" ? 2 : 3]) } END { printf "%.9g", sum / NR }' "$folder/p.jsonl")
near 'so is the loss' "$(number loss)" "$loss"
given() { sed 's/.*"given": "\([a-z]*\)".*/\1/' "$folder/p.jsonl"; }
wanted() { sed 's/.*"label": "*\([a-z0-9]*\)"*}/\1/; s/^0$/bad/; s/^1$/mixed/; s/^2$/good/' "$test"; }
result 'in the order of the texts' "$(diff <(given) <(wanted) | head -n 3)"
sed 's/, "label": .*/}/' "$test" >"$folder/bare.jsonl"
works 'texts without a class' "q.jsonl: of 60 texts" evaluate "${early[@]}" --data "$folder/bare.jsonl" \
    --predictions "$folder/q.jsonl"
result 'are told alike' "$(diff <(sed 's/, "given.*/}/' "$folder/p.jsonl") "$folder/q.jsonl" | head -n 3)"
cp "$folder/early.st" "$folder/nan.st"
printf '\377\377\377\177' | dd of="$folder/nan.st" bs=1 seek=$(($(stat -c %s "$folder/nan.st") - 4)) conv=notrunc 2>/dev/null
fails 'but not by weights that are no numbers' 1 'probabilities are not finite; wrong weights?' evaluate "${early[@]}" \
    --load "$folder/nan.st" --data "$folder/bare.jsonl" --predictions "$folder/q.jsonl"
run evaluate "${early[@]}" --data "$folder/bare.jsonl" --predictions -
result 'nothing else where they are printed' "$(diff "$folder/out" "$folder/q.jsonl" | head -n 3)"
fails 'which are no use to learn from' 2 "bare.jsonl:1: no object with a 'label'" train "${small[@]}" \
    --data "$folder/bare.jsonl" --steps 1
fails 'or to be counted' 2 "bare.jsonl:1: no object with a 'label'" evaluate "${early[@]}" \
    --data "$folder/bare.jsonl"

# --- from a base that writes text, with adapters ---
run train "${model[@]}" --micro-batch 8 --tokenizer "$t" --eot auto --data "$folder/bare.jsonl" --steps 2 \
    --save "$folder/base.st"
tuned=(models/llama.lua --set-from "$folder/base.st" --load "$folder/base.st" --set classes=3 --set lora=2
    --micro-batch 8 --tokenizer "$t")
sed 's/"bad"}/0}/; s/"mixed"}/1}/; s/"good"}/2}/' "$train" >"$folder/numbers.jsonl"
works 'a base begins a head' 'head    begins anew: ' train "${tuned[@]}" --data "$folder/numbers.jsonl" --steps 3 \
    --save-trained "$folder/ad.st"
works 'which is trained beside adapters' 'score ' show "$folder/ad.st"
works 'and read again' 'classes ' evaluate "${tuned[@]}" --load-trained "$folder/ad.st" \
    --data "$folder/numbers.jsonl"
fails 'but not made up' 2 "base.st: has no tensor 'score'" evaluate "${tuned[@]}" --data "$folder/numbers.jsonl"
fails 'of other classes' 2 "tensor 'score' is" evaluate "${weights[@]}" --set classes=4 \
    --data "$folder/numbers.jsonl"

# --- other forms ---
for kind in int64 int32 double float delta; do
    works "labels in Parquet, $kind" '50 texts of 2' train "${small[@]}" --set classes=3 --steps 1 \
        --data tests/data/parquet/labels_$kind.parquet --log "$folder/$kind.jsonl"
done
run train "${small[@]}" --set classes=3 --steps 1 --data tests/data/parquet/labels.jsonl --log "$folder/l.jsonl"
losses() { grep -o '"loss":[^,]*' "$1"; }
for kind in int64 int32 double float delta; do
    result "are those of lines, $kind" "$(diff <(losses "$folder/l.jsonl") <(losses "$folder/$kind.jsonl"))"
done
packed=("${small[@]}" --set documents=0 --data "$train" --steps 1)
works 'packed' 'packed  240 documents into ' train "${packed[@]}" --pack
fails 'but not where texts see each other' 2 '--pack: texts in one row would see each other' train \
    "${small[@]}" --data "$train" --steps 1 --pack
line() { echo "$1" >"$folder/one.jsonl"; }
one=(train "${small[@]}" --data "$folder/one.jsonl" --val-fraction 0 --steps 1)
for keys in 'text text_pair' 'sentence1 sentence2' 'premise hypothesis' 'question1 question2' 'question sentence'; do
    line "{\"${keys% *}\": \"a film\", \"${keys#* }\": \"is slow\", \"label\": true}"
    works "two texts, ${keys% *}" '0.0 % bad, 100.0 % mixed' "${one[@]}"
done
line '{"sentence": "a film", "idx": 3, "label": 2}'
works 'a sentence' '100.0 % good' "${one[@]}"
line '{"review": "a film", "label": 2}'
works 'another field' '100.0 % good' "${one[@]}" --field review
bad() { # NAME TEXT LINE
    line "$3"
    fails "$1" 2 "one.jsonl:1: $2" "${one[@]}"
}
bad 'no text' "no object with a string 'text'" '{"question": "a", "label": 1}'
bad 'a text of a number' "no object with a string 'text'" '{"text": 1, "label": 1}'
bad 'half a pair' "no object with a string 'text'" '{"text": "a", "text_pair": 2, "label": 1}'
bad 'no label' "no object with a 'label'" '{"text": "a"}'
bad 'a label of a list' "no object with a 'label'" '{"text": "a", "label": [1]}'
bad 'an unknown class' "'label' is 'fine', which is none of the classes bad,mixed,good" '{"text": "a", "label": "fine"}'
one+=(--set classes=3)
bad 'a name among numbers' "'label' is 'bad', and the plan's classes have no names but numbers below 3: plan with" '{"text": "a", "label": "bad"}'
one=("${one[@]:0:${#one[@]}-2}")
bad 'a class too many' "'label' is 3; the 3 classes are 0 to 2" '{"text": "a", "label": 3}'
bad 'half a class' "'label' is 0.5; " '{"text": "a", "label": 0.5}'
bad 'none' "'label' is -1; " '{"text": "a", "label": -1}'
line '{"text": "", "label": 0}'
fails 'an empty text alone' 2 'there is no text with a class' "${one[@]}"
fails 'no lines' 2 "texts of classes are lines of a file" train "${small[@]}" --data tests/cli/cases.sh --steps 1
fails 'without a tokenizer' 2 'which --tokenizer FILE takes apart' train "${model[@]}" --set classes=3 \
    --data "$train" --steps 1
fails 'tokens' 2 'which --tokenizer FILE takes apart' train "${small[@]}" --data "$train" --token-bytes 1 --steps 1
fails 'predictions of tokens' 2 '--predictions: are of classes of texts' evaluate "${model[@]}" \
    --load "$folder/base.st" --tokenizer "$t" --data "$folder/bare.jsonl" --predictions "$folder/q.jsonl"
fails 'predictions of packed texts' 2 'which --pack changes' evaluate "${early[@]}" --set documents=0 --pack \
    --data "$test" --predictions "$folder/q.jsonl"
{ head -n 2 "$test" && echo '{"text": "", "label": 0}' && tail -n 2 "$test"; } >"$folder/gap.jsonl"
works 'an empty text is left out' ': 4 texts' evaluate "${early[@]}" --data "$folder/gap.jsonl"
fails 'but has a place among predictions' 2 'gap.jsonl:3: a text without a token' evaluate "${early[@]}" \
    --data "$folder/gap.jsonl" --predictions "$folder/q.jsonl"
works 'with a token it is told' ': of 5 texts' evaluate "${early[@]}" --data "$folder/gap.jsonl" --eot '[SEP]' \
    --predictions "$folder/q.jsonl"
fails 'text from what tells classes' 2 'it writes none' generate "${weights[@]}" --prompt a
echo '{"prompt": "a", "choices": ["b", "c"], "answer": 0}' >"$folder/c.jsonl"
fails 'and choices' 2 'it writes none' evaluate "${weights[@]}" --choices "$folder/c.jsonl"
for classes in 1 a a,a a,,b 401 a,7; do
    fails "classes that are none, $classes" 2 'class' plan "${model[@]}" --set "classes=$classes"
done
fails 'both' 2 "'classes' and 'preference': one of them" plan "${model[@]}" --set classes=2 --set preference=dpo

# A plan whose loss and logits disagree, though its fingerprint is right: nothing is written beyond what is there.
for classes in 2 300; do
    run plan "${model[@]}" --set classes=3 --micro-batch 10 -o "$folder/three.plan"
    sed -i "s/classes=\"3\"/classes=\"$classes\"/" "$folder/three.plan"
    run check "$folder/three.plan"
    forged=$(grep -o '[0-9a-f]\{16\}' <<<"$err" | tail -n 1)
    sed -i "s/fingerprint=[0-9a-f]*/fingerprint=$forged/" "$folder/three.plan"
    sed 's/"label": .*/"label": 1}/' "$train" >"$folder/alike.jsonl"
    fails "a loss of $classes classes, logits of three" 1 "of $classes classes, and its logits of 3" train \
        "$folder/three.plan" --quiet --tokenizer "$t" --data "$folder/alike.jsonl" --steps 1
done

# --- an encoder ---
encoder=(models/bert.lua --set layers=1 --set model=32 --set heads=2 --set seq=32 --set vocab=400 --set mask_token=2
    --set padding=1 --set classes=bad,mixed,good --micro-batch 8 --global-batch 24 --tokenizer "$t" --bos '[CLS]' --eot '[SEP]')
works 'an encoder' 'right there' train "${encoder[@]}" --data "$train" --val "$test" --steps 40 --lr 5e-3
line '{"text": "a [PAD] b", "label": 1}'
fails 'padding within a text' 2 'text 1 has the token 1, which stands behind texts' train "${encoder[@]}" --special \
    --data "$folder/one.jsonl" --steps 1

encoder+=(--set types=2)
line '{"premise": "a b", "hypothesis": "c d", "label": 1}'
works 'two types of tokens' '100.0 % mixed' train "${encoder[@]}" --set sep_token=3 --data "$folder/one.jsonl" \
    --val-fraction 0 --steps 1
fails 'another end than the plan has' 2 'plan with --set sep_token=3' train "${encoder[@]}" --set sep_token=4 \
    --data "$folder/one.jsonl" --steps 1
works 'packed' 'packed  240 documents' train "${encoder[@]}" --data "$train" --pack --steps 1

# --- one that has rotary positions and windows, and tells by the mean of a text's tokens ---
modern=(models/modernbert.lua --set layers=3 --set model=32 --set heads=2 --set ffn=48 --set seq=32 --set vocab=400
    --set mask_token=2 --set padding=1 --set sep_token=3 --set pooling=mean --tokenizer "$t" --bos '[CLS]' --eot '[SEP]')
works 'hidden tokens first' 'wrote' train "${modern[@]}" --data "$train" --steps 2 --save "$folder/m.st"
modern+=(--set classes=bad,mixed,good --load "$folder/m.st" --micro-batch 8 --global-batch 24)
works 'then classes' ' right there' train "${modern[@]}" --data "$train" --val "$test" --steps 40 --lr 5e-3 \
    --save "$folder/mc.st"
result 'are told' "$([[ $out == *'100.00 % right there'* ]] || echo "$out")"
works 'by what was trained' 'classes 100.00 % right' evaluate models/modernbert.lua --set-from "$folder/mc.st" \
    --load "$folder/mc.st" --tokenizer "$t" --bos '[CLS]' --eot '[SEP]' --data "$test"
loss_of() { grep -o 'loss [0-9.]*' <<<"$out" | head -n 1; }
whole=$(loss_of)
works 'packed' 'classes 100.00 % right' evaluate models/modernbert.lua --set-from "$folder/mc.st" --load "$folder/mc.st" \
    --tokenizer "$t" --bos '[CLS]' --eot '[SEP]' --data "$test" --pack
result 'they are told alike' "$([ "$(loss_of)" = "$whole" ] || echo "$out")"
fails 'another end than the published one' 2 'plan with --set sep_token=2' train "${modern[@]}" --data "$train" \
    --eot '[CLS]' --steps 1

# --- rewards ---
for i in $(seq 40); do
    echo '{"prompt": "tide '"$i"'? ", "chosen": "low '"$i"'.", "rejected": "the moon"}'
done >"$folder/pairs.jsonl"
reward=("${model[@]}" --set preference=reward --micro-batch 4 --global-batch 8 --tokenizer "$t" --eot auto)
works 'rewards' 'in validation' train "${reward[@]}" --data "$folder/pairs.jsonl" --steps 60 --lr 5e-3 \
    --save "$folder/r.st"
works 'are evaluated' '100.00 % of chosen answers have more reward; pairs.jsonl: 40 pairs' evaluate models/llama.lua \
    --set-from "$folder/r.st" --load "$folder/r.st" --micro-batch 4 --tokenizer "$t" --eot auto \
    --data "$folder/pairs.jsonl"
run evaluate models/llama.lua --set-from "$folder/r.st" --load "$folder/r.st" --micro-batch 4 --tokenizer "$t" \
    --eot auto --data "$folder/pairs.jsonl" --json
chosen=$(number chosen) rejected=$(number rejected)
sed 's/"chosen"/"completion"/; s/, "rejected.*/}/' "$folder/pairs.jsonl" >"$folder/answers.jsonl"
sed 's/"rejected"/"completion"/; s/"chosen": "[^"]*", //' "$folder/pairs.jsonl" | head -n 39 >"$folder/worse.jsonl"
alone=(evaluate models/llama.lua --set-from "$folder/r.st" --load "$folder/r.st" --micro-batch 4 --tokenizer "$t"
    --eot auto --predictions "$folder/rewards.jsonl")
works 'answers one by one' 'rewards.jsonl: of 40 answers' "${alone[@]}" --data "$folder/answers.jsonl"
mean() { grep -o '[-0-9.e]*}' "$folder/rewards.jsonl" | awk '{ sum += $1 } END { printf "%.9g", sum / NR }'; }
near 'have the rewards that they have in pairs' "$(mean)" "$chosen"
works 'an odd number of them' 'rewards.jsonl: of 39 answers' "${alone[@]}" --data "$folder/worse.jsonl"
result 'have theirs' "$(awk -v a="$(mean)" -v b="$rejected" 'BEGIN { if (!(a < 0 && (a - b) ^ 2 < (0.05 * b) ^ 2)) print a " and " b }')"
line '{"text": "low 3."}'
works 'a text without a question' 'of 1 answers' "${alone[@]}" --data "$folder/one.jsonl"
line '{"prompt": "'"$(for i in $(seq 60); do printf 'low tide %d ' "$i"; done)"'", "completion": "low"}'
works 'a question that is too long' 'of 1 answers' "${alone[@]}" --data "$folder/one.jsonl"
bare=("${alone[@]:0:10}" "${alone[@]:12}") # without --eot
echo '{"text": "low 4."}' | tee "$folder/one.jsonl" >"$folder/behind.jsonl"
echo '{"text": "a"}' >>"$folder/one.jsonl"
echo '{"prompt": "a", "completion": ""}' >>"$folder/behind.jsonl"
run "${bare[@]}" --data "$folder/one.jsonl"
one_token=$(tail -n 1 "$folder/rewards.jsonl")
run "${bare[@]}" --data "$folder/behind.jsonl" --eot auto
result 'a text of one token has its reward, and not that of what is behind it' \
    "$([ "$one_token" != "$(tail -n 1 "$folder/rewards.jsonl")" ] || echo "$one_token")"
printf '{"text": "low 3."}\n{"text": ""}\n{"text": "low 4."}\n' >"$folder/gap.jsonl"
fails 'an answer without a token' 2 'gap.jsonl:2: a text without a token' "${alone[@]}" --data "$folder/gap.jsonl"
fails 'no answers' 2 'takes apart' evaluate models/llama.lua --set-from "$folder/r.st" --load "$folder/r.st" \
    --micro-batch 4 --data "$folder/answers.jsonl" --predictions "$folder/rewards.jsonl"
# --- sets of classes, numbers, weights ---
for i in $(seq 160); do
    a=$((i % 2)) b=$((i / 2 % 2)) c=$((i % 3 == 0)) list=
    [ $a -eq 0 ] || list='"plot"'
    [ $b -eq 0 ] || list=${list:+$list, }'"cast"'
    [ $c -eq 0 ] || list=${list:+$list, }'"look"'
    text="we saw$([ $a -eq 0 ] || echo ' the story')$([ $b -eq 0 ] || echo ' the actor')$([ $c -eq 0 ] || echo ' the scene')"
    echo "{\"text\": \"$text in the end\", \"labels\": [$list], \"label\": $((a + 2 * b - c)).5}"
done >"$folder/sets.jsonl"
small=("${model[@]}" --micro-batch 10 --global-batch 20 --tokenizer "$t" --data "$folder/sets.jsonl")
works 'sets' '50.0 % plot, 50.0 % cast, 33.1 % look' train "${small[@]}" --set classes=plot,cast,look \
    --set class_kind=sets --steps 40 --lr 5e-3 --save "$folder/s.st" --log "$folder/s.jsonl"
result 'say how many are right' "$(tail -n 1 "$folder/s.jsonl" | grep -q '"label_accuracy":[01].*"val_accuracy":' || echo no)"
head -n 30 "$folder/sets.jsonl" >"$folder/few.jsonl"
again=("${small[@]}" --set classes=plot,cast,look --set class_kind=sets --checkpoint "$folder/c.st")
run train "${again[@]}" --val "$folder/few.jsonl" --steps 1
works 'go on with another validation' 'done' train "${again[@]}" --val "$folder/sets.jsonl" --steps 2 --resume "$folder/c.st"
result 'as what they were' "$(grep 'other data' "$folder/err")"
sed 's/"cast"/"look"/; s/"look", "look"/"look"/' "$folder/sets.jsonl" >"$folder/few.jsonl"
run train "${again[@]/sets.jsonl/few.jsonl}" --val "$folder/sets.jsonl" --steps 2 --resume "$folder/c.st"
result 'other sets are noticed' "$(grep -q 'other data' "$folder/err" || cat "$folder/err")"
sets=(evaluate models/llama.lua --set-from "$folder/s.st" --load "$folder/s.st" --tokenizer "$t" --data "$folder/sets.jsonl")
works 'are told' '100.00 % exactly right; F1 micro 1.0000, macro 1.0000; mean average precision 1.0000' "${sets[@]}" \
    --micro-batch 8 --predictions "$folder/p.jsonl"
result 'each its own' "$(diff <(sed 's/.*"labels": \(\[.*\]\), .*/\1/' "$folder/sets.jsonl") \
    <(sed 's/{"labels": \(\[[^]]*\]\),.*"given": \[.*/\1/' "$folder/p.jsonl") | head -n 3)"
run "${sets[@]}" --micro-batch 8 --json
loss=$(number loss)
run "${sets[@]}" --micro-batch 3 --mesh t=2,p=1 --json --threshold 1
near 'in other batches' "$(number loss)" "$loss"
result 'nothing is certain' "$(grep -q '"told": 0' "$folder/out" || cat "$folder/out")"
# The same sets as fields of each class.
sed 's/"labels": \[\(.*\)\], "label".*/\1}/; s/} *$/}/' "$folder/sets.jsonl" |
    awk '{ p = /"plot"/; c = /"cast"/; l = /"look"/; sub(/", .*/, "\""); print $0 ", \"plot\": " p ", \"cast\": " c ", \"look\": " l "}" }' \
        >"$folder/fields.jsonl"
works 'fields' '100.00 % exactly right' "${sets[@]}" --micro-batch 8 --data "$folder/fields.jsonl"
sed 's/"labels": .*\], //' "$folder/sets.jsonl" >"$folder/scores.jsonl"
small=("${small[@]:0:${#small[@]}-1}")
works 'one number' 'numbers 160 texts' train "${small[@]}" "$folder/scores.jsonl" --set classes=1 --set class_kind=mse --steps 30 --lr 5e-3 \
    --save "$folder/n.st"
number=(models/llama.lua --set-from "$folder/n.st" --load "$folder/n.st" --tokenizer "$t" --data "$folder/scores.jsonl")
run evaluate "${number[@]}" --micro-batch 8 --predictions "$folder/p.jsonl" --json
result 'is told' "$(awk -v r="$(number spearman)" 'BEGIN { if (!(r > 0.7)) print r }')"
error=$(awk -F '[:,}]' '{ sum += ($2 - $4) ^ 2 } END { printf "%.9g", sum / NR }' "$folder/p.jsonl")
near 'its error is what predictions say' "$(number squared_error)" "$error"
result 'in the order of the texts' "$(diff <(sed 's/.*"given": \(.*\)}/\1/' "$folder/p.jsonl") \
    <(sed 's/.*"label": \(.*\)}/\1/' "$folder/scores.jsonl") | head -n 3)"
for text in 'we saw' 'we saw the' 'we saw the actor' the we 'in the end' 'we saw the scene in'; do
    echo "{\"prompt\": \"$text\"}"
done >"$folder/one.jsonl"
works 'it judges answers' '"reward": ' generate "${model[@]}" --load "$folder/base.st" --tokenizer "$t" --prompts \
    "$folder/one.jsonl" --length 2 --reward-load "$folder/n.st"
grep -o '"reward": [-0-9.]*' <<<"$out" | cut -d ' ' -f 2 >"$folder/rewards.txt"
sed 's/{"prompt": "\(.*\)", "text": "\(.*\)", "tokens.*/{"text": "\1\2"}/' <<<"$out" >"$folder/one.jsonl"
run evaluate "${number[@]:0:${#number[@]}-1}" "$folder/one.jsonl" --micro-batch 1 --predictions "$folder/p.jsonl"
# Where the text of an answer is the same tokens again.
result 'by the number that it tells' "$(grep -o '[-0-9.]*' "$folder/p.jsonl" | paste "$folder/rewards.txt" - |
    awk '{ n += ($1 - $2) ^ 2 < 1e-9 } END { if (n < 2) print n " of 7" }')"
weighed=(train "${model[@]}" --micro-batch 10 --global-batch 20 --tokenizer "$t" --set classes=bad,mixed,good --steps 2
    --data "$train")
works 'weights' 'count 1, 3.5, 0.5 times' "${weighed[@]}" --set class_weights=1,3.5,0.5 --set class_smoothing=0.1
works 'balanced' 'count 1, 1, 1 times' "${weighed[@]}" --set class_weights=balanced
head -n 1 "$train" >"$folder/one.jsonl"
fails 'a class without a text' 2 'class_weights=balanced: no text is of class bad' "${weighed[@]:0:${#weighed[@]}-1}" \
    "$folder/one.jsonl" --set class_weights=balanced --val-fraction 0
fails 'two weights of three' 2 'it must be 3 numbers more than 0' "${weighed[@]}" --set class_weights=1,2
fails 'weights of sets' 2 'class_weights=1,2,3: has no effect' "${weighed[@]}" --set class_kind=sets \
    --set class_weights=1,2,3
fails 'another kind' 2 "class_kind, is 'many'; it can be one, sets, mse, mae or huber" "${weighed[@]}" \
    --set class_kind=many
fails 'a threshold of no sets' 2 '--threshold: is of sets' evaluate "${number[@]}" --threshold 0.3

# --- settings that belong to something else ---
for set in beta=0.3 embed_group=8 clip=0.3 gamma=1.0 class_kind=sets lora_targets=q mask_token=5; do
    fails "$set by itself" 2 "--set $set: has no effect: model llama does not read it" plan "${model[@]}" --set $set
done
works 'its own value is no mistake' 'memory' plan "${model[@]}" --set beta=0.1
works 'nor is what weights bring' 'memory' plan models/llama.lua --set-from "$folder/s.st" --set classes=none
fails 'of a teacher' 2 '--teacher-set beta=0.3: has no effect' plan "${model[@]}" --teacher models/llama.lua \
    --teacher-set beta=0.3
exit $((n_failed > 0))

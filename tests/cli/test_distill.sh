#!/usr/bin/env bash
# A teacher, by commands: plans, losses, files, checkpoints, exports, mistakes.
# Catches: a student whose files have the teacher in them, or are not a plain model's; a run that goes
# on otherwise than it would have, or with another teacher; losses that depend on the layout; options
# that are passed over.
set -u
suite=distill
. tests/cli/cases.sh

model=models/llama.lua
small=(--set layers=2 --set model=16 --set heads=2 --set kv_heads=1 --set seq=16 --set vocab=256)
large=(--set layers=3 --set model=24 --set heads=3 --set kv_heads=3 --set seq=16 --set vocab=256)
steady=(--lr-schedule constant --warmup 0 --lr 1e-2 --val-fraction 0.2)
teacher=$folder/teacher.safetensors other=$folder/other.safetensors text=$folder/text.txt
head -c 12000 README.md >"$text" # all of it is run through a teacher below

run train "$model" "${large[@]}" --data "$text" --steps 20 "${steady[@]}" --save "$teacher" --quiet
run train "$model" "${large[@]}" --data "$text" --steps 2 "${steady[@]}" --save "$other" --quiet
taught=("$model" "${small[@]}" --teacher "$model" --teacher-set-from "$teacher" --micro-batch 2 --global-batch 4)
learn=(train "${taught[@]}" --teacher-load "$teacher" --data "$text" "${steady[@]}")
losses() { grep -o '"loss":[0-9.]*' "$1" | cut -d: -f2; }
same() { # NAME A B: losses to five digits, not to the last one that is written
    result "$1" "$(paste <(losses "$2") <(losses "$3") | awk '
        !($2 > 0 && $1 - $2 < 1e-5 * $2 && $2 - $1 < 1e-5 * $2) { print "step " NR ": " $1 " and " $2; n++ }
        END { if (NR == 0) print "no losses" }' | head -n 3)"
}

# --- plans ---
works 'a plan says what the teacher is' 'of the parameters, frozen: forward only' plan "${taught[@]}" -o "$folder/a.plan"
works 'and so does show' 'teacher ' show "$folder/a.plan"
works 'and its JSON' '"teacher_parameters":' show "$folder/a.plan" --json
works 'it is sound' 'is sound' check "$folder/a.plan"
works 'a search has it' 'predicted' plan "$model" --set size=1b --set seq=2048 --teacher "$model" \
    --teacher-set size=8b --cluster h100-dgx --ranks 8 --global-batch 64 -o "$folder/b.plan"
works 'whose plan is sound' 'is sound' check "$folder/b.plan"

# --- training ---
works 'it learns' 'from the teacher there' "${learn[@]}" --steps 8 --log "$folder/whole.jsonl" --save "$folder/student.safetensors"
result 'the log has both parts of the loss' "$(grep -c '"values":{"ce":[0-9.]*,"kl":[0-9.]*[,}]' "$folder/whole.jsonl" |
    grep -qx 8 || cat "$folder/whole.jsonl")"
result 'and validation' "$(grep -q '"val_kl":' "$folder/whole.jsonl" || tail -n 1 "$folder/whole.jsonl")"
for way in t=2 p=2 d=2 'p=2,t=2'; do
    run train "${taught[@]}" --teacher-load "$teacher" --data "$text" "${steady[@]}" --steps 8 --mesh "$way" --log "$folder/$way.jsonl"
    same "$way: the losses of one rank" "$folder/whole.jsonl" "$folder/$way.jsonl"
done
run train "$folder/a.plan" --teacher-load "$teacher" --data "$text" "${steady[@]}" --steps 8 --log "$folder/plan.jsonl"
same 'a plan in a file learns the same' "$folder/whole.jsonl" "$folder/plan.jsonl"
works 'without --teacher-set-from its weights say the settings' 'of them a teacher' train "$model" "${small[@]}" \
    --teacher "$model" --teacher-load "$teacher" --data "$text" --steps 1
works 'adapters learn from it, too' 'of them trained' "${learn[@]}" --steps 2 --set lora=2 --load "$folder/student.safetensors" \
    --save-trained "$folder/adapter.safetensors"

# --- what becomes of the student ---
run show "$folder/student.safetensors"
result 'its file has no teacher' "$([[ $out == *blocks.0..1.attn.wq* && $out != *teacher* ]] || echo "$out")"
works 'it is a plain model' 'perplexity' evaluate "$model" --set-from "$folder/student.safetensors" \
    --load "$folder/student.safetensors" --data "$text"
plain=$(grep -o 'loss  *[0-9.]*' <<<"$out")
works 'beside its teacher its distance is told' 'a token from the teacher' evaluate "${taught[@]}" \
    --teacher-load "$teacher" --load "$folder/student.safetensors" --data "$text"
result 'and its own loss is the same' "$([[ $out == *"$plain"* ]] || echo "$out, not $plain")"
works 'a plan writes without the teacher' '' generate "$folder/a.plan" --load "$folder/student.safetensors" --prompt 'The ' --length 5
works 'it is exported' 'wrote' export "$folder/student.safetensors" -o "$folder/exported"

# --- going on ---
run "${learn[@]}" --steps 4 --checkpoint "$folder/run.ckpt"
run "${learn[@]}" --steps 8 --resume "$folder/run.ckpt" --log "$folder/rest.jsonl"
tail -n 4 "$folder/whole.jsonl" >"$folder/last.jsonl"
same 'a run that goes on' "$folder/last.jsonl" "$folder/rest.jsonl"
fails 'with another teacher it does not' 2 "was trained with another teacher's weights" train "${taught[@]}" \
    --teacher-load "$other" --data "$text" "${steady[@]}" --steps 8 --resume "$folder/run.ckpt"
works 'without one it does' 'after step 4' train "$model" "${small[@]}" --micro-batch 2 --global-batch 4 --data "$text" \
    "${steady[@]}" --steps 6 --resume "$folder/run.ckpt"

# --- mistakes ---
fails 'no weights' 2 'the plan has a teacher: --teacher-load FILE' train "$folder/a.plan" --data "$text" --steps 1
fails 'weights that are not there' 2 'none.safetensors: cannot open' train "$folder/a.plan" --data "$text" --steps 1 \
    --teacher-load "$folder/none.safetensors"
fails 'weights of another size' 2 "the teacher's is f32[vocab=256, teacher_model=24]" train "$folder/a.plan" \
    --data "$text" --steps 1 --teacher-load "$folder/student.safetensors"
fails 'weights and no teacher' 2 '--teacher-load: the plan has no teacher' train "$model" --data "$text" --steps 1 \
    --teacher-load "$teacher"
fails 'another vocabulary' 2 "its vocab is 300, the student's 256" plan "$model" --teacher "$model" --teacher-set vocab=300
fails 'how, and from nobody' 2 '--distill: from which model?' plan "$model" --distill jsd
fails 'an unknown divergence' 2 "--distill: 'kl' is none of forward, reverse, jsd" plan "$model" --teacher "$model" --distill kl
fails 'a mixture of none' 2 '--distill-beta: is of --distill jsd' plan "$model" --teacher "$model" --distill-beta 0.3
fails 'a share beyond all' 2 '--distill-alpha' plan "$model" --teacher "$model" --distill-alpha 2
fails 'a size that the weights say' 2 '--teacher-set size: the file of --teacher-set-from' plan "$model" \
    --teacher "$model" --teacher-set-from "$teacher" --teacher-set size=8b
fails 'weights of another model' 2 'models/gpt.lua: --set attention_scale=0: the model has no setting' plan "$model" \
    --teacher models/gpt.lua --teacher-set-from "$teacher"
fails 'pairs of answers' 2 'learns from preferences or rewards' plan "$model" --teacher "$model" --set preference=dpo
fails 'a loss that reads a teacher, and none' 2 "the loss reads a teacher's logits: give --teacher" plan \
    tests/models/distilled.lua --set own=forward
fails 'an output that would replace it' 2 'teacher.safetensors' "${learn[@]}" --steps 1 --save "$teacher"

# --- what a teacher said, stored ---
stored=$folder/stored.safetensors
store=(evaluate "$model" --set-from "$teacher" --load "$teacher" --data "$text")
from=(train "$model" "${small[@]}" --micro-batch 2 --global-batch 4 --data "$text" "${steady[@]}" --steps 8)
values() { grep -o '"ce":[0-9.]*,"kl":[0-9.]*' "$1" | tr -dc '0-9.\n,' | tr , ' '; }
works 'what a teacher says is stored' "the model's loss there" "${store[@]}" --store-logits "$stored" --store-top 256 --store-dtype f32
works 'a student learns from it' 'likeliest words of 256' "${from[@]}" --teacher-logits "$stored" --log "$folder/stored.jsonl" \
    --save "$folder/learned.safetensors"
same 'all words in f32: the losses of --teacher' "$folder/whole.jsonl" "$folder/stored.jsonl"
run "${store[@]}" --store-logits "$folder/half.safetensors" --store-top 256
run "${from[@]}" --teacher-logits "$folder/half.safetensors" --log "$folder/half.jsonl"
result 'in f16 nearly those' "$(paste <(values "$folder/whole.jsonl") <(values "$folder/half.jsonl") | awk '
    ($1 - $3) ^ 2 > 1e-6 || ($2 - $4) ^ 2 > 1e-6 { print "step " NR ": " $0 } END { if (NR == 0) print "no losses" }')"
run "${store[@]}" --store-logits "$folder/few.safetensors" --store-top 8
run "${from[@]}" --teacher-logits "$folder/few.safetensors" --log "$folder/few.jsonl"
result 'few words tell less' "$(paste <(values "$folder/whole.jsonl") <(values "$folder/few.jsonl") | awk '
    !($4 > 0.3 * $2 && $4 < 1.001 * $2) { print "step " NR ": " $0; n++ } END { if (NR == 0) print "no losses" }' | head -n 3)"
for way in t=2 c=2 d=2,p=2; do
    run "${from[@]}" --teacher-logits "$folder/few.safetensors" --mesh "$way" --micro-batch 1 --log "$folder/$way.jsonl"
    same "$way: as one rank" "$folder/few.jsonl" "$folder/$way.jsonl"
done
run plan "$model" "${small[@]}" --micro-batch 2 --global-batch 4 --teacher-logits "$folder/few.safetensors" -o "$folder/few.plan"
read=(train "$folder/few.plan" --data "$text" "${steady[@]}" --steps 8)
run "${read[@]}" --teacher-logits "$folder/few.safetensors" --log "$folder/planned.jsonl"
same 'a plan in a file learns the same' "$folder/few.jsonl" "$folder/planned.jsonl"
works 'its student is a plain model' 'perplexity' evaluate "$model" --set-from "$folder/learned.safetensors" \
    --load "$folder/learned.safetensors" --data "$text"
works 'and a plan that learned tells its loss' "$(grep -o 'loss  *[0-9.]*' <<<"$out")" evaluate "$folder/few.plan" \
    --load "$folder/learned.safetensors" --data "$text"
fails 'no file' 2 '--teacher-logits FILE' "${read[@]}"
fails 'a plan that reads none' 2 'the plan reads none' train "$folder/a.plan" --data "$text" --steps 1 --teacher-logits "$stored"
fails 'a file of more words' 2 'has 256 words of each position, the plan reads 8' "${read[@]}" --teacher-logits "$stored"
fails 'other data' 2 'says nothing' "${from[@]}" --data planner/README.md --teacher-logits "$stored"
fails 'other windows' 2 'has windows of 16 tokens' "${from[@]}" --set seq=8 --teacher-logits "$stored"
fails 'another vocabulary' 2 'chose among 256 words, the model has 300' "${from[@]}" --set vocab=300 --teacher-logits "$stored"
fails 'both kinds of teacher' 2 'give this or --teacher' "${learn[@]}" --teacher-logits "$stored"
fails 'another divergence' 2 'forward alone' "${from[@]}" --teacher-logits "$stored" --distill reverse
fails 'another temperature' 2 'at temperature 1' "${from[@]}" --teacher-logits "$stored" --distill-temperature 2
fails 'weights in their place' 2 'no file of stored logits' "${from[@]}" --teacher-logits "$teacher"
head -c 40000 "$stored" >"$folder/cut.safetensors"
fails 'half of a file' 2 'cut.safetensors' "${from[@]}" --teacher-logits "$folder/cut.safetensors"
cp "$folder/few.safetensors" "$folder/bad.safetensors" # its log-probabilities come first
head -c 150000 /dev/zero | tr '\0' '\077' | dd of="$folder/bad.safetensors" bs=4096 seek=1 conv=notrunc status=none
fails 'damaged numbers' 1 'is damaged: of window' "${from[@]}" --teacher-logits "$folder/bad.safetensors"
cp "$folder/few.safetensors" "$folder/bad.safetensors"
dd if=/dev/zero of="$folder/bad.safetensors" bs=4096 seek=1 count=36 conv=notrunc status=none
fails 'zeros where numbers were' 1 'add to 8' "${from[@]}" --teacher-logits "$folder/bad.safetensors"
run "${from[@]}" --steps 2 --teacher-logits "$stored" --checkpoint "$folder/said.ckpt"
run "${from[@]}" --steps 3 --teacher-logits "$stored" --resume "$folder/said.ckpt"
result 'goes on with the file' "$([[ $status == 0 && $err != *note:* ]] || echo "$err")"
run "${from[@]}" --steps 3 --teacher-logits "$folder/half.safetensors" --resume "$folder/said.ckpt"
result 'with another one it says so' "$([[ $err == *'was trained on other data'*', teacher '* ]] || echo "status $status; $err")"
fails 'problems' 2 '--store-logits: is not for --problems' evaluate "$model" --load "$teacher" --problems "$text" \
    --store-logits "$folder/x"
fails 'of a plan that has no logits' 2 'never has all logits' "${store[@]}" --store-logits "$folder/x" --lanes 2
fails 'more words than there are' 2 'the model has 256 words' "${store[@]}" --store-logits "$folder/x" --store-top 257
fails 'words and nowhere to put them' 2 'give --store-logits FILE' "${store[@]}" --store-top 4

[ "$n_failed" -eq 0 ]

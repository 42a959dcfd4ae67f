#!/usr/bin/env bash
# Data for fine-tuning: masks, chats, packing, blends of several --data, an encoder and a decoder.
# Catches: data that a plan does not take, an option that does nothing, a resumed run that goes on
# elsewhere, losses in memory that are not those of the same data written first.
set -u
suite=data
. tests/cli/cases.sh

small=(models/llama.lua --set layers=1 --set model=16 --set heads=2 --set kv_heads=2 --set seq=32
    --set vocab=320 --micro-batch 2 --global-batch 4 --lr-schedule constant --warmup 0)
masked=("${small[@]}" --set masked=true)
text=$folder/text.txt chats=$folder/chats.jsonl pairs=$folder/pairs.jsonl t=$folder/tok.json
for i in $(seq 60); do echo "The moon went by, and $i low tides followed it."; done >"$text"
for i in $(seq 60); do
    echo '{"messages": [{"role": "user", "content": "tide '"$i"'?"},' \
        '{"role": "assistant", "content": "It followed '"$i"' moons."}]}'
done >"$chats"
for i in $(seq 60); do echo '{"prompt": "tide '"$i"'? ", "completion": "low"}'; done >"$pairs"
run tokenizer train "$text" "$chats" --vocab 300 -o "$t" --special-token '<|endoftext|>' \
    --special-token '<|im_start|>' --special-token '<|im_end|>'
with=(--tokenizer "$t" --eot auto)

losses() { grep -o '"loss":[^,]*' "$1"; }
same() { # NAME A B: two logs have the same losses
    result "$1" "$(diff <(losses "$2") <(losses "$3") | head -n 3)"
}

# --- encoding ---
works 'the tokenizer says how it takes chats' 'chats     as chatml' tokenizer show "$t"
works 'encode chats' 'of them count' tokenizer encode "$t" "$chats" --eot auto -o "$folder/c.bin"
[[ -s $folder/c.bin.mask.npy && $out == *"wrote   $folder/c.bin.mask.npy"* ]]
result 'a mask lies beside its tokens' "$([ $? -eq 0 ] || echo "$out")"
works 'decoded, chats are as their template says' \
    $'<|im_start|>user\ntide 1?<|im_end|>\n<|im_start|>assistant\nIt followed 1 moons.<|im_end|>' \
    tokenizer decode "$t" "$folder/c.bin" --special
works 'encode with packing' 'windows of 32' tokenizer encode "$t" "$chats" --eot auto --pack 32 \
    -o "$folder/p.npy"
cp "$folder/c.bin.mask.npy" "$folder/u.bin.mask.npy"
works 'a text has no mask, nor one from before' 'wrote' tokenizer encode "$t" "$text" -o \
    "$folder/u.bin"
result 'which is gone' "$([ ! -e "$folder/u.bin.mask.npy" ] || echo 'it is there')"
fails 'completions must end' 2 'pairs.jsonl:1: a completion must end: --eot TOKEN' tokenizer encode \
    "$t" "$pairs" -o "$folder/n"
fails 'no template fits' 2 'give --chat-template NAME (chatml, ' tokenizer encode \
    tests/data/tokenizers/trained.json "$chats" -o "$folder/n"
fails 'another template' 2 "template llama3 needs the special token '<|begin_of_text|>'" tokenizer \
    encode "$t" "$chats" --chat-template llama3 -o "$folder/n"
fails 'no template' 2 "'chatlm' is none of chatml, qwen2.5" tokenizer encode "$t" "$chats" \
    --chat-template chatlm -o "$folder/n"
fails 'special tokens in chats' 2 '--special: what is said in a chat is text' tokenizer encode "$t" \
    "$chats" --special -o "$folder/n"
echo '{"user": {"before": "Q: "}, "assistant": {"before": " A: ", "after": "{end}"}}' \
    >"$folder/mine.json"
works 'a template of a file' 'wrote' tokenizer encode "$t" "$chats" --chat-template \
    "$folder/mine.json" -o "$folder/m.bin"
works 'is followed' 'Q: tide 1? A: It followed 1 moons.<|endoftext|>Q:' tokenizer decode "$t" \
    "$folder/m.bin" --special
fails 'windows of nothing' 2 '--pack: 1 is less than 2' tokenizer encode "$t" "$chats" --pack 1 \
    -o "$folder/n"
fails 'what becomes of long ones' 2 "--pack-long: 'keep' is neither cut nor drop" tokenizer encode \
    "$t" "$chats" --pack 32 --pack-long keep -o "$folder/n"
fails 'none fits' 2 'none is left in which something counts and that fits' tokenizer encode "$t" \
    "$chats" --pack 4 --pack-long drop -o "$folder/n"

fails 'packing of one text' 2 '--text: has no use for --pack' tokenizer encode "$t" --text x --pack 9
echo '{"messages": [{"role": "user", "content": "tide?"}]}' >"$folder/asked.jsonl"
works 'a conversation without an answer is told' 'in 1 conversations nothing does' tokenizer encode \
    "$t" "$chats" "$folder/asked.jsonl" --eot auto -o "$folder/n"

# --- masks in training ---
fails 'masks that a plan does not take' 2 'plan with --set masked=true' train "${small[@]}" \
    --data "$folder/c.bin"
fails 'a plan that wants masks' 2 'plan with --set masked=false' train "${masked[@]}" --data "$text"
fails 'a mask is no data' 2 'is a mask: give the file of tokens' train "${masked[@]}" \
    --data "$folder/c.bin.mask.npy"
cp "$folder/c.bin.mask.npy" "$text.mask.npy"
fails 'a mask of bytes' 2 'text that becomes tokens cannot have one' train "${masked[@]}" \
    --data "$text" "${with[@]}"
fails 'a mask of another length' 2 'text.txt.mask.npy: masks ' train "${masked[@]}" --data "$text"
rm "$text.mask.npy"
head -c 300 "$folder/c.bin.mask.npy" >"$folder/u.bin.mask.npy"
fails 'a mask that is cut off' 2 'u.bin.mask.npy: .npy file promises' train "${masked[@]}" \
    --data "$folder/u.bin"
rm "$folder/u.bin.mask.npy"
works 'train on masked tokens' 'count, ' train "${masked[@]}" --data "$folder/c.bin" --steps 3 \
    --log "$folder/a.jsonl"
result 'the log says how many count' "$(grep -c '"labels":[1-9]' "$folder/a.jsonl" | grep -v 3)"
works 'train on chats' 'count, ' train "${masked[@]}" --data "$chats" "${with[@]}" --steps 3 \
    --log "$folder/b.jsonl"
same 'in memory as from a file' "$folder/a.jsonl" "$folder/b.jsonl"
documents=("${masked[@]}" --set documents=0)
works 'train on packed chats' '% full' train "${documents[@]}" --data "$chats" "${with[@]}" --pack \
    --steps 3 --log "$folder/a.jsonl"
works 'and on a file of them' 'within  documents' train "${documents[@]}" --data "$folder/p.npy" \
    --steps 3 --log "$folder/b.jsonl"
same 'with the same losses' "$folder/a.jsonl" "$folder/b.jsonl"
fails 'packing of tokens' 2 'is tokens already; --pack belongs to' train "${masked[@]}" \
    --tokenizer "$t" --data "$folder/c.bin" --pack
fails 'packing of bytes' 2 '--pack: is for --tokenizer FILE only' train "${masked[@]}" \
    --data "$text" --pack
works 'train on prompts and completions' 'count, ' train "${masked[@]}" --data "$pairs" \
    "${with[@]}" --steps 2

# --- several sources ---
blend=("${masked[@]}" "${with[@]}" --data "$chats" --data "$text" --data "$pairs")
works 'sources by their size' 'source  text.txt: ' train "${blend[@]}" --steps 2
works 'sources by their weights' 'source  chats.jsonl: 20 samples, ' train "${blend[@]}" \
    --data-weight 5 --data-weight 3 --data-weight 2 --steps 10 --eval-every 5 \
    --log "$folder/a.jsonl"
result 'a loss of each in the log' \
    "$(grep -c '"val_losses":{"chats.jsonl":[0-9.]*,"text.txt":' "$folder/a.jsonl" | grep -v 2)"
works 'and on the page' 'Validation loss by source' show "$folder/a.jsonl" --html
parts=("${blend[@]}" --data-weight 5 --data-weight 3 --checkpoint "$folder/c.st" --continue
    --log "$folder/b.jsonl" --val-fraction 0)
works 'a run that is stopped' 'done' train "${parts[@]}" --data-weight 2 --steps 7
works 'goes on' 'with those before' train "${parts[@]}" --data-weight 2 --steps 10
run train "${blend[@]}" --data-weight 5 --data-weight 3 --data-weight 2 --steps 10 --val-fraction 0 \
    --log "$folder/a.jsonl"
same 'with the samples of one that was not' "$folder/a.jsonl" "$folder/b.jsonl"
run train "${parts[@]}" --data-weight 9 --steps 11
result 'other weights are told' \
    "$([[ $err == *'was trained on other data (3 sources, '*', weights 5:3:2)'* ]] || echo "$err")"
works 'files of validation' 'in validation on text.txt' train "${masked[@]}" "${with[@]}" \
    --data "$chats" --val "$chats" --val "$text" --steps 2
mkdir "$folder/rests" # files too short for a window: labels of none
for i in $(seq 50); do printf '%020d' "$i" >"$folder/rests/$i"; done
printf '%0100d' 7 >"$folder/rests/long"
run train "${small[@]}" --data "$text" --val "$folder/rests" --val "$text" --steps 5 --lr 1e-2 \
    --log "$folder/a.jsonl"
result 'each counts by the labels in its windows' "$(tail -n 1 "$folder/a.jsonl" | tr ',{}' '\n' |
    awk -F: -v n=$((($(wc -c <"$text") - 1) / 32)) '/"val_loss"/ { all = $2 }
        /"rests"/ { a = $2 } /"text.txt"/ { b = $2 }
        END { d = all - (3 * a + n * b) / (3 + n); if (!a || !b || d > 1e-6 || d < -1e-6) print all, a, b }')"
fails 'a weight too few' 2 '--data-weight: 1 for 2 --data; each needs one' train "${small[@]}" \
    --data "$text" --data "$chats" --data-weight 1
for weight in 0 -1 nan inf 1e999 x ''; do
    fails "weight '$weight'" 2 "--data-weight: '$weight' is no number above 0" train "${small[@]}" \
        --data "$text" --data-weight "$weight"
done
many=()
for _ in $(seq 33); do many+=(--data "$text"); done
fails 'too many sources' 2 '--data: 33 of them; at most 32' train "${small[@]}" "${many[@]}"
fails 'far too many' 2 '--data: given more than 64 times' train "${small[@]}" "${many[@]}" "${many[@]}"
fails 'output over a source' 2 'would replace what --data reads' train "${small[@]}" --data "$chats" \
    --data "$text" --save "$chats"

# --- an encoder and a decoder ---
t5=(models/t5.lua --set layers=1 --set model=16 --set heads=2 --set head=8 --set ffn=16
    --set vocab=320 --micro-batch 2 --global-batch 4 --lr-schedule constant --warmup 0)
spans=(train "${t5[@]}" --set source=32 --set seq=12 --data "$text")
prompts=(train "${t5[@]}" --set noise=0 --set source=24 --set seq=12 --set eos=0 --set start=1 --set pad=1)
works 'spans are hidden' \
    'spans   15 % of 34 tokens are hidden in 2 spans: the encoder reads 32, the decoder says 8' \
    "${spans[@]}" --steps 3 --log "$folder/a.jsonl"
works 'the same on another layout' 'done' "${spans[@]}" --steps 3 --log "$folder/b.jsonl" --mesh t=2,p=2
result 'with the same samples' "$(paste <(losses "$folder/a.jsonl") <(losses "$folder/b.jsonl") |
    awk -F '[:\t]' '{ d = $2 - $4; if (d > 1e-4 || d < -1e-4) print }')"
fails 'a decoder too short for what is hidden' 2 'plan with --set seq=8, or a smaller source' \
    "${spans[@]}" --set seq=7 --steps 1
fails 'an encoder too short for anything' 2 'no room for two tokens' "${spans[@]}" --set source=2 --steps 1
fails 'tokens that stand for spans in a text' 1 'stand for hidden spans: plan with --set sentinel=' \
    "${spans[@]}" --set sentinel=101 --steps 1
fails 'a mask beside hidden spans' 2 "the plan's loss chooses them" train "${t5[@]}" --set source=32 \
    --set seq=12 --data "$folder/c.bin" --steps 1
fails 'an end beyond the vocabulary' 2 "'eos' must be a token" "${spans[@]}" --set eos=320 --steps 1
fails 'packed spans' 2 '--pack: the plan hides spans of running text' "${spans[@]}" --tokenizer "$t" --pack --steps 1
fails 'sentinels that texts have' 2 'token 299, which the plan puts in the place of hidden spans' "${spans[@]}" \
    --tokenizer "$t" --set sentinel=299 --steps 1
works 'prompts go to the encoder' 'pairs   60 prompts of ' "${prompts[@]}" --data "$pairs" "${with[@]}" \
    --steps 60 --lr 2e-2 --save "$folder/t5.st"
works 'chats, whose last answers the decoder says' 'pairs   60 prompts' "${prompts[@]}" --data "$chats" \
    "${with[@]}" --steps 1
fails 'completions that end otherwise' 2 'plan with --set eos=0' "${prompts[@]}" --set eos=3 \
    --data "$pairs" "${with[@]}" --steps 1
fails 'text where prompts are wanted' 2 'no prompt with a completion among' "${prompts[@]}" \
    --data "$text" "${with[@]}" --steps 1
fails 'bytes where prompts are wanted' 2 'which --tokenizer FILE takes apart' "${prompts[@]}" \
    --data "$pairs" --steps 1
fails 'packed prompts' 2 '--pack: prompts and completions are not packed' "${prompts[@]}" \
    --data "$pairs" "${with[@]}" --pack --steps 1
answers=(generate models/t5.lua --set-from "$folder/t5.st" --load "$folder/t5.st" --tokenizer "$t"
    --temperature 0)
works 'an answer to a prompt' 'low' "${answers[@]}" --prompt 'tide 7? '
result 'which it does not repeat' "$([[ $out != *tide* ]] || echo "$out")"
result 'and why it takes its time' "$([[ $err == *'an encoder reads the prompt'* ]] || echo "$err")"
printf '{"prompt": "tide 7? "}\n' >"$folder/asked.jsonl"
answer=$out
works 'and to one of a file' "\"text\": \"$answer\"" "${answers[@]}" --prompts "$folder/asked.jsonl"
printf '{"prompt": "tide 7? ", "answer": "%s"}\n' "$answer" >"$folder/asked.jsonl"
works 'which is right' 'answers 100.00 % exact-match' evaluate "${answers[@]:1}" --problems "$folder/asked.jsonl"
fails 'an encoder in a chat' 2 'evaluate: --chat: the model has an encoder' evaluate "${answers[@]:1}" --problems "$folder/asked.jsonl" \
    --chat --chat-template chatml
fails 'a prompt that the encoder cannot read' 2 'the encoder reads 23 at most' "${answers[@]}" \
    --prompt "$(printf 'tide %.0s' $(seq 30))"

# What stands between documents is never hidden: half of all tokens here.
for i in $(seq 800); do echo a; done >"$folder/lines"
run train models/bert.lua --set layers=1 --set model=32 --set heads=2 --set seq=16 --set documents=10 --set mask_rate=0.99 \
    --micro-batch 4 --global-batch 4 --data "$folder/lines" --val-fraction 0 --steps 3 --log "$folder/hidden.jsonl"
result 'separators are not hidden' "$(grep -o '"labels":[0-9]*' "$folder/hidden.jsonl" | cut -d : -f 2 |
    awk '$1 < 28 || $1 > 32 { print $1 " of 64 tokens are to be said" } END { if (NR != 3) print NR " steps" }')"

[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# generate --chat: what was learned from conversations is said in one. Catches: a template whose
# answer never ends, a question that is not where training had it, caches that keep what was not
# said, options that do nothing.
set -u
suite=chat
. tests/cli/cases.sh

t=tests/data/tokenizers/qwen2.json chats=$folder/chats.jsonl w=$folder/w.st
asked=('tide?' 'moon?' 'orbit?' 'sea?') said=('It follows the moon.' 'A pale one.' 'Around and around.' 'Salty.')
for i in $(seq 400); do
    a=$((i % 4)) b=$(((i + 1) % 4))
    echo '{"messages": [{"role": "user", "content": "'"${asked[$a]}"'"},' \
        '{"role": "assistant", "content": "'"${said[$a]}"'"},' \
        '{"role": "user", "content": "'"${asked[$b]}"'"},' \
        '{"role": "assistant", "content": "'"${said[$b]}"'"}]}'
done >"$chats"
run train models/gpt.lua --set layers=2 --set model=64 --set seq=96 --set vocab=426 --set heads=2 \
    --set masked=true --tokenizer $t --data "$chats" --pack --steps 80 --lr 4e-3 --val-fraction 0 \
    --save "$w"
talks=(generate models/gpt.lua --set-from "$w" --load "$w" --tokenizer $t --temperature 0 --quiet)

talk() { printf '%s\n' "$@" | "$perilune" "${talks[@]}" --chat "${options[@]}" 2>&1; }
options=()
result 'one question, as it was learned' \
    "$([ "$("$perilune" "${talks[@]}" --chat --prompt 'orbit?')" = "${said[2]}" ] || echo "$("$perilune" "${talks[@]}" --chat --prompt 'orbit?' 2>&1)")"
learned=$(printf '%s\n' "${said[0]}" "${said[1]}")
result 'a conversation, line by line' "$([ "$(talk 'tide?' '' 'moon?')" = "$learned" ] || talk 'tide?' '' 'moon?')"
long=('tide?' 'moon?' 'orbit?' 'sea?' 'tide?' 'moon?' 'orbit?')
options=(--length 10)
cached=$(talk "${long[@]}")
options+=(--no-cache)
result 'longer than the context: the same without caches' "$(diff <(echo "$cached") <(talk "${long[@]}"))"
again=(); for _ in $(seq 20); do again+=('tide?'); done
options=(--length 5)
cached=$(talk "${again[@]}")
options+=(--no-cache)
result 'the same question again and again' "$(diff <(echo "$cached") <(talk "${again[@]}"))"
options=(--length 3)
result 'an answer that is cut short' "$([ "$(talk 'tide?' | wc -c)" -lt 12 ] || talk 'tide?')"
run generate "${talks[@]:1:5}" --tokenizer $t --chat <<<$'tide?\nmoon?\norbit?\nsea?\ntide?\nmoon?\n'
works 'answers as JSON' "{\"samples\": [{\"text\": \"${said[2]}\"" "${talks[@]}" --chat --prompt 'orbit?' \
    --json --samples 2
[[ $out == *'"prompt": "orbit?"'* && $out == *'"ended": true'* ]]
result 'with the question' "$([ $? -eq 0 ] || echo "$out")"
works 'a system that was never heard' '' "${talks[@]}" --chat --prompt 'sea?' --system 'Be brief.' --length 4
works 'another template' '' "${talks[@]}" --chat --prompt 'sea?' --chat-template alpaca --length 4
jinja=tests/data/chat_templates
works 'a template in Jinja, which is the same' "${said[2]}" "${talks[@]}" --chat --prompt 'orbit?' \
    --chat-template $jinja/marked.jinja
works 'the same in a conversation' '' "${talks[@]}" --chat --prompt 'orbit?' --chat-template $jinja/thoughts.jinja \
    --chat-set enable_thinking=false --length 4
printf '%s' '{"user": {"before": "Q: "}, "assistant": {"before": " A: ", "after": "."}}' >"$folder/mine.json"
works 'a template whose answers end with a text' '' "${talks[@]}" --chat --prompt 'sea?' --length 40 \
    --chat-template "$folder/mine.json"
result 'which is not in them' "$([[ $out != *.* ]] || echo "$out")"
printf 'tide?\nmoon?\norbit?\nsea?\ntide?\n' | "$perilune" "${talks[@]:0:${#talks[@]}-1}" --chat >"$folder/out" 2>"$folder/err"
result 'what is forgotten is told' \
    "$(grep -Eq 'context 96 positions: the oldest [0-9]+ questions? w' "$folder/err" || cat "$folder/err")"

printf '%s\n' '{"prompt": "orbit?"}' '{"messages": [{"role": "user", "content": "tide?"}, {"role": "assistant",
    "content": "It follows the moon."}, {"role": "user", "content": "moon?"}]}' | tr -d '\n' | sed 's/}{/}\n{/' >"$folder/asked.jsonl"
works 'questions of a file' '"text": "'"${said[2]}"'"' "${talks[@]}" --chat --prompts "$folder/asked.jsonl"
result 'and conversations' "$([[ $out == *'"text": "'"${said[1]}"'", "tokens": '*', "ended": true}' ]] || echo "$out")"
echo '{"messages": [{"role": "assistant", "content": "tide?"}]}' >"$folder/bad.jsonl"
fails 'nobody asks' 2 'bad.jsonl:1: messages: the last one is not the user' "${talks[@]}" --chat --prompts "$folder/bad.jsonl"
printf '{"prompt": "%s"}\n' "$(printf 'tide? %.0s' $(seq 60))" >"$folder/bad.jsonl"
fails 'a question longer than the context' 2 'the context has 96' "${talks[@]}" --chat --prompts "$folder/bad.jsonl"
fails 'the only question, longer than the context' 2 'tokens, with the system'"'"'s text and the answer'"'"'s beginning; the context has 96' \
    "${talks[@]}" --chat --system 'Be brief.' --prompt "$(printf 'orbit? %.0s' $(seq 60))"
run "${talks[@]:0:${#talks[@]}-1}" --prompt "$(printf 'orbit? %.0s' $(seq 60))" --length 2
[[ $status -eq 0 && $err == *'tokens, more than the context'"'"'s 96: only the last ones are read'* ]]
result 'a longer prompt is cut, and that is said' "$([ $? -eq 0 ] || echo "status $status: $err")"
for how in chatml $jinja/marked.jinja; do
    run tokenizer encode $t "$chats" --eot auto --chat-template "$how" -o "$folder/${how##*/}.bin"
done
result 'a template in Jinja: tokens' "$(cmp "$folder/chatml.bin" "$folder/marked.jinja.bin" 2>&1)"
result 'and masks' "$(cmp "$folder/chatml.bin.mask.npy" "$folder/marked.jinja.bin.mask.npy" 2>&1)"
mkdir "$folder/model"
cp $t "$folder/model/tokenizer.json"
cp $jinja/marked.jinja "$folder/model/chat_template.jinja"
works 'a folder with a tokenizer and its template' "chats     as $folder/model/chat_template.jinja" \
    tokenizer show "$folder/model"
run tokenizer encode "$folder/model" "$chats" --eot auto -o "$folder/own.bin"
result 'is taken' "$(cmp "$folder/chatml.bin" "$folder/own.bin" 2>&1)"
echo '{"messages": [{"role": "user", "content": "a"}], "tools": [{"name": "f", "parameters": {}}]}' >"$folder/tools.jsonl"
works 'questions with tools' '"tokens": 2, "ended": false}' "${talks[@]}" --chat --prompts "$folder/tools.jsonl" \
    --chat-template $jinja/thoughts.jinja --length 2
echo '{% if %}' >"$folder/bad.jinja"
fails 'a template with a mistake' 2 "bad.jinja:1: a value was expected" "${talks[@]}" --chat \
    --chat-template "$folder/bad.jinja"
fails 'what a table cannot have' 2 '--chat-set: chatml is a table, not a template in Jinja' "${talks[@]}" --chat \
    --chat-template chatml --chat-set a=1
fails 'a setting of no chat' 2 '--chat-set: is for --chat only' "${talks[@]}" --chat-set a=1
echo '{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}' >"$folder/bad.jsonl"
fails 'a role that the template refuses' 2 'the template refuses it: user and assistant take turns' \
    "${talks[@]}" --chat --chat-template $jinja/turns.jinja --chat-set bos_token=x --chat-set eos_token=y \
    --prompts "$folder/bad.jsonl"
fails 'a conversation as JSON' 2 '--json: is for one question, --prompt TEXT' "${talks[@]}" --chat --json
fails 'a conversation twice' 2 '--samples: is for one question' "${talks[@]}" --chat --samples 2
fails 'a conversation in a file' 2 '--output: is for one question' "${talks[@]}" --chat -o "$folder/x"
fails 'a system of no chat' 2 '--system: is for --chat only' "${talks[@]}" --system x
fails 'a template of no chat' 2 '--chat-template: is for --chat only' "${talks[@]}" --chat-template chatml
fails 'a chat in bytes' 2 '--chat: needs --tokenizer FILE' generate models/gpt.lua --set-from "$w" --load "$w" --chat
fails 'no such template' 2 "'chatlm' is none of chatml" "${talks[@]}" --chat --chat-template chatlm
fails 'a template with other tokens' 2 "llama3 needs the special token '<|begin_of_text|>'" "${talks[@]}" \
    --chat --chat-template llama3
fails 'no one is the system' 2 'the chat template '"$folder/mine.json"' has no system' "${talks[@]}" --chat \
    --chat-template "$folder/mine.json" --system x --prompt 'sea?'

# evaluate --choices --chat: what is scored is what fine-tuning learns of the same answers.
evaluates=(evaluate models/gpt.lua --set-from "$w" --load "$w" --tokenizer $t --json)
rest='"choices": ["Salty.", " It follows the moon.", "A pale one.", "Around and around."]'
printf '%s\n' '{"prompt": "tide?", '"$rest"', "answer": 1}' '{"messages": [{"role": "user", "content": "tide?"},
    {"role": "assistant", "content": "It follows the moon."}, {"role": "user", "content": "moon?"}], '"$rest"', "answer": 2}' |
    tr -d '\n' | sed 's/}{"mes/}\n{"mes/' >"$folder/q.jsonl"
answers() { grep -o '"answers_log_probability": [^,]*' "$folder/out" | cut -d ' ' -f 2; }
works 'choices as answers' '"questions": 2, "right": 1, "right_stderr": 0, "right_per_byte": 1, ' "${evaluates[@]}" --choices "$folder/q.jsonl" --chat
both=$(answers)
result 'by the template that is named' "$([[ $out == *'"chat_template": "chatml"}'* ]] || echo "$out")"
run "${evaluates[@]}" --choices "$folder/q.jsonl" --chat --chat-template $jinja/marked.jinja
result 'by one in Jinja' "$(awk -v a="$both" -v b="$(answers)" 'BEGIN { if (!(a < 0 && (a - b) ^ 2 < 1e-8)) print a " and " b }')"
said() { echo '{"role": "'"$1"'", "content": "'"$2"'"'"${3:-}"'}'; }
printf '{"messages": [%s, %s]}\n' "$(said user 'tide?')" "$(said assistant "${said[0]}")" >"$folder/one.jsonl"
printf '{"messages": [%s, %s, %s, %s]}\n' "$(said user 'tide?')" "$(said assistant "${said[0]}" ', "weight": 0')" \
    "$(said user 'moon?')" "$(said assistant "${said[1]}")" >"$folder/two.jsonl"
sum=0
for told in one two; do
    run "${evaluates[@]}" --set masked=true --data "$folder/$told.jsonl" --pack
    sum=$(awk -v s="$sum" -v l="$(grep -o '"loss": [^,]*' "$folder/out" | head -n 1 | cut -d ' ' -f 2)" \
        -v n="$(grep -o '"labels": [^,]*' "$folder/out" | head -n 1 | cut -d ' ' -f 2)" 'BEGIN { printf "%.9g", s - l * n / 2 }')
done
result 'as the loss of these answers says' "$(awk -v a="$both" -v b="$sum" 'BEGIN { if (!(a < 0 && (a / b - 1) ^ 2 < 1e-8)) print a " and " b }')"
tail -n 1 "$folder/q.jsonl" >"$folder/bare.jsonl"
echo '{"messages": [{"role": "assistant", "content": "a"}], "choices": ["b", "c"], "answer": 0}' >"$folder/bad.jsonl"
works 'in words' 'questions, answered in a chat as chatml' "${evaluates[@]:0:8}" --choices "$folder/q.jsonl" --chat \
    --system 'Be brief.'
fails 'messages that are no chat' 2 "bare.jsonl:1: no object with a string 'prompt' (or 'ctx'), as messages need --chat," \
    "${evaluates[@]}" --choices "$folder/bare.jsonl"
fails 'choices behind an answer' 2 "bad.jsonl:1: messages: the last one is not the user's" "${evaluates[@]}" --chat \
    --choices "$folder/bad.jsonl"
fails 'a chat without choices' 2 'evaluate: --chat: is for --choices' "${evaluates[@]}" --data "$chats" --chat
fails 'a system of none' 2 'evaluate: --system: is for --chat only' "${evaluates[@]}" --choices "$folder/q.jsonl" --system x
fails 'a template of none' 2 'evaluate: --chat-template: is for --data, and for --choices with --chat' "${evaluates[@]}" \
    --choices "$folder/q.jsonl" --chat-template chatml
fails 'a beginning of its own' 2 'evaluate: --bos: a chat begins as its template says' "${evaluates[@]}" --chat \
    --choices "$folder/q.jsonl" --bos '<|endoftext|>'
fails 'answers in bytes' 2 'evaluate: --chat: needs --tokenizer FILE' "${evaluates[@]:0:6}" --choices "$folder/q.jsonl" --chat

[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# perilune tokenizer, and training and generating with one. Catches: a vocabulary that is learned
# otherwise, documents that are divided or ended in another place, text that does not come back, an
# error that ends with status 0 or leaves a file.
set -u
suite=tokenizer
. tests/cli/cases.sh
data=tests/data/tokenizers
t=$folder/t.json

same() { # NAME FILE FILE
    local why
    cmp "$2" "$3" >"$folder/cmp" 2>&1 || why=$(cat "$folder/cmp")
    result "$1" "${why:-}"
}

# ids NAME EXPECTED ARGUMENT...: the tokens of a token file of 16 bits without its header.
ids() {
    local name=$1 expected=$2 got
    shift 2
    run tokenizer encode "$@" -q -o "$folder/ids.bin"
    got=$(tail -c +1025 "$folder/ids.bin" | od -An -v -tu2 | tr -s ' \n' ' ' | sed 's/^ //; s/ $//')
    [ "$status" -eq 0 ] && [ "$got" = "$expected" ] && got=
    result "$name" "${got:+status $status, tokens '$got'; $err}"
}

# --- train ---
works 'train' 'vocab   500 tokens: 1 special, 256 bytes, 243 merged' tokenizer train \
    $data/train.txt --vocab 500 -o "$t"
same 'the vocabulary and merges of the reference' "$t" $data/trained.json
works 'train with one thread' '' tokenizer train $data/train.txt --vocab 500 --threads 1 -o "$t"
same 'however many threads' "$t" $data/trained.json
printf 'low low low lower newest newest\n' >"$folder/small.txt"
works 'train on too little' 'fewer than 400: no other pair is there 2 times' tokenizer train \
    "$folder/small.txt" --vocab 400 -o "$folder/small.json"
head -c 100000 /dev/zero | tr '\0' a >"$folder/long.txt"
works 'train on one long word' ' 16 merged' tokenizer train "$folder/long.txt" --vocab 400 -o "$folder/small.json"
works 'train with a pattern and special tokens' '' tokenizer train $data/train.txt --vocab 300 \
    --pattern llama3 --special-token '<s>' --special-token '</s>' -o "$folder/l.json"
works 'show what was trained' 'special   2: <s> 0, </s> 1' tokenizer show "$folder/l.json"
works 'by its pattern' 'pattern   cl100k, llama3' tokenizer show "$folder/l.json"
for i in 1 2 3; do
    printf '{"id": %d, "text": "low lower \\u0000 \\"%d\\"", "n": 1.5e3}\n\n' "$i" "$i"
done >"$folder/docs.jsonl"
works 'train on lines of JSON' '3 documents' tokenizer train "$folder/docs.jsonl" --vocab 300 -o "$t"
works 'train on a folder' '' tokenizer train "$data" --vocab 600 -o "$t"
u=$folder/u.json
works 'train a Unigram' '500 tokens: 2 special, 256 bytes, 68 characters, 174 longer pieces' tokenizer train \
    $data/train.txt --type unigram --vocab 500 -o "$u"
works 'with one thread' '' tokenizer train $data/train.txt --type unigram --vocab 500 --threads 1 -q -o "$folder/u1.json"
same 'the same Unigram' "$u" "$folder/u1.json"
works 'show it' 'kind      Unigram, from a tokenizer.json' tokenizer show "$u"
works 'encode by it' 'bytes of text each' tokenizer encode "$u" $data/train.txt --eot auto -o "$folder/u.bin"
works 'decode by it' '' tokenizer decode "$u" "$folder/u.bin" -o "$folder/u.txt"
same 'its text comes back' "$folder/u.txt" $data/train.txt
works 'a Unigram of too little' 'fewer than 400: no other pieces are there twice' tokenizer train \
    "$folder/small.txt" --type unigram --vocab 400 --max-piece 4 --special-token '<unk>' -o "$folder/small.json"

# --- encode, decode ---
t=$data/trained.json
works 'tokens of a text' '' tokenizer encode $t --text 'the plan'
works 'encode' 'bytes of text each' tokenizer encode $t $data/train.txt -o "$folder/a.bin"
works 'decode' '' tokenizer decode $t "$folder/a.bin" -o "$folder/a.txt"
same 'the text comes back' "$folder/a.txt" $data/train.txt
works 'encode for NumPy' '' tokenizer encode $t $data/train.txt -o "$folder/a.npy"
works 'decode it' '' tokenizer decode $t "$folder/a.npy" -o "$folder/a.txt"
same 'the text comes back from NumPy' "$folder/a.txt" $data/train.txt
tail -c +1025 "$folder/a.bin" >"$folder/plain.bin"
works 'decode without a header' '' tokenizer decode $t "$folder/plain.bin" --token-bytes 2 \
    -o "$folder/a.txt"
same 'the text comes back without a header' "$folder/a.txt" $data/train.txt
head -c 5000 /dev/urandom >"$folder/noise"
works 'encode noise' '' tokenizer encode $t "$folder/noise" -o "$folder/noise.bin"
"$perilune" tokenizer decode $t "$folder/noise.bin" >"$folder/noise.txt"
same 'noise comes back' "$folder/noise.txt" "$folder/noise"
printf 'a' >"$folder/1.txt"
printf 'b--a----b' >"$folder/2.txt"
a=65 b=66 dashes=495 # of "a", "b" and "--"; the special token is 0
ids 'a document a file' "$a 0 $b $dashes $a $dashes $dashes $b 0" $data/trained.json "$folder/1.txt" \
    "$folder/2.txt" --eot auto
ids 'a separator; empty documents are passed over' "0 $a 0 $b 0 $a 0 $b" $data/trained.json \
    "$folder/1.txt" "$folder/2.txt" --bos '<|endoftext|>' --separator --
printf '{"text": "a", "body": "b"}\n{"text": "", "body": ""}\n\n{"body": "a"}\n' >"$folder/x.jsonl"
ids 'a field of each line' "$b 0 $a 0" $data/trained.json "$folder/x.jsonl" --field body --eot 0
printf '\n [ {"text": "a", "body": "b"},\n{"tags": [{"]": "}"}, "\\\\"],\n "text": "\\"},{[", "body": ""} , {"body": "a"} ]\n' \
    >"$folder/x.json"
ids 'a field of each object of an array' "$b 0 $a 0" $data/trained.json "$folder/x.json" --field body --eot 0
for ((i = 0; i < 6000; i++)); do
    printf '{"text": "%d brackets ] } \\" and {\\\\", "n": [%d, {}]}\n' $i $i
done >"$folder/many.jsonl"
(echo '[' && sed '$!s/$/,/' "$folder/many.jsonl" && echo ']') >"$folder/many.json"
for end in jsonl json; do
    run tokenizer encode $t "$folder/many.$end" --eot auto -q -o "$folder/many.$end.bin"
done
same 'an array is what its objects are as lines' "$folder/many.json.bin" "$folder/many.jsonl.bin"
gzip -c "$folder/many.jsonl" >"$folder/packed.jsonl.gz"
works 'encode lines packed by gzip' '6000 documents' tokenizer encode $t "$folder/packed.jsonl.gz" \
    --eot auto -o "$folder/packed.bin"
same 'packed lines are what they are unpacked' "$folder/packed.bin" "$folder/many.jsonl.bin"
"$perilune" tokenizer encode $t - --eot auto -q -o "$folder/pipe.bin" <"$folder/packed.jsonl.gz"
same 'lines from standard input' "$folder/pipe.bin" "$folder/many.jsonl.bin"
"$perilune" tokenizer encode $t - -q -o "$folder/pipe.bin" <$data/train.txt
same 'a text from standard input' "$folder/pipe.bin" "$folder/a.bin"
"$perilune" tokenizer train - -q --vocab 300 -o "$folder/pipe.json" <"$folder/docs.jsonl"
"$perilune" tokenizer train "$folder/docs.jsonl" -q --vocab 300 -o "$folder/file.json"
same 'train on standard input' "$folder/pipe.json" "$folder/file.json"
mkdir "$folder/columns"
cp tests/data/parquet/{zstd,pages2}.parquet "$folder/columns"
"$perilune" tokenizer encode $t <(gzip -c "$folder/many.jsonl") --eot auto -q -o "$folder/pipe.bin"
same 'lines from a pipe' "$folder/pipe.bin" "$folder/many.jsonl.bin"
mkdir "$folder/waits"
mkfifo "$folder/waits/a"
fails 'a pipe in a folder' 2 'is a folder without files' tokenizer encode $t "$folder/waits" -o "$folder/n"
works 'a folder of Parquet files' '230 documents' tokenizer encode $t "$folder/columns" --eot auto \
    -o "$folder/columns.bin"
works 'train on a Parquet file' '115 documents' tokenizer train tests/data/parquet/gzip.parquet \
    --vocab 300 -o "$folder/c.json"
printf 'a<|endoftext|>b' >"$folder/3.txt"
ids 'special tokens where they are asked for' "$a 0 $b" $data/trained.json "$folder/3.txt" --special
works 'decode leaves them out' 'ab' tokenizer decode $t --ids "$a 0 $b"
works 'decode --special' 'a<|endoftext|>b' tokenizer decode $t --ids "$a,0 $b" --special
works 'a tiktoken file' '104' tokenizer encode $data/small.tiktoken --text h --pattern gpt2
works 'a file of SentencePiece' 'low tide' tokenizer decode $data/sp_llama2.model --ids \
    "$("$perilune" tokenizer encode $data/sp_llama2.model --text 'low tide')"
works 'and what is in it' 'from a SentencePiece file' tokenizer show $data/sp_bytes.model
works 'show --json' '"special": true' tokenizer show $t --json

# --- mistakes ---
fails 'no such verb' 2 'did you mean train?' tokenizer tran
fails 'no text to train on' 2 'which TEXT?' tokenizer train --vocab 300 -o "$folder/n"
fails 'no size' 2 'needs --vocab N and -o FILE' tokenizer train $data/train.txt -o "$folder/n"
fails 'too small a size' 2 '1 special token need 257' tokenizer train $data/train.txt --vocab 256 \
    -o "$folder/n"
: >"$folder/empty.txt"
fails 'empty text' 2 'there is no text' tokenizer train "$folder/empty.txt" --vocab 300 -o "$folder/n"
fails 'special token twice' 2 'given twice' tokenizer train $data/train.txt --vocab 300 \
    --special-token x --special-token x -o "$folder/n"
fails 'special token of one byte' 2 "'a' is a token of the text, too" tokenizer train \
    $data/train.txt --vocab 300 --special-token a -o "$folder/n"
fails 'no such type' 2 "--type: 'wordpiece' is neither bpe nor unigram" tokenizer train $data/train.txt \
    --vocab 300 --type wordpiece -o "$folder/n"
fails 'too small for the characters' 2 'the 68 characters that --coverage asks for need 326; give as many' \
    tokenizer train $data/train.txt --type unigram --vocab 325 -o "$folder/n"
fails 'special token that is a character' 2 "'a' is a token of the text, too" tokenizer train \
    $data/train.txt --type unigram --vocab 400 --special-token a -o "$folder/n"
fails 'special token that is a byte' 2 "'<0x0A>' is how a byte is spelled" tokenizer train \
    $data/train.txt --type unigram --vocab 400 --special-token '<0x0A>' -o "$folder/n"
fails 'option of Unigrams' 2 '--coverage: is for --type unigram only' tokenizer train $data/train.txt \
    --vocab 300 --coverage 0.9 -o "$folder/n"
fails 'option of BPE' 2 '--min-count: is for --type bpe, which merges' tokenizer train $data/train.txt \
    --vocab 300 --type unigram --min-count 3 -o "$folder/n"
fails 'bad pattern' 2 '--pattern: pattern: missing closing parenthesis' tokenizer train \
    $data/train.txt --vocab 300 --pattern '(' -o "$folder/n"
fails 'option of another verb' 2 'tokenizer show: has no use for --vocab' tokenizer show $t --vocab 300
fails 'no output' 2 'which file to write?' tokenizer encode $t $data/train.txt
fails 'text and files' 2 'either TEXT... or --text' tokenizer encode $t $data/train.txt --text x \
    -o "$folder/n"
fails 'tokens instead of text' 2 'a.bin: is a file of tokens, not of text' tokenizer encode $t \
    "$folder/a.bin" -o "$folder/n"
printf '\3757zXZ\0 and so on' >"$folder/train.txt.xz"
fails 'text packed by xz' 2 'train.txt.xz: is compressed by xz: unpack it' tokenizer encode $t \
    "$folder/train.txt.xz" -o "$folder/n"
head -c 3000 "$folder/packed.jsonl.gz" >"$folder/short.jsonl.gz"
fails 'packed text that was cut short' 2 'short.jsonl.gz: ends too early: a part of it is missing' \
    tokenizer encode $t "$folder/short.jsonl.gz" -o "$folder/n"
fails 'no such column' 2 "no texts or messages in a column 'body'; its columns are id, text, url" \
    tokenizer encode $t tests/data/parquet/zstd.parquet --field body -o "$folder/n"
gzip -c tests/data/parquet/zstd.parquet >"$folder/twice.parquet.gz"
fails 'a packed Parquet file' 2 'which is read as it is: neither packed once more' tokenizer encode \
    $t "$folder/twice.parquet.gz" -o "$folder/n"
fails 'missing text' 2 "$folder/none" tokenizer encode $t "$folder/none" -o "$folder/n"
fails 'missing tokenizer' 2 "$folder/none" tokenizer show "$folder/none"
fails 'no tokenizer' 2 'train.txt: is no tokenizer: neither' tokenizer show $data/train.txt
fails 'no such special token' 2 "--eot: the tokenizer has no special token '</s>'" tokenizer encode \
    $t $data/train.txt --eot '</s>' -o "$folder/n"
fails 'a tiktoken file without a pattern' 2 'give --pattern' tokenizer show $data/small.tiktoken
fails 'a pattern too many' 2 '--pattern: ' tokenizer show $t --pattern gpt2
printf '{"text": "a"}\n{"text": 5}\n' >"$folder/y.jsonl"
fails 'no text in a line' 2 "y.jsonl:2: no object with a string 'text'" tokenizer encode $t \
    "$folder/y.jsonl" -o "$folder/n"
printf '{"text": "a"}\n\n{"text": "b\n' >"$folder/z.jsonl"
fails 'no JSON in a line' 2 'z.jsonl:3: JSON: ' tokenizer encode $t "$folder/z.jsonl" -o "$folder/n"
# no_array NAME TEXT JSON
no_array() {
    printf '%b' "$3" >"$folder/z.json"
    fails "$1" 2 "$2" tokenizer encode $t "$folder/z.json" -o "$folder/n"
}
no_array 'no JSON in an object' "z.json:3: JSON: '}' expected" '[{"text": "a"},\n{"text":\n "b" 5}]'
no_array 'no text in an object' "z.json:2: no object with 'text'" '[{"text": "a"},\n{"instruction": "a"}]'
mkdir -p "$folder/code" # where what is no record is text
printf '[{"name": {"text": 1}, "n": "text"}]' >"$folder/code/a.json"
works 'of a folder, an array of other things is text' '1 documents, 36 bytes' tokenizer encode $t "$folder/code" -o "$folder/code.bin"
works 'all of it' '"text": 1' tokenizer decode $t "$folder/code.bin"
no_array 'an object that does not end' 'z.json:2: JSON: an object does not end' '[{"text": "a"},\n{"text": "]}'
no_array 'an array that does not end' 'z.json:2: JSON: the array does not end' '[{"text": "a"}\n'
no_array 'an array of this and that' 'z.json:1: JSON: not all in the array are objects' '[{"text": "a"}, 5]'
no_array 'no commas' "z.json:2: JSON: neither ',' nor ']' follows" '[{"text": "a"}\n{"text": "a"}]'
no_array 'more than an array' 'z.json:2: JSON: something follows the array' '[{"text": "a"}]\n[]'
fails 'a token beyond the tokenizer' 2 'token 9999 at position 1 is none' tokenizer decode $t \
    --ids '66 9999'
npy="{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }" # B, then what is below 0
printf '\x93NUMPY\x01\x00%b%s\x42\0\0\0\xff\xff\xff\xff' "\\x$(printf %x ${#npy})\\0" "$npy" >"$folder/i4.npy"
fails 'a token below 0' 2 'i4.npy: token -1 at position 1 is none' tokenizer decode $t "$folder/i4.npy"
fails 'no number' 2 "'x' is not a token" tokenizer decode $t --ids '66 x'
fails 'tokens in several arguments' 2 '--ids takes one argument: 5,6 or "5 6"' tokenizer decode $t \
    --ids 66 67 68
fails 'text to decode' 2 'has no header' tokenizer decode $t $data/train.txt
fails 'writing over the text' 2 'would replace what tokenizer reads' tokenizer encode $t \
    "$folder/1.txt" -o "$folder/1.txt"
mkdir "$folder/texts" && cp "$folder/1.txt" "$folder/texts"
fails 'writing over a text of a folder' 2 'is in the folder that tokenizer reads' tokenizer encode \
    $t "$folder/texts" -o "$folder/texts/a.bin"
result 'no mistake leaves a file' "$(ls "$folder" | grep -x n)"

# --- no memory ---
head -c 16000000 /dev/zero | tr '\0' a >"$folder/word.txt"
plain=$perilune
limited() { (ulimit -v 180000 && exec "$plain" "$@"); }
perilune=limited
fails 'no memory for a word' 1 'perilune: out of memory (asked for' tokenizer encode \
    $data/gpt2.json "$folder/word.txt" --threads 1 -q -o "$folder/n"
perilune=$plain

# --- training and generating ---
small=(--set vocab=500 --set layers=1 --set model=32 --set heads=2 --set seq=32)
works 'train on text' 'bits per byte' train models/gpt.lua "${small[@]}" --data $data/train.txt \
    --tokenizer $t --steps 20 --lr 1e-2 --save "$folder/w.st" --log "$folder/run.jsonl"
result 'the log has them' "$(tail -n 1 "$folder/run.jsonl" |
    grep -q '"val_bits_per_byte":' || echo no)"
bits=$(tail -n 1 "$folder/run.jsonl" | grep -o '"val_bits_per_byte":.*')
works 'train on its tokens' 'bits per byte' train models/gpt.lua "${small[@]}" \
    --data "$folder/a.bin" --tokenizer $t --steps 20 --lr 1e-2 --save "$folder/w2.st" \
    --log "$folder/run2.jsonl"
same 'the same weights' "$folder/w.st" "$folder/w2.st"
result 'the same bits' "$(tail -n 1 "$folder/run2.jsonl" | grep -qF "$bits" || echo no)"
fails 'hidden behind a token that is not special' 2 'token 256, which the plan hides others behind, is not a' \
    train models/bert.lua "${small[@]}" --data $data/train.txt --tokenizer $t --steps 1
works 'hidden behind a special token' 'hidden  15 % of the tokens are to be said: 8 of 10 behind token 0' \
    train models/bert.lua "${small[@]}" --set mask_token=0 --data $data/train.txt --tokenizer $t --steps 2

# --- BERT's and T5's own kinds of tokenizer, with their models ---
pieces=tests/data/tokenizers
works 'show says the kind' 'kind      WordPiece' tokenizer show $pieces/uncased.json
result 'and what normalizes' "$(grep -q 'normalized: BertNormalizer' <<<"$out" || echo "$out")"
fails 'hidden behind another than [MASK]' 2 'its [MASK] is 4: plan with --set mask_token=4' \
    train models/bert.lua "${small[@]}" --set mask_token=0 --data $data/train.txt \
    --tokenizer $pieces/uncased.json --steps 1
works 'hidden behind [MASK]' '8 of 10 behind token 4' train models/bert.lua "${small[@]}" \
    --set mask_token=4 --set types=2 --set transform=true --data $data/train.txt \
    --tokenizer $pieces/uncased.json --bos '[CLS]' --eot auto --steps 2 --save "$folder/bert.st"
works 'losses of it' '' evaluate models/bert.lua "${small[@]}" --set mask_token=4 --set types=2 \
    --set transform=true --load "$folder/bert.st" --data $data/train.txt --tokenizer $pieces/uncased.json
t5=("${small[@]}" --set decoder_layers=1 --set head=16 --set ffn=32 --set source=48)
fails 'spans that are not <extra_id_0>' 2 'its <extra_id_0> is 14: plan with --set sentinel=14' \
    train models/t5.lua "${t5[@]}" --data $data/train.txt --tokenizer $pieces/t5.json --steps 1
works 'spans of its own' 'spans' train models/t5.lua "${t5[@]}" --set sentinel=14 \
    --data $data/train.txt --tokenizer $pieces/t5.json --eot auto --steps 2 --save "$folder/t5.st"
works 'text with a sentinel' '' generate models/t5.lua "${t5[@]}" --set sentinel=14 --load "$folder/t5.st" \
    --tokenizer $pieces/t5.json --special --prompt 'The plan <extra_id_0> memory' --length 5
works 'a sentinel is a token' '14' tokenizer encode $pieces/t5.json --special --text '<extra_id_0>'
works 'and text otherwise' '' tokenizer encode $pieces/t5.json --text '<extra_id_0>'
result 'of several tokens' "$([ "$(wc -w <<<"$out")" -gt 3 ] || echo "$out")"

works 'generate' 'The plan é' generate models/gpt.lua "${small[@]}" --load "$folder/w.st" \
    --tokenizer $t --prompt 'The plan é' --length 20
first=$out
works 'generate to a file' '' generate models/gpt.lua "${small[@]}" --load "$folder/w.st" \
    --tokenizer $t --prompt 'The plan é' --length 20 -o "$folder/g.txt"
result 'the same text' "$([ "$first" = "$(tr -d '\0' <"$folder/g.txt")" ] || echo no)"
works 'generate with no prompt' '' generate models/gpt.lua "${small[@]}" --load "$folder/w.st" \
    --tokenizer $t --length 5
fails 'too small a model' 2 \
    "has 500 tokens, the model's vocabulary only 256: plan it with --set vocab=512" \
    train models/gpt.lua --data $data/train.txt --tokenizer $t --steps 1
fails 'the same when generating' 2 'plan it with --set vocab=512' generate models/gpt.lua \
    --load "$folder/w.st" --tokenizer $t
fails 'ends of documents without a tokenizer' 2 '--eot: is for --tokenizer FILE only' train \
    models/gpt.lua --data $data/train.txt --eot auto --steps 1
# Documents of packed sequences: data, tokenizer and plan agree on what ends them.
packed=(models/gpt.lua "${small[@]}" --data $data/train.txt --tokenizer $t --steps 1 --separator $'\n')
works 'documents of lines' 'within  documents, which end with token' train "${packed[@]}" \
    --set documents=0 --eot auto
fails 'documents end with another token' 2 "and by --eot with 0" train "${packed[@]}" \
    --set documents=7 --eot auto
fails 'no document ends' 2 'looked at; --set documents=-1 has attention see whole sequences' train "${packed[@]}" --set documents=0
sed -e '/^  documents = -1/d' -e 's/m\.documents/0/' models/llama.lua >"$folder/fixed.lua"
packed[0]=$folder/fixed.lua
run train "${packed[@]}"
result 'no document ends, in a model without that setting' "$([ $status -eq 2 ] &&
    [[ $err == *'no document ends: the token 0'*' looked at'* && $err != *'--set documents'* ]] || echo "$status $err")"
fails 'documents end beyond the vocabulary' 2 'it must be a whole number from 0 to 511, or -1' plan \
    models/llama.lua --set vocab=512 --set documents=512
fails 'more choices than tokens' 2 '--top-k: 501 is more than the 500 tokens' generate \
    models/gpt.lua "${small[@]}" --load "$folder/w.st" --tokenizer $t --top-k 501
fails 'more choices than bytes' 2 '--top-k: 257 is more than the 256 bytes' generate \
    models/gpt.lua "${small[@]}" --load "$folder/w.st" --top-k 257

# --- filling in ---
f=$folder/fim.json said='Über the low tide, 7 moons'
run tokenizer train $data/train.txt --vocab 300 -q -o "$f" --special-token '<|endoftext|>' \
    --special-token '<fim_prefix>' --special-token '<fim_middle>' --special-token '<fim_suffix>'
wrong= n_first=0 n_others=0
for seed in $(seq 24); do
    run tokenizer encode "$f" --text "$said" --fim 1 --seed "$seed"
    run tokenizer decode "$f" --ids "$out" --special
    [[ $out =~ ^'<fim_prefix>'(.*)'<fim_suffix>'(.*)'<fim_middle>'(.*)$ ]] || wrong=$out
    [ "${BASH_REMATCH[1]}${BASH_REMATCH[3]}${BASH_REMATCH[2]}" = "$said" ] || wrong=$out
    if [ -z "${BASH_REMATCH[1]}" ]; then n_first=$((n_first + 1)); else n_others=$((n_others + 1)); fi
done
[ "$n_first" -ge 6 ] && [ "$n_others" -ge 6 ] || wrong="$n_first with the suffix first, $n_others others"
result 'a document whose middle stands last, either way' "$wrong"
works 'half of all lines' 'documents with their middle last, ' tokenizer encode "$f" $data/train.txt --fim 0.5 \
    --separator $'\n' --eot auto -o "$folder/f2.bin"
result 'about half' "$(grep -o 'last, [0-9.]*' <<<"$out" | awk '{ if ($2 < 35 || $2 > 65) print }')"
run tokenizer encode "$f" $data/train.txt --fim 0.5 --separator $'\n' --eot auto -q --threads 1 -o "$folder/f1.bin"
same 'whatever the number of threads' "$folder/f1.bin" "$folder/f2.bin"
run tokenizer encode "$f" $data/train.txt --fim 0 -q -o "$folder/f1.bin"
run tokenizer encode "$f" $data/train.txt -q -o "$folder/f2.bin"
same 'none of them' "$folder/f1.bin" "$folder/f2.bin"
fails 'no tokens for it' 2 'has no tokens of known names for filling in' tokenizer encode $t --text x --fim 1
fails 'two tokens' 2 "'2,3' is not three tokens" tokenizer encode "$f" --text x --fim 1 --fim-tokens 2,3
fails 'one twice' 2 "'2,3,2' is not three tokens" tokenizer encode "$f" --text x --fim 1 --fim-tokens 2,3,2
fails 'shares of nothing' 2 '--fim-spm: is for --fim RATE only' tokenizer encode "$f" --text x --fim-spm 1
fails 'shares of nothing in training' 2 '--fim-spm: is for --fim RATE only' train models/gpt.lua "${small[@]}" \
    --data $data/train.txt --tokenizer $t --fim-spm 1 --steps 1
fills=(models/gpt.lua --set layers=1 --set model=16 --set heads=2 --set kv_heads=2 --set seq=32 --set vocab=320)
works 'learn filling in' 'documents have their middle last' train "${fills[@]}" --micro-batch 2 --global-batch 4 \
    --data $data/train.txt --separator $'\n' --eot auto --tokenizer "$f" --fim 1 --steps 2 --save "$folder/f.st"
fills+=(--load "$folder/f.st" --tokenizer "$f" --temperature 0 --length 6)
works 'fill in' ' tide' generate "${fills[@]}" --prompt 'The low' --suffix ' tide'
filled=$out
result 'between both' "$([[ $filled == 'The low'*' tide' ]] || echo "$filled")"
works 'without caches' '' generate "${fills[@]}" --prompt 'The low' --suffix ' tide' --no-cache
result 'the same' "$([ "$out" = "$filled" ] || echo "$out; $filled")"
printf '{"prompt": "The low", "suffix": " tide"}\n' >"$folder/holes.jsonl"
works 'of a file' '"suffix": " tide", "text": ' generate "${fills[@]}" --prompts "$folder/holes.jsonl"
works 'as JSON' '"prompt": "The low", "suffix": " tide"' generate "${fills[@]}" --prompt 'The low' --suffix ' tide' --json
works 'behind a token that begins texts' ' tide' generate "${fills[@]}" --prompt 'The low' --suffix ' tide' \
    --bos '<|endoftext|>'
fails 'two files of suffixes' 2 "lines of --prompts have their own" generate "${fills[@]}" \
    --prompts "$folder/holes.jsonl" --suffix x
fails 'no room for a middle' 2 'the context has 32' generate "${fills[@]}" --prompt "$said" --suffix "$said"
fails 'bytes have no such tokens' 2 '--suffix: is for --tokenizer FILE only' generate models/gpt.lua "${small[@]}" \
    --load "$folder/w.st" --prompt a --suffix b
fails 'answers have no middle' 2 '--fim: the plan learns from answers' train models/gpt.lua \
    --set vocab=320 --set preference=dpo --micro-batch 2 --global-batch 2 --data "$folder/docs.jsonl" --tokenizer "$f" --fim 1 --steps 1
[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# perilune validate as it is used: exit codes, exact errors, files. Catches: a bad table that ends
# in anything but one line with its place, options ignored in silence.
set -u
suite=validate
. tests/cli/cases.sh
data=tests/data/published_runs.csv

run() { # runs perilune validate; sets status, out, err
    out=$("$perilune" validate "$@" 2>"$folder/err" </dev/null)
    status=$?
    err=$(cat "$folder/err")
}

# fails NAME STATUS TEXT ARGUMENT...: the status, and TEXT, exactly, on stderr.
fails() {
    local name=$1 expected=$2 text=$3 why=
    shift 3
    run "$@"
    [ "$status" -eq "$expected" ] || why="status $status, not $expected; $err"
    [ "$err" = "$text" ] || why="stderr is '$err', not '$text'"
    result "$name" "$why"
}

# changed NAME SED: a copy of the data, changed; its path is printed.
changed() {
    sed -E "$2" "$data" >"$folder/$1.csv"
    echo "$folder/$1.csv"
}

fails 'no table' 2 'perilune: validate: which RUNS.csv? see perilune help validate'
fails 'no such table' 2 "perilune: $folder/none.csv: cannot open: No such file or directory" \
    "$folder/none.csv"
: >"$folder/empty.csv"
fails 'an empty table' 2 "perilune: $folder/empty.csv: is empty" "$folder/empty.csv"
head -n 1 "$data" >"$folder/head.csv"
fails 'a header alone' 2 "perilune: $folder/head.csv: has a header, but no rows" "$folder/head.csv"
file=$(changed column '1s/,layers,/,depth,/')
fails 'a missing column' 2 \
    "$file:1: no column 'layers': see perilune help validate for those that are needed" "$file"
fails 'no table of runs, though it has commas' 2 \
    "README.md:1: has none of the columns id, layers, hidden, heads, seq, num_gpus, global_batch: is it a CSV with a header line?" \
    README.md
printf 'the,quick,the\n1\n' >"$folder/text.csv"
fails 'words twice in the first line of a text' 2 \
    "$folder/text.csv:1: has none of the columns id, layers, hidden, heads, seq, num_gpus, global_batch: is it a CSV with a header line?" \
    "$folder/text.csv"
file=$(changed number '5s/,96,12288,/,96,many,/')
fails 'a word for a number' 2 \
    "$file:5: column hidden is 'many': must be a whole number from 1 to 1048576" "$file"
file=$(changed absurd '5s/,96,12288,/,1e30,12288,/')
fails 'an absurd number' 2 \
    "$file:5: column layers is '1e30': must be a whole number from 1 to 4096" "$file"
file=$(changed mesh '12s/,64,8,2,/,72,8,2,/')
fails 'a mesh that is not the ranks' 2 "$file:12: t 2 x p 1 x d 32 is 64, but num_gpus is 72" "$file"
file=$(changed measured '12s/,138,44,/,,,/')
fails 'nothing measured' 2 \
    "$file:12: nothing is measured: fill in measured_iter_s, measured_tokens_s_gpu, measured_tflops_per_gpu or peak_pct" \
    "$file"
file=$(changed twice '1s/measured_iter_s,/measured_iter_s,measured_tokens_s_gpu,/; 2s/,1.42,/,1.42,900,/; 3,$d')
fails 'two measures that differ' 2 \
    "$file:2: measured_tokens_s_gpu is 900, but measured_iter_s 1.42 is 721.127: leave the wrong one empty" "$file"
file=$(changed family '12s/,sc21,/,mine,/')
fails 'TFLOP/s of an unknown kind' 2 \
    "$file:12: which FLOPs measured_tflops_per_gpu counts is not known: fill in measured_iter_s, or a column flops with model, causal or hardware" \
    "$file"
fails 'a family without rows' 2 \
    "perilune: $data: no rows of family 'sc22'; did you mean sc21?" "$data" --family sc22
file=$(changed gpu 's/,(sc21|korthikanti),/,mine,/; s/A100-SXM-80GB/MI300X/; 11,$d')
fails 'an unknown GPU' 2 \
    "$file:2: no cluster is known for gpu 'MI300X': --cluster NAME|FILE, or a column cluster" "$file"
fails 'a page that cannot be written' 2 \
    "perilune: $folder/none/x.html: cannot create a file beside it: No such file or directory" \
    "$data" --html "$folder/none/x.html"

run "$data" --family sc21
why=
[ "$status" -eq 0 ] || why="status $status: $err"
[ "$(grep -c '^sc21_t1_' <<<"$out")" -eq 10 ] || why="no ten rows: $out"
grep -q '^sc21 .* 10 ' <<<"$out" || why='no line for the family'
! grep -q korthikanti <<<"$out" || why='other families, too'
[ -z "$(grep -E '^.{101,}' <<<"$out")" ] || why='lines beyond 100 columns'
result 'one family' "$why"

run "$data" --family korthikanti_single --json --html "$folder/x.html" --svg "$folder/x.svg"
why=
[ "$status" -eq 0 ] || why="status $status: $err"
[ "$(grep -c '"predicted_seconds"' <<<"$out")" -eq 2 ] || why="no two rows: $out"
grep -q '</html>' "$folder/x.html" || why='no page'
grep -q '</svg>' "$folder/x.svg" || why='no drawing'
result 'JSON, page and drawing' "$why"

# --cluster and --software are for rows that name none: what they name must be there, and how many
# rows use them is said.
fails 'an unknown cluster that no row uses' 2 \
    "perilune: there is no cluster 'seleen'; did you mean selene?" "$data" --cluster seleen
fails 'an unknown software that no row uses' 2 \
    "perilune: there is no software 'nope'; there are: $("$perilune" cluster list |
        sed '1,/^Software/d' | paste -sd, | sed 's/,/, /g')" "$data" --software nope
run "$data" --family sc21 --cluster h100-dgx --software megatron-2022 --html "$folder/x.html"
for option in cluster software; do
    line="--$option is used by 0 of 10 rows; the others' own columns, family or gpu come first."
    result "--$option that no row uses" \
        "$(grep -qxF -e "$line" <<<"$out" && grep -qF -e "$line" "$folder/x.html" || echo "$out$err")"
done

# Own machines and rows without a family.
file=$(changed own 's/,(sc21|korthikanti),/,mine,/; s/A100-SXM-80GB/MI300X/; 11,$d')
run "$file" --cluster selene
why=
[ "$status" -eq 0 ] || why="status $status: $err"
grep -q '^mine  *9 ' <<<"$out" || why="no family of nine rows: $out"
grep -qx -e '--cluster is used by 9 of 9 rows.' <<<"$out" || why="no word of who used it: $out"
result 'own rows on a given cluster' "$why"
run "$file" --cluster selene --software megatron-2021 --json
result 'who uses what, as JSON' "$(tr -d ' \n' <<<"$out" |
    grep -qF '"options":{"cluster":{"name":"selene","rows":9},"software":{"name":"megatron-2021","rows":9}}' ||
    echo "${out:0:300}$err")"

# What cannot be priced is said in its row; nothing at all that can is a failure.
file=$(changed batch '2s/,1,1,4,4,full/,1,1,3,4,full/')
run "$file" --family korthikanti
why=
[ "$status" -eq 0 ] || why="status $status: $err"
grep -q 'kor22_22b_full .*no prediction: global batch 4 is no multiple of 3 x 1 ranks' <<<"$out" ||
    why="no word of it: $out"
result 'a row that cannot be predicted' "$why"
file=$(changed all '2s/,1,1,4,4,full/,1,1,3,4,full/; 3,$d')
fails 'no row that can be predicted' 1 \
    "$file:2: nothing could be predicted: global batch 4 is no multiple of 3 x 1 ranks" "$file"
file=$(changed experts '2s/,1,1,4,4,full/,1,8,4,4,full/')
fails 'expert parallelism of a model without experts' 2 \
    "$file:2: column ep is 8, but column experts is empty" "$file"
run tests/data/published_newer.csv --family deepseek
why=
[ "$status" -eq 0 ] || why="status $status: $err"
grep -q '^deepseek-v3  *2048  *1  *16  *2  *2  *1  *120 none z1 e64 ' <<<"$out" ||
    why="not in its layout: $out"
result 'latent attention and expert parallelism' "$why"
[ "$n_failed" -eq 0 ]

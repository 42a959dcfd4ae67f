# What the scripts of this folder share: `suite=NAME; . tests/cli/cases.sh`.
# Sets perilune and folder (removed at the end); result, run, fails and works; n_failed.
perilune=${PERILUNE:-build/perilune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
n_failed=0

result() { # NAME WHY: WHY empty is good
    if [ -z "$2" ]; then
        echo "ok $suite: $1"
    else
        echo "FAIL $suite: $1: $2"
        n_failed=$((n_failed + 1))
    fi
}

run() { # runs perilune; sets status, out, err
    "$perilune" "$@" >"$folder/out" 2>"$folder/said" </dev/null
    status=$?
    grep -v '^[0-9]*/[0-9]* .* s left  ' "$folder/said" >"$folder/err" # but for what takes long
    out=$(tr -d '\0' <"$folder/out") err=$(cat "$folder/err")
}

# fails NAME STATUS TEXT ARGUMENT...: the status, and one line on stderr that has TEXT.
fails() {
    local name=$1 expected=$2 text=$3 why=
    shift 3
    run "$@"
    [ "$status" -eq "$expected" ] || why="status $status, not $expected; $err"
    [[ $err == *"$text"* ]] || why="stderr is '$err', not '$text'"
    [ "$(grep -vc '^  note:' "$folder/err")" -eq 1 ] || why="stderr is not one line: $err"
    result "$name" "$why"
}

# works NAME TEXT ARGUMENT...: status 0 and TEXT on stdout.
works() {
    local name=$1 text=$2 why=
    shift 2
    run "$@"
    [ "$status" -eq 0 ] || why="status $status; $err"
    [[ $out == *"$text"* ]] || why="stdout is '${out:0:300}', not '$text'"
    result "$name" "$why"
}

# What the scripts of this folder share: `suite=NAME; . tests/cli/cases.sh`.
# Sets perilune and folder (removed at the end); result and run; n_failed.
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
    "$perilune" "$@" >"$folder/out" 2>"$folder/err" </dev/null
    status=$?
    out=$(tr -d '\0' <"$folder/out") err=$(cat "$folder/err")
}

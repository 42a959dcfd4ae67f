#!/bin/sh
# The same tests of the command line with the build that looks for memory mistakes and leaks.
export PERILUNE=build-asan/perilune
if [ ! -x "$PERILUNE" ]; then
    echo "skip cli, sanitized: make SANITIZE=address,undefined builds it"
    exit 0
fi
tests/cli/test_cli.sh | sed 's/ cli: / cli, sanitized: /'
tests/cli/test_checkpoints.sh | sed 's/ checkpoints: / checkpoints, sanitized: /'
tests/cli/test_hf.sh | sed 's/ hf: / hf, sanitized: /'

# What the scripts of this folder share: `suite=NAME; . tests/browser/pages.sh`.
# Without Chromium the suite is skipped. Sets perilune and folder (removed at the end), the functions
# below and n_failed. A script sets probe: what the browser runs in a copy of each page, to write down
# in a paragraph #probe what only it knows.
export LC_ALL=C.UTF-8
perilune=${PERILUNE:-build/perilune}
# Ubuntu's chromium-browser only says which snap to install.
browser=
for name in chromium chromium-browser google-chrome; do
    [ -z "$browser" ] && "$name" --version >/dev/null 2>&1 && browser=$(command -v "$name")
done
if [ -z "$browser" ]; then
    echo "skip $suite: chromium is not installed"
    exit 0
fi
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
n_failed=0
case='' failed='' probed=''

# write_pages COMMAND...: writes pages; without them there is nothing to test.
write_pages() {
    "$@" >/dev/null 2>"$folder/log" && return
    echo "FAIL $suite: $1: $(head -n 1 "$folder/log")"
    exit 1
}

begin() { # CASE
    case=$1 failed=
}

fail() { # WHY
    echo "FAIL $case: $1"
    n_failed=$((n_failed + 1))
    failed=yes
}

end() {
    [ -n "$failed" ] || echo "ok $case"
}

# open PAGE WIDTH [HASH]: the browser's document goes to $folder/dom, what the probe found to probed.
# Fails the case if the browser does, if the page logs something, or points outside.
open() {
    probed=
    cp "$1" "$folder/probed.html"
    printf '%s\n' "$probe" >>"$folder/probed.html"
    if ! timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$folder/profile" --window-size="$2,900" --enable-logging=stderr \
        --virtual-time-budget=3000 --dump-dom "file://$folder/probed.html${3:+#$3}" \
        >"$folder/dom" 2>"$folder/console"; then
        fail "the browser ended with an error: $(tail -n 1 "$folder/console")"
        return 1
    fi
    if grep -Eq '(src|href|action|data)="|url\(|://|@import' "$1"; then
        fail "something points outside: $(grep -Eo '.{0,20}(://|url\()' "$1" | head -n 1)"
    fi
    if grep -E CONSOLE "$folder/console" >"$folder/messages"; then
        fail "console: $(head -n 1 "$folder/messages")"
    fi
    probed=$(grep -o '<p id="probe">[^<]*' "$folder/dom" | sed 's/.*>//')
}

# found EXPECTED: the probe's text.
found() {
    [ "$probed" = "$1" ] || fail "found '${probed:-no probe}', not '$1'"
}

# sections NAME...: each is in the document.
sections() {
    local section
    for section in "$@"; do
        grep -q "<section id=\"$section\">" "$folder/dom" || fail "no section $section"
    done
}

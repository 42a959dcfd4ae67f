#!/usr/bin/env bash
# The HTML page of a plan in headless Chromium: it draws, logs nothing, fetches nothing and fits a
# 1280 px screen. The pages are those of tests/unit/test_show.c; a probe added to a copy of each
# writes down what only the browser knows.
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.." || exit 2
writer=${SHOW_PAGES:-build/tests/test_show}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)

if [ -z "$browser" ]; then
    echo "skip html pages: chromium is not installed"
    exit 0
fi
if [ ! -x "$writer" ]; then
    echo "FAIL html pages: $writer is not built"
    exit 1
fi
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
if ! "$writer" --write "$folder" 2>"$folder/log"; then
    echo "FAIL html pages: $(head -n 1 "$folder/log")"
    exit 1
fi

# Runs the page's own zoom buttons, then reports.
probe='<script>(function () {
  var more = document.getElementById("zm"), page = document.documentElement
  var fits = page.scrollWidth
  for (var i = 0; i < 10; i++) more.click()
  var view = document.querySelector(".view"), left = view.getBoundingClientRect()
  var labels = document.querySelectorAll("svg text"), shown = 0
  for (i = 0; i < labels.length; i++) if (labels[i].getBBox().width > 0) shown++
  var tables = document.querySelectorAll("section"), wide = ""
  for (i = 0; i < tables.length; i++)
    if (tables[i].scrollWidth > tables[i].clientWidth) wide += " " + tables[i].id
  var note = document.createElement("p")
  note.id = "probe"
  note.textContent = "page=" + fits + " zoomed=" + page.scrollWidth + " view=" +
    (view.scrollWidth > 3 * left.width) + " labels=" + (shown > 0) + " wide=[" + wide + "]"
  document.body.appendChild(note)
})()</script>'

n_failed=0
fail() {
    echo "FAIL $1: $2"
    n_failed=$((n_failed + 1))
    failed=yes
}

# check_page NAME: the page of that name, one case.
check_page() {
    local name="html page $1 in a browser" page="$folder/$1.html" dom="$folder/$1.dom" probed
    failed=
    cp "$page" "$folder/probed.html"
    printf '%s\n' "$probe" >>"$folder/probed.html"
    if ! timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$folder/profile" --window-size=1280,900 --enable-logging=stderr \
        --virtual-time-budget=3000 --dump-dom "file://$folder/probed.html" \
        >"$dom" 2>"$folder/console"; then
        fail "$name" "the browser ended with an error: $(tail -n 1 "$folder/console")"
        return
    fi
    for section in mesh plan timeline stages memory traffic parameters programs; do
        grep -q "<section id=\"$section\">" "$dom" || fail "$name" "no section $section"
    done
    [ "$(grep -o '<svg' "$dom" | wc -l)" -ge 4 ] || fail "$name" "fewer than 4 drawings"
    [ "$(grep -o '<rect class="[FB][0-9]' "$dom" | wc -l)" -ge 8 ] || fail "$name" "no timeline"
    [ "$(grep -o '<path class="k-' "$dom" | wc -l)" -ge 3 ] || fail "$name" "no memory map"
    if grep -Eq '(src|href|action|data)="|url\(|://|@import' "$page"; then
        fail "$name" "something points outside: $(grep -Eo '.{20}(://|url\()' "$page" | head -n 1)"
    fi
    if grep -E 'CONSOLE' "$folder/console" >"$folder/messages"; then
        fail "$name" "console: $(head -n 1 "$folder/messages")"
    fi
    probed=$(grep -o '<p id="probe">[^<]*' "$dom" | sed 's/.*>//')
    if [ "$probed" != "page=1280 zoomed=1280 view=true labels=true wide=[]" ]; then
        fail "$name" "layout: ${probed:-the probe did not run}"
    fi
    [ -n "$failed" ] || echo "ok $name"
}

for page in one small chunks large; do check_page "$page"; done
[ "$n_failed" -eq 0 ]

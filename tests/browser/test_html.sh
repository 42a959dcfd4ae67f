#!/usr/bin/env bash
# The HTML pages of plans, of runs and of sweeps in headless Chromium: they draw, log nothing, fetch
# nothing and fit the screen. The pages of plans are those of tests/unit/test_show.c; a probe added to a copy of each
# writes down what only the browser knows.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite='html pages'
. tests/browser/pages.sh
write_pages "${SHOW_PAGES:-build/tests/test_show}" --write "$folder"

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

# check_page NAME: the page of that name, one case.
check_page() {
    begin "html page $1 in a browser"
    open "$folder/$1.html" 1280 || return
    sections mesh plan timeline stages memory traffic parameters programs
    [ "$(grep -o '<svg' "$folder/dom" | wc -l)" -ge 4 ] || fail 'fewer than 4 drawings'
    [ "$(grep -o '<rect class="[FB][0-9]' "$folder/dom" | wc -l)" -ge 8 ] || fail 'no timeline'
    [ "$(grep -o '<path class="k-' "$folder/dom" | wc -l)" -ge 3 ] || fail 'no memory map'
    found 'page=1280 zoomed=1280 view=true labels=true wide=[]'
    end
}

for page in one small chunks large; do check_page "$page"; done

# Logs of runs, one of them with a long name and a single step.
name=$folder/$(printf 'experiment-%.0s' {1..9}).jsonl
echo '{"step":1,"loss":5}' >"$name"
printf '{"step":%d,"loss":4}\n' 1 2 >"$folder/b.jsonl"
write_pages "$perilune" compare "$name" "$folder/b.jsonl" --html -o "$folder/runs.html"
probe='<p id="probe"><script>
  document.currentScript.parentNode.textContent = "page=" + document.documentElement.scrollWidth
</script>'
begin 'html page of runs in a browser'
for width in 1280 600; do open "$folder/runs.html" "$width" && found "page=$width"; done
end

# A sweep of three runs, the best of them last; its table is sorted by clicks on names of columns.
mkdir "$folder/sweep"
long=$(printf 'kind-%.0s' {1..40})
{
    echo '{"perilune_sweep":1,"model":"m.lua","keys":["lr","set.kind"],"outputs":[],"checkpoint":null,'
    echo '"stop_worse":0,"rungs":0,"runs":['
    for i in 1 2 3; do
        echo "{\"settings\":[\"1e-$((5 - i))\",\"$long$i\"],\"steps\":2,\"eval_every\":0,\"plan\":\"0\","
        echo '"arguments":[]}'"$([ "$i" -eq 3 ] || echo ,)"
        mkdir "$folder/sweep/00$i"
        printf '{"step":%d,"loss":'$((5 - i))'}\n' 1 2 >"$folder/sweep/00$i/log.jsonl"
        echo '{"exit":0}' >"$folder/sweep/00$i/result.json"
    done
    echo ']}'
} >"$folder/sweep/sweep.json"
write_pages "$perilune" show "$folder/sweep" --html -o "$folder/sweep.html"
probe='<p id="probe"></p><script>(function () {
  var names = [...document.querySelectorAll("th")], rows = () => [...document.querySelectorAll("tbody tr")]
    .map(row => +row.cells[0].textContent.slice(-1)).join("")
  var said = "page=" + document.documentElement.scrollWidth + " " + rows()
  names.find(name => name.textContent === "lr").click()
  said += " " + rows()
  names.find(name => name.textContent === "loss").click()
  said += " " + rows()
  names.find(name => name.textContent === "loss").click()
  document.getElementById("probe").textContent = said + " " + rows()
})()</script>'
begin 'html page of a sweep in a browser'
open "$folder/sweep.html" 600 && found 'page=600 321 123 321 123'
[ "$(grep -c '<polyline class="run v[012]"' "$folder/dom")" -eq 3 ] || fail 'no curve for each run'
[ "$(grep -c '<circle class="run v' "$folder/dom")" -eq 6 ] || fail 'no point for each run and setting'
end
[ "$n_failed" -eq 0 ]

#!/usr/bin/env bash
# The pages of plan --cluster, scale, budget, rent and fit in headless Chromium, wide and narrow: they draw, log
# nothing, fetch nothing and do not scroll sideways; the timeline zooms, points show what they are and
# can be switched off. A probe added to a copy writes down what only the browser knows.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite='search pages'
. tests/browser/pages.sh
model=(models/gpt.lua --set size=1.7b --cluster selene --global-batch 64)
write_pages "${SEARCH_PAGES:-build/tests/test_show_search}" --write "$folder"
write_pages "$perilune" plan "${model[@]}" --ranks 16 --explain --html "$folder/real.html"
write_pages "$perilune" plan "${model[@]}" --ranks 16 --mesh t=2,d=2,p=4 --schedule 1f1b --micro-batch 2 \
    --html "$folder/boxes.html"
write_pages "$perilune" scale "${model[@]}" --ranks 1..64 --html "$folder/scale.html"
write_pages "$perilune" budget models/gpt.lua --cluster h100-dgx --ranks 8 --global-batch 64 --sizes 124m,350m \
    --mesh t=1,p=1 --micro-batch 2 --days 2 --html "$folder/budget.html"
write_pages "$perilune" rent models/gpt.lua --set size=124m --cluster h100-dgx,l40s --global-batch 128 \
    --mesh t=1,p=1 --days-for-tokens 1e11 --within-days 0.5 --within-money 300 --html "$folder/rent.html"
awk 'BEGIN { print "parameters,tokens,loss"; for (n = 1e6; n < 1e8; n *= 4) for (d = n; d < 9 * n; d *= 2)
    print n "," d "," 1.5 + 200 * n ^ -0.3 + 900 * d ^ -0.35 }' >"$folder/runs.csv"
write_pages "$perilune" fit "$folder/runs.csv" --html "$folder/fit.html"

probe='<script>(function () {
  var page = document.documentElement, note = document.createElement("p"), i
  var wide = page.scrollWidth, text = "page=" + (wide <= window.innerWidth)
  var more = document.getElementById("zm"), view = document.querySelector(".view")
  if (more) {
    for (i = 0; i < 10; i++) more.click()
    text += " zoom=" + (view.scrollWidth > 3 * view.clientWidth)
  }
  var plot = document.getElementById("pl")
  if (plot) {
    var svg = plot.querySelector("svg"), tip = plot.querySelector(".tip")
    var best = plot.querySelector(".pt").getBoundingClientRect()
    svg.dispatchEvent(new PointerEvent("pointermove", {clientX: best.x + 3, clientY: best.y + 3}))
    text += " tip=" + (tip.offsetHeight > 20 && /GiB/.test(tip.textContent))
    var chips = document.querySelectorAll(".chips button")
    for (i = 0; i < chips.length; i++) chips[i].click()
    text += " off=" + (plot.querySelectorAll(".pt:not(.off)").length === 0)
    for (i = 0; i < chips.length; i++) chips[i].click()
    text += " on=" + (plot.querySelectorAll(".pt.off").length === 0)
  }
  var labels = document.querySelectorAll(".plot .y, .curve .y"), same = 0
  for (i = 1; i < labels.length; i++)
    if (labels[i].getBoundingClientRect().y === labels[i - 1].getBoundingClientRect().y) same++
  text += " labels=" + (labels.length > 1 && same < labels.length / 2)
  var boxes = document.querySelectorAll("#tl rect"), tasks = 0
  for (i = 0; i < boxes.length; i++) if (/^[FBU]/.test(boxes[i].getAttribute("class"))) tasks++
  if (location.hash === "#count") text += " tasks=" + tasks
  note.id = "probe"
  note.textContent = text
  document.body.appendChild(note)
})()</script>'

# check_page NAME WIDTH EXPECTED SECTION...
check_page() {
    begin "$1 page of a search, $2 px"
    open "$folder/$1.html" "$2" "${count:+count}" || return
    found "$3"
    shift 3
    sections "$@"
    end
}

whole='page=true zoom=true tip=true off=true on=true labels=true'
for width in 1280 400; do
    for page in search search-hostile real; do
        check_page "$page" "$width" "$whole" \
            mesh choice parts candidates timeline memory traffic alternatives
    done
    check_page scale "$width" 'page=true labels=true' rate step mfu efficiency memory price table
    check_page budget "$width" 'page=true labels=true' loss mfu table
    check_page rent "$width" 'page=true labels=true' curve table machines
    check_page fit "$width" 'page=true labels=true' runs residuals table
done
# 4 stages: 16 micro-batches forward and backward, and the update.
count=yes check_page boxes 1280 "$whole tasks=132" timeline
[ "$n_failed" -eq 0 ]

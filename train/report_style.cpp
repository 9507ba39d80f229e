#include "train/report_style.h"

namespace gradus::train {

// The picture of a chart is stretched to the width that there is, its strokes and its text are not: lines
// have vector-effect: non-scaling-stroke, dots are lines of length 0 with round ends, labels are HTML.
// Colours: Okabe & Ito [2008], darkened or lightened to a contrast of 4.5 : 1.
const char* const kReportStyle = R"css(
:root { color-scheme: light dark; --ground: #fff; --ink: #1d2127; --soft: #5b636e; --rule: #d9dde2;
  --panel: #f6f7f9; --r0: #0067a3; --r1: #b04400; --r2: #00735a; --r3: #99407f; --r4: #7a6100; --r5: #444b55; }
@media (prefers-color-scheme: dark) { :root { --ground: #15171b; --ink: #e4e7eb; --soft: #a2abb6;
  --rule: #363c45; --panel: #1d2025; --r0: #5ab6ee; --r1: #f0a030; --r2: #35c99b; --r3: #dd9fc8;
  --r4: #efe253; --r5: #c3cad3; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1rem; background: var(--ground); color: var(--ink);
  font: 16px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: .3rem 0 1rem; } h2 { font-size: 1.05rem; margin: 0; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.charts figure:first-child { grid-column: 1 / -1; }
figure { margin: 0; padding: .8rem 1rem; background: var(--panel); border-radius: .5rem; min-width: 0; }
figure:focus-visible { outline: 3px solid var(--r0); outline-offset: 2px; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 .6rem; align-items: baseline; }
.unit, .read, .key { color: var(--soft); font-size: .9rem; }
.read { min-height: 2.9em; margin: .1rem 0 .4rem; font-variant-numeric: tabular-nums; }
.key { display: flex; flex-wrap: wrap; gap: .1rem 1rem; margin: .3rem 0 0; padding: 0; list-style: none; }
.plot { display: grid; grid-template-columns: 3.4rem 1fr; grid-template-rows: 11rem 1.5rem; }
.charts figure:first-child .plot { grid-template-rows: 18rem 1.5rem; }
.y, .x { position: relative; font-size: .8rem; color: var(--soft); font-variant-numeric: tabular-nums; }
.y span { position: absolute; right: .5rem; transform: translateY(-50%); }
.x { grid-column: 2; }
.x span { position: absolute; top: .25rem; transform: translateX(-50%); }
.plot svg { width: 100%; height: 100%; overflow: visible; touch-action: pan-y; }
svg path, svg line { fill: none; vector-effect: non-scaling-stroke; stroke: var(--c); }
.grid { stroke: var(--rule); }
.line { stroke-width: 2px; stroke-linejoin: round; } .faint { stroke-width: 1px; opacity: .4; }
.dotted { stroke-width: 2px; stroke-dasharray: 5 4; }
.dots { stroke-width: 7px; stroke-linecap: round; }
.cursor { stroke: var(--ink); stroke-width: 1px; visibility: hidden; }
.swatch { display: inline-block; width: 1.6rem; height: .7rem; margin-right: .4rem; color: var(--c); }
.r0 { --c: var(--r0); } .r1 { --c: var(--r1); } .r2 { --c: var(--r2); }
.r3 { --c: var(--r3); } .r4 { --c: var(--r4); } .r5 { --c: var(--r5); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .4rem 0; }
th, td { text-align: left; padding: .2rem .9rem .2rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; white-space: nowrap; }
th { font-weight: 600; } td.number, th.number { text-align: right; } tr.differs th::after { content: " ≠"; }
tr.differs td { font-weight: 600; }
details { margin-top: 1rem; } figure details { margin-top: .4rem; font-size: .9rem; }
summary { cursor: pointer; }
@media (max-width: 30rem) { body { padding: .6rem; } figure { padding: .6rem; }
  .charts figure:first-child .plot { grid-template-rows: 13rem 1.5rem; } .plot { grid-template-columns: 3rem 1fr; } }
@media print { .read { display: none; } figure { break-inside: avoid; } }
)css";

// For each chart: {"x": [low, high], "lines": [[name, run, [x …], [y …]], …]}, null for a gap.
const char* const kReportScript = R"js(
"use strict";
const charts = JSON.parse(document.getElementById("data").textContent);
const text = y => y === null ? "not finite" : Math.abs(y) >= 1e4 ? y.toLocaleString("en", {maximumFractionDigits: 0})
  : String(Number(y.toPrecision(4)));
function nearest(xs, x) {  // xs increases
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  return low > 0 && x - xs[low - 1] < xs[low] - x ? low - 1 : low;
}
document.querySelectorAll("figure").forEach((figure, i) => {
  const {x: [low, high], lines} = charts[i];
  const svg = figure.querySelector("svg"), cursor = figure.querySelector(".cursor");
  const read = figure.querySelector(".read"), idle = read.textContent;
  const longest = lines.reduce((a, b) => b[2].length > a[2].length ? b : a)[2];
  let at = longest.length - 1;
  function show(step) {
    const place = 1000 * (step - low) / (high - low);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    cursor.style.visibility = "visible";
    read.textContent = "step " + step.toLocaleString("en") + ": " + lines.map(([name, , xs, ys]) => {
      const k = nearest(xs, step);
      const other = xs[k] === step ? "" : " (at " + xs[k].toLocaleString("en") + ")";
      return (name ? name + " " : "") + text(ys[k]) + other;
    }).join(" · ");
  }
  function hide() { cursor.style.visibility = "hidden"; read.textContent = idle; }
  function point(event) {
    const box = svg.getBoundingClientRect();
    at = nearest(longest, low + (high - low) * (event.clientX - box.left) / box.width);
    show(longest[at]);
  }
  svg.addEventListener("pointermove", point);
  svg.addEventListener("pointerdown", point);
  svg.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", event => {
    const far = Math.max(1, Math.round(longest.length / 20));
    const step = {ArrowLeft: -1, ArrowRight: 1, PageDown: -far, PageUp: far, Home: -1e9, End: 1e9}[event.key];
    if (!step || event.target !== figure) return;
    event.preventDefault();
    at = Math.min(Math.max(at + step, 0), longest.length - 1);
    show(longest[at]);
  });
});
)js";

}  // namespace gradus::train

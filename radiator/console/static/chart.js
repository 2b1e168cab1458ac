// Lines over the last hour, drawn by uPlot in the colours of the page.
import UPlot from "./vendor/uplot/uplot.js";
import { bytes, html, rate, useEffect, useRef } from "./ui.js";

const HEIGHT = 150;
const HOUR_SECONDS = 3600;
const MINUTES = [300, 600, 900, 1200, 1800];
const DECIMAL = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

const clockTime = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 16);

// The colour that a property has now: a canvas does not understand light-dark().
function resolved(element, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  element.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function options(width, lines, unit, element) {
  const colour = (name) => resolved(element, name);
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
  const number = unit === "bytes" ? bytes : (value) => SHORT.format(value);
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { size: 5 } },
    padding: [8, 18, 0, 0],
    scales: {
      x: { range: (plot) => [plot.hourEnds - HOUR_SECONDS, plot.hourEnds] },
      y: { range: (_, low, high) => [0, Math.max(high * 1.1, unit === "bytes" ? 1024 : 4)] },
    },
    axes: [
      { ...axis, values: (_, splits) => splits.map(clockTime), space: 60, size: 26, incrs: MINUTES },
      { ...axis, values: (_, splits) => splits.map(number), size: unit === "bytes" ? 72 : 46, space: 30, incrs: unit === "bytes" ? BINARY : DECIMAL },
    ],
    series: [{}, ...lines.map((line) => ({ label: line.label, stroke: colour(line.colour), width: 1.6, points: { show: false } }))],
  };
}

// lines: {label, colour (a CSS property), values}. `step` seconds between values, the last one at `end` (seconds).
export function Chart({ title, lines, step, end, unit = "" }) {
  const box = useRef(null);
  const plot = useRef(null);
  const length = Math.max(0, ...lines.map((line) => line.values.length));
  const data = [
    Array.from({ length }, (_, at) => end - (length - 1 - at) * step),
    ...lines.map((line) => line.values),
  ];
  const latest = useRef(data);
  latest.current = data;
  const ends = useRef(end);
  ends.current = end;
  const refresh = useRef(null);
  useEffect(() => {
    const element = box.current;
    const show = () => {
      plot.current.hourEnds = ends.current;
      plot.current.setData(latest.current);
    };
    refresh.current = show;
    const draw = () => {
      if (plot.current) plot.current.destroy();
      plot.current = new UPlot(options(element.clientWidth, lines, unit, element), null, element);
      show();
    };
    draw();
    const observer = new ResizeObserver(() => plot.current && plot.current.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    addEventListener("radiator-theme", draw);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", draw);
      removeEventListener("radiator-theme", draw);
      plot.current.destroy();
      plot.current = null;
    };
  }, []);
  useEffect(() => {
    if (plot.current) refresh.current();
  }, [end, length]);
  const figure = unit === "bytes" ? bytes : rate;
  const last = (line) => line.values[line.values.length - 1];
  const most = (line) => line.values.reduce((high, value) => Math.max(high, value ?? 0), 0);
  const summary = lines.map((line) => `${line.label}: now ${figure(last(line))}, at most ${figure(most(line))}`).join("; ");
  return html`<figure class="chart"><figcaption><strong>${title}</strong>${lines.map(
      (line, at) => html`<span class="key key-${line.colour.slice(2)}">${line.label} <b>${figure(last(line))}</b></span>`,
    )}</figcaption>
    <div ref=${box} role="img" aria-label="${title}, the last hour. ${summary}"></div></figure>`;
}

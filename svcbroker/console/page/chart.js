// A chart of something over time, by uPlot, which is loaded with the first one.

import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { formatClock } from "./texts.js";

const HEIGHT = 200;
let loading = null;

// Numbers come first.
const whenIdle = globalThis.requestIdleCallback ?? ((run) => setTimeout(run, 100));

/** Load uPlot: a script, since it is no module. */
function load() {
  loading ??= new Promise((resolve) => whenIdle(resolve)).then(() => new Promise((resolve, reject) => {
    const style = document.createElement("link");
    style.rel = "stylesheet";
    style.href = new URL("vendor/uplot.css", import.meta.url);
    const script = document.createElement("script");
    script.src = new URL("vendor/uplot.js", import.meta.url);
    script.onload = () => resolve(window.uPlot);
    script.onerror = () => {
      // The next look tries again.
      loading = null;
      script.remove();
      style.remove();
      reject(new Error("uPlot could not be loaded"));
    };
    document.head.append(style, script);
  }));
  return loading;
}

// The steps of numbers that have no fractions.
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();

function optionsOf(element, title, format, isWhole) {
  const style = getComputedStyle(element);
  const [text, line, accent] = ["--quiet", "--line", "--accent"].map((name) =>
    style.getPropertyValue(name).trim());
  const axis = { stroke: text, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  return {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [null, 32, null, null],
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: {
      y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] },
    },
    axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(formatClock) }, {
      ...axis, size: 72, ...(isWhole && { incrs: WHOLE }), values: (_, ticks) => ticks.map((each) => format(each)),
    }],
    series: [{}, { label: title, stroke: accent, width: 2, fill: `${accent}22`, points: { show: true, size: 3 } }],
  };
}

/**
 * @param label what it shows, for those who do not see it.
 * @param times in seconds since the epoch.
 * @param values as many, or null where there is none.
 * @param format writes a value.
 * @param isWhole whether the values are counts.
 */
export function Chart({ label, times, values, format, isWhole = false }) {
  const element = useRef(null);
  const plot = useRef(null);
  const redraw = useRef(null);
  const latest = useRef([times, values]);
  latest.current = [times, values];
  useEffect(() => {
    let isGone = false;
    const draw = async () => {
      const uPlot = await load().catch(() => null);
      // Axes need two times.
      if (!uPlot || isGone || latest.current[0].length < 2) return;
      plot.current?.destroy();
      plot.current = new uPlot(optionsOf(element.current, label, format, isWhole), latest.current, element.current);
    };
    redraw.current = draw;
    const resizing = new ResizeObserver(() =>
      plot.current?.setSize({ width: element.current.clientWidth, height: HEIGHT }));
    resizing.observe(element.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    return () => {
      isGone = true;
      resizing.disconnect();
      dark.removeEventListener("change", draw);
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => {
    if (plot.current) plot.current.setData([times, values]);
    else redraw.current();
  }, [times, values]);
  return html`<div class="chart" role="img" aria-label=${label} ref=${element}></div>`;
}

// What was measured in the last minutes or hours, as charts.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { ErrorText, Section, useCall } from "./parts.js";
import { formatBytes, formatMilliseconds, formatNumber, formatZone, t } from "./texts.js";

// Seconds that are shown, and milliseconds after which they are asked for again.
const RANGES = { 300: 5000, 3600: 20000, 21600: 60000, 86400: 60000 };
const SERIES = {
  events: (value) => formatNumber(value, 2),
  refusals: (value) => formatNumber(value, 2),
  p50: formatMilliseconds,
  p99: formatMilliseconds,
  waiting: (value) => formatNumber(value),
  connections: (value) => formatNumber(value),
  stored: formatBytes,
  free: formatBytes,
};

const WHOLE = ["waiting", "connections"];

/** One series: its last value in words, and all in a chart. */
function Series({ name, values, times }) {
  const last = values.findLast((each) => each !== null);
  const label = `${t(`history.${name}`)}: ${last === undefined ? "–" : SERIES[name](last)}`;
  return html`<div><h3>${label}</h3>
    <${Chart} label=${label} times=${times} values=${values} format=${SERIES[name]}
      isWhole=${WHOLE.includes(name)} /></div>`;
}

export function History() {
  const [seconds, setSeconds] = useState("300");
  const { data, error } = useCall((signal) => ask("admin/history", { seconds }, signal), [seconds], RANGES[seconds]);
  const { end, step, series } = data ?? { end: 0, step: 0, series: {} };
  const names = Object.keys(SERIES).filter((name) => series[name]);
  const times = names.length ? series[names[0]].map((_, index, all) => end / 1000 - (all.length - 1 - index) * step) : [];
  const choice = html`<label class="inline">${t("history.range")}
    <select value=${seconds} onChange=${(event) => setSeconds(event.target.value)}>
      ${Object.keys(RANGES).map((each) => html`<option value=${each}>${t(`history.range.${each}`)}</option>`)}
    </select></label>`;
  return html`<${Section} title=${t("history.title")} actions=${choice}>
    ${end > 0 && html`<p class="quiet">${t("history.zone", { zone: formatZone(end) })}</p>`}
    <${ErrorText} error=${error} />
    <div class="columns">${names.map((name) => html`
      <${Series} key=${`${name} ${seconds}`} name=${name} values=${series[name]} times=${times} />`)}</div>
  <//>`;
}

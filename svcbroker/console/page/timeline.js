// What has happened to replicas in the last minute: a lane for each, and the changes in words.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { Section, Time } from "./parts.js";
import { formatNumber, t } from "./texts.js";

// Seconds that are shown.
const WINDOW = 60;
const MOST_CHANGES = 50;
// After so many seconds without a look, what has been meanwhile is not known.
const GAP = 3;
const LANE = 26;
const AXIS = 22;

const stateOf = (row) => (row.isRunning ? (row.isLeader ? "leads" : "follows") : "stopped");

/** The changes between two looks at the replicas, as texts. */
function changesOf(before, rows) {
  const changes = [];
  for (const row of rows) {
    const old = before[row.index];
    if (old && old.isRunning !== row.isRunning) {
      changes.push(t(row.isRunning ? "replicas.started" : "replicas.stopped", { node: row.index }));
    }
  }
  const [from, to] = [before, rows].map((each) => Math.max(0, ...each.map((row) => row.view)));
  if (before.length && from !== to) {
    const leader = rows.find((row) => row.isRunning && row.isLeader && row.view === to);
    changes.push(t("replicas.viewChanged", { from: formatNumber(from), to: formatNumber(to) })
      + (leader ? ` ${t("replicas.leaderIs", { node: leader.index })}` : ""));
  }
  return changes;
}

/**
 * What was seen of the replicas.
 *
 * @returns segments: for each replica, times from and to in which its state and view were the same;
 *   changes: in words, newest first; now: the time of the last look.
 */
export function useHistory(rows, group) {
  const [history, setHistory] = useState({ group, rows: [], segments: [], changes: [], now: 0 });
  const isAway = useRef(false);
  useEffect(() => {
    const change = ({ detail }) => (isAway.current = detail);
    addEventListener("brokeraway", change);
    return () => removeEventListener("brokeraway", change);
  }, []);
  const seen = rows.map((row) => `${stateOf(row)} ${row.view} ${row.height}`).join();
  useEffect(() => {
    if (!rows.length) return undefined;
    const look = () => setHistory((old) => {
      if (isAway.current) return old;
      const now = Date.now() / 1000;
      const before = old.group === group ? old : { rows: [], segments: [], changes: [] };
      const segments = rows.map((row) => {
        const lane = (before.segments[row.index] ?? []).filter((each) => each.to > now - WINDOW);
        const last = lane.findLast((each) => each.to > now - GAP);
        const state = stateOf(row);
        if (last?.state === state && last.view === row.view) return [...lane.slice(0, -1), { ...last, to: now }];
        return [...lane, { from: last?.to ?? now, to: now, state, view: row.view }];
      });
      const changes = changesOf(before.rows, rows).map((text) => ({ at: now, text, key: `${now} ${text}` }));
      return { group, rows, segments, changes: [...changes.reverse(), ...before.changes].slice(0, MOST_CHANGES), now };
    });
    look();
    const timer = setInterval(look, 500);
    return () => clearInterval(timer);
  }, [seen, group]);
  return history;
}

const share = (seconds) => `${Math.max(0, Math.min(100, (100 * seconds) / WINDOW))}%`;

function Lane({ segments, index, start }) {
  const y = index * LANE + 2;
  return segments.filter((each) => each.to > start).map((each) => {
    const from = Math.max(0, each.from - start);
    const length = each.to - start - from;
    return html`<g key=${each.from}>
      <rect class=${`lane ${each.state}`} x=${share(from)} width=${share(length)} y=${y} height=${LANE - 4} />
      ${length > WINDOW / 20 && html`<text class=${`lane ${each.state}`} x=${share(from)} dx="4" y=${y + 16}>${each.view}</text>`}
    </g>`;
  });
}

/**
 * The last minute of each replica, and the changes.
 *
 * @param hasLeaders whether it is known which one leads.
 */
export function Timeline({ history, count, hasLeaders }) {
  const { segments, changes, now } = history;
  const height = count * LANE + AXIS;
  const ticks = [0, 15, 30, 45];
  return html`<${Section} title=${t("replicas.timeline")}>
    <div class="timeline">
      <ol class="lanes" aria-hidden="true">${segments.map((_, index) => html`<li>${t("replicas.node", { node: index })}</li>`)}</ol>
      <svg role="img" aria-label=${t("replicas.timelineLabel")} width="100%" height=${height}>
        ${ticks.map((each) => html`<g key=${each}>
          <line class="tick" x1=${share(each)} x2=${share(each)} y1="0" y2=${height - AXIS} />
          <text class="tick" x=${share(each)} dx="2" y=${height - 6}>${each - WINDOW} s</text>
        </g>`)}
        ${segments.map((lane, index) => html`<${Lane} key=${index} segments=${lane} index=${index} start=${now - WINDOW} />`)}
      </svg>
    </div>
    <p class="legend quiet">
      ${hasLeaders && html`<span><i class="lane leads"></i>${t("replicas.leads")}</span>`}
      <span><i class="lane follows"></i>${t(hasLeaders ? "replicas.follows" : "node.active")}</span>
      <span><i class="lane stopped"></i>${t("node.inactive")}</span>
      <span>${t("replicas.numbers")}</span>
    </p>
    <h3 id="changes-title">${t("replicas.changes")}</h3>
    ${changes.length
      ? html`<div class="changes" role="log" aria-labelledby="changes-title" tabindex="0"><ol>
          ${changes.map((each) => html`<li key=${each.key}><${Time} at=${each.at * 1000} /> ${each.text}</li>`)}
        </ol></div>`
      : html`<p class="quiet">${t("replicas.noChanges")}</p>`}
  <//>`;
}

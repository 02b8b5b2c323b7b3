// The overview: how the chain, its nodes and those who wait for events are now.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { Chart } from "./chart.js";
import { Badge, ErrorText, may, Section, Short, Table, useCall } from "./parts.js";
import { formatBytes, formatMilliseconds, formatNumber, formatSeconds, t } from "./texts.js";

// A hundred open consoles are to cost publishers little: python -m benchmarks.consoles.
const FAST = 4000;
const SLOW = 20000;
const KEPT = 300;

// What was seen of each group, so that the chart is there again when the reader comes back.
const seen = {};

/** The samples of a group with one more: the rate since the one before. */
function withSample(samples, statistics) {
  const sample = {
    at: Date.now() / 1000,
    transactions: Number(statistics.transactionCount),
    rate: null,
  };
  const before = samples.at(-1);
  if (before && sample.transactions >= before.transactions) {
    sample.rate = (sample.transactions - before.transactions) / (sample.at - before.at);
  }
  return [...samples, sample].slice(-KEPT);
}

function Figure({ label, value, note }) {
  return html`<div class="figure">
    <dt>${label}</dt>
    <dd><span class="value">${value}</span>${note && html`<span class="note">${note}</span>`}</dd>
  </div>`;
}

/** A number; a dash where it is not known, with why for those who point at it. */
function numberOf(call, make) {
  if (call.data !== undefined) return make(call.data);
  return call.error ? html`<span title=${call.error.message}>–</span>` : "…";
}

/** The oldest event that a webhook waits to deliver. */
function oldestOf(webhooks) {
  const ages = webhooks.map((each) => each.oldestEventAge).filter((age) => age !== null);
  return ages.length ? formatSeconds(Math.max(...ages)) : t("overview.nothingWaits");
}

/**
 * The time within which a share of the publishes were final, in seconds: of those since the last
 * look, or since the start of the broker; null for none.
 */
function quantile(latency, before, share) {
  const { bounds, counts } = latency;
  const since = counts.map((count, index) => count - (before?.counts[index] ?? 0));
  const counted = since.some((count) => count > 0) ? since : counts;
  const total = counted.reduce((sum, each) => sum + each, 0);
  let rest = share * total;
  for (const [index, bound] of bounds.entries()) {
    if (counted[index] >= rest && counted[index] > 0) {
      const low = bounds[index - 1] ?? 0;
      return low + ((bound - low) * rest) / counted[index];
    }
    rest -= counted[index];
  }
  return total ? bounds.at(-1) : null;
}

function Latency({ measures, before }) {
  const [median, high] = [0.5, 0.99].map((share) => quantile(measures.latency, before?.latency, share));
  return html`<${Figure} label=${t("overview.latency")} value=${median === null ? "–" : formatMilliseconds(median)}
    note=${high === null ? "" : t("overview.latencyNote", { high: formatMilliseconds(high) })} />`;
}

/** How long publishes take, what waits, and the room on the disk: what is known of it. */
function Measures({ measures }) {
  const seenBefore = useRef([undefined, undefined]);
  if (seenBefore.current[1] !== measures) seenBefore.current = [seenBefore.current[1], measures];
  const { waiting, oldestWaiting, diskFree, diskSize, latency, chain } = measures;
  return html`
    ${latency && html`<${Latency} measures=${measures} before=${seenBefore.current[0]} />`}
    ${waiting !== null && html`<${Figure} label=${t("overview.waiting")} value=${formatNumber(waiting)}
      note=${waiting ? formatSeconds(oldestWaiting) : ""} />`}
    ${diskFree !== null && html`<${Figure} label=${t("overview.disk")} value=${formatBytes(diskFree)}
      note=${t("overview.diskNote", { size: formatBytes(diskSize) })} />`}
    ${chain && html`<${ChainFigures} chain=${chain} />`}`;
}

/** The chain of others that a ledger is on. Money is told in the chain's own coin, of 10^18 wei. */
function ChainFigures({ chain }) {
  const { height, behind, underWay, balance, gasPrice, attested } = chain;
  return html`
    <${Figure} label=${t("overview.chain")} value=${formatNumber(height)}
      note=${behind ? t("overview.chainNote", { behind: formatNumber(behind) }) : ""} />
    <${Figure} label=${t("overview.underWay")} value=${formatNumber(underWay)} />
    ${balance !== null && html`<${Figure} label=${t("overview.balance")} value=${formatNumber(Number(balance) / 1e18, 4)}
      note=${t("overview.balanceNote", { price: formatNumber(Number(gasPrice) / 1e9, 3) })} />`}
    <${Figure} label=${t("overview.attested")} value=${attested ? formatNumber(attested) : "–"} />`;
}

function countLive(nodes) {
  return Object.values(nodes).reduce((sum, each) => sum + Object.keys(each).length, 0);
}

export default function Overview({ group, user }) {
  const groupId = group;
  const isAdmin = may(user, group, "admin");
  const ofAdmin = (call) => (isAdmin ? call : null);
  const general = useCall(ofAdmin((signal) => ask("admin/group/general", { groupId }, signal)), [group], FAST);
  const nodes = useCall(
    ofAdmin((signal) => ask("admin/node/nodeList", { groupId, pageSize: 99 }, signal)), [group], FAST);
  const topics = useCall((signal) => ask("rest/list", { groupId, pageSize: 1 }, signal), [group], SLOW);
  const live = useCall((signal) => ask("admin/listSubscription", { groupId }, signal), [group], SLOW);
  const webhooks = useCall((signal) => ask("rest/listWebhooks", { groupId, limit: 1000 }, signal), [group], SLOW);
  const measures = useCall(ofAdmin((signal) => ask("admin/group/measures", { groupId }, signal)), [group], SLOW);
  const version = useCall(ofAdmin((signal) => ask("admin/getVersion", {}, signal)), []);
  const [samples, setSamples] = useState(seen[group] ?? []);
  useEffect(() => {
    if (general.data) setSamples((before) => (seen[group] = withSample(before, general.data)));
  }, [general.data]);
  const rate = samples.at(-1)?.rate ?? null;
  const active = (page) => page.pageData.filter((each) => each.nodeActive).length;
  return html`
    <${ErrorText} error=${general.error} />
    <dl class="figures">
      ${isAdmin && html`
        <${Figure} label=${t("overview.height")} value=${numberOf(general, (data) => formatNumber(data.latestBlock))} />
        <${Figure} label=${t("overview.transactions")}
          value=${numberOf(general, (data) => formatNumber(data.transactionCount))} />
        <${Figure} label=${t("overview.rate")} value=${rate === null ? "…" : formatNumber(rate, rate < 10 ? 1 : 0)} />
        ${measures.data && html`<${Measures} measures=${measures.data} />`}
        <${Figure} label=${t("overview.nodes")}
          value=${numberOf(nodes, (data) => `${active(data)} / ${data.total}`)} note=${t("overview.nodesNote")} />`}
      <${Figure} label=${t("overview.topics")} value=${numberOf(topics, (data) => formatNumber(data.total))} />
      <${Figure} label=${t("overview.live")} value=${numberOf(live, (data) => formatNumber(countLive(data)))} />
      <${Figure} label=${t("overview.webhooks")}
        value=${numberOf(webhooks, (data) => formatNumber(data.webhooks.length) + (data.next ? "+" : ""))} />
      <${Figure} label=${t("overview.oldest")} value=${numberOf(webhooks, (data) => oldestOf(data.webhooks))} />
    </dl>
    ${!isAdmin && html`<p class="quiet">${t("overview.notAdmin")}</p>`}
    ${isAdmin && html`<${Section} title=${t("overview.rateChart")}>
      <${Chart} label=${t("overview.rateNow", { rate: rate === null ? "–" : formatNumber(rate, 1) })}
        times=${samples.map((each) => each.at)} values=${samples.map((each) => each.rate)} />
    <//>
    <${Section} title=${t("overview.nodes")}>
      <${ErrorText} error=${nodes.error} />
      ${nodes.data && html`<${Table} label=${t("overview.nodes")} rows=${nodes.data.pageData}
        keyOf=${(row) => row.nodeId} empty=${t("overview.noNodes")} columns=${[
          { title: t("node.id"), cell: (row) => html`<${Short} text=${row.nodeName ?? row.nodeId} />` },
          { title: t("node.state"), cell: (row) => row.nodeActive
            ? html`<${Badge} kind="good">${t("node.active")}<//>`
            : html`<${Badge} kind="bad">${t("node.inactive")}<//>` },
          { title: t("node.kind"), cell: (row) => t(`node.${row.nodeType}`) },
          { title: t("node.height"), isNumber: true, cell: (row) => formatNumber(row.blockNumber) },
          { title: t("node.view"), isNumber: true, cell: (row) => formatNumber(row.pbftView) },
        ]} />`}
    <//>`}
    ${version.data && html`<p class="quiet">svcbroker ${version.data.svcVersion}</p>`}`;
}

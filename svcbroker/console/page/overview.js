// The overview: how the chain, its nodes and those who wait for events are now.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { History } from "./history.js";
import { Badge, ErrorText, explain, may, Section, Short, Table, Time, Told, useCall } from "./parts.js";
import { alarmTexts, formatBytes, formatMilliseconds, formatNumber, formatSeconds, t } from "./texts.js";

// A hundred open consoles are to cost publishers little: python -m benchmarks.consoles.
const FAST = 4000;
const SLOW = 20000;

/** A look at a group, with the rate since the one before. */
function sampleAfter(before, statistics) {
  const at = Date.now() / 1000;
  const transactions = Number(statistics.transactionCount);
  const isLater = before && transactions >= before.transactions;
  return { at, transactions, rate: isLater ? (transactions - before.transactions) / (at - before.at) : null };
}

/** A number with its name; what is wrong has a colour, and says so in its note. */
function Figure({ label, value, note, kind = "" }) {
  return html`<div class=${`figure ${kind}`}>
    <dt>${label}</dt>
    <dd><span class="value">${value}</span>${note && html`<span class="note">${note}</span>`}</dd>
  </div>`;
}

/** A number; a dash where it is not known, with why for those who point at it. */
function numberOf(call, make) {
  if (call.data !== undefined) return make(call.data);
  return call.error ? html`<span title=${explain(call.error)}>–</span>` : "…";
}

/** The oldest event that a webhook waits to deliver. */
function oldestOf(webhooks) {
  const ages = webhooks.map((each) => each.oldestEventAge).filter((age) => age !== null);
  return ages.length ? formatSeconds(Math.max(...ages)) : t("overview.nothingWaits");
}

/** How long the publishes of the last minute took. */
function Latency({ series }) {
  const [medians, high] = [series.p50, series.p99].map((values) => values.filter((each) => each !== null));
  const median = medians.length && medians.reduce((sum, each) => sum + each) / medians.length;
  return html`<${Figure} label=${t("overview.latency")} value=${medians.length ? formatMilliseconds(median) : "–"}
    note=${high.length ? t("overview.latencyNote", { high: formatMilliseconds(Math.max(...high)) }) : ""} />`;
}

/** What waits, and the room on the disk: what is known of it. */
function Measures({ measures }) {
  const { waiting, oldestWaiting, diskFree, diskSize, chain, auditedTimestamp: audited } = measures;
  return html`
    ${waiting !== null && html`<${Figure} label=${t("overview.waiting")} value=${formatNumber(waiting)}
      note=${waiting ? formatSeconds(oldestWaiting) : ""} />`}
    ${diskFree !== null && html`<${Figure} label=${t("overview.disk")} value=${formatBytes(diskFree)}
      note=${t("overview.diskNote", { size: formatBytes(diskSize) })} />`}
    ${chain && html`<${ChainFigures} chain=${chain} />`}
    <${Figure} label=${t("overview.audit")} value=${audited === null ? "–" : formatSeconds((Date.now() - audited) / 1000)}
      note=${t(audited === null ? "overview.audit.none" : "overview.audit.ago")} />`;
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

/** The files that were written when alarms began. */
function Incidents({ found }) {
  return html`<${Section} title=${t("incidents.title")}>
    <p class="quiet">${t("incidents.note")}</p>
    <${Table} label=${t("incidents.title")} rows=${found} keyOf=${(row) => row.file} columns=${[
      { title: t("incidents.at"), cell: (row) => html`<${Time} at=${row.at} />` },
      { title: t("incidents.alarm"), cell: (row) => alarmTexts(row)[0] },
      { title: t("group"), cell: (row) => row.groupId || "–" },
      { title: t("incidents.text"), cell: (row) => html`<${Told} text=${row.text} />` },
      { title: t("incidents.file"), cell: (row) => html`<code>${row.file}</code>` },
    ]} />
  <//>`;
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
  const recent = useCall(ofAdmin((signal) => ask("admin/history", { seconds: 60 }, signal)), [], FAST);
  const incidents = useCall(ofAdmin((signal) => ask("admin/listIncidents", {}, signal)), [], SLOW);
  const [sample, setSample] = useState(null);
  useEffect(() => {
    if (general.data) setSample((before) => sampleAfter(before, general.data));
  }, [general.data]);
  const rate = sample?.rate ?? null;
  const failing = webhooks.data?.webhooks.filter((each) => each.failures && !each.paused).length ?? 0;
  const active = (page) => page.pageData.filter((each) => each.nodeActive).length;
  return html`
    <${ErrorText} error=${general.error} />
    <dl class="figures">
      ${isAdmin && html`
        <${Figure} label=${t("overview.height")} value=${numberOf(general, (data) => formatNumber(data.latestBlock))} />
        <${Figure} label=${t("overview.transactions")}
          value=${numberOf(general, (data) => formatNumber(data.transactionCount))} />
        <${Figure} label=${t("overview.rate")} value=${rate === null ? "…" : formatNumber(rate, rate < 10 ? 1 : 0)} />
        ${recent.data && html`<${Latency} series=${recent.data.series} />`}
        ${measures.data && html`<${Measures} measures=${measures.data} />`}
        <${Figure} label=${t("overview.nodes")}
          value=${numberOf(nodes, (data) => `${active(data)} / ${data.total}`)} note=${t("overview.nodesNote")}
          kind=${nodes.data && active(nodes.data) < nodes.data.total ? "warn" : ""} />`}
      <${Figure} label=${t("overview.topics")} value=${numberOf(topics, (data) => formatNumber(data.total))} />
      <${Figure} label=${t("overview.live")} value=${numberOf(live, (data) => formatNumber(countLive(data)))} />
      <${Figure} label=${t("overview.webhooks")}
        value=${numberOf(webhooks, (data) => formatNumber(data.webhooks.length) + (data.next ? "+" : ""))}
        note=${failing ? t("overview.failing", { count: formatNumber(failing) }) : ""} kind=${failing ? "warn" : ""} />
      <${Figure} label=${t("overview.oldest")} value=${numberOf(webhooks, (data) => oldestOf(data.webhooks))} />
    </dl>
    ${!isAdmin && html`<p class="quiet">${t("frame.notAdmin")}</p>`}
    ${isAdmin && html`<${History} />
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
    ${incidents.data?.length > 0 && html`<${Incidents} found=${incidents.data} />`}
    ${version.data && html`<p class="quiet">svcbroker ${version.data.svcVersion}</p>`}`;
}

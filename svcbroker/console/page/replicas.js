// The replicas of a group: how each one is, what happens to them, and faults on purpose.

import { html } from "./vendor/preact-htm.js";
import { ask, operate } from "./api.js";
import { Faults, NodeButton } from "./faults.js";
import { OperatorNotice, useConfiguration } from "./operator.js";
import { Badge, ErrorText, linkTo, may, Section, Short, Table, useCall } from "./parts.js";
import { Timeline, useHistory } from "./timeline.js";
import { formatNumber, t } from "./texts.js";

// Where faults can be made, others do not rely on the broker.
const FAST = 1000;
const SLOW = 5000;

/** The nodes of a group as everybody who may ask sees them, and the proposer of the latest block. */
async function askNodes(groupId, signal) {
  const [nodes, blocks] = await Promise.all([
    ask("admin/node/nodeList", { groupId, pageSize: 99 }, signal),
    ask("admin/block/blockList", { groupId, pageSize: 1 }, signal),
  ]);
  return { nodes: nodes.pageData, total: nodes.total, proposer: blocks.pageData[0]?.sealerIndex };
}

/** One row for each node, by what operators are told where there is that. */
function rowsOf(nodes, report) {
  return nodes.nodes.map((node, index) => {
    const told = report?.nodes[index];
    return {
      index,
      name: node.nodeName ?? node.nodeId,
      kind: node.nodeType,
      isRunning: told ? told.running : Boolean(node.nodeActive),
      isLeader: told?.leader ?? false,
      isProposer: nodes.proposer === index,
      view: told?.pbftView ?? node.pbftView,
      height: told?.blockNumber ?? node.blockNumber,
    };
  });
}

function State({ row, head }) {
  const behind = head - row.height;
  return html`
    ${row.isRunning ? html`<${Badge} kind="good">${t("node.active")}<//>` : html`<${Badge} kind="bad">${t("node.inactive")}<//>`}
    ${row.isRunning && row.isLeader && html` <${Badge} kind="lead">${t("replicas.leads")}<//>`}
    ${behind > 0 && html` <${Badge} kind="warn">${t("replicas.behind", { count: formatNumber(behind) })}<//>`}`;
}

function Nodes({ rows, groupId, report, onChange }) {
  const head = Math.max(...rows.map((each) => each.height));
  const columns = [
    { title: t("node.id"), cell: (row) => row.index },
    { title: t("node.state"), cell: (row) => html`<${State} row=${row} head=${head} />` },
    { title: t("node.view"), isNumber: true, cell: (row) => formatNumber(row.view) },
    { title: t("node.height"), isNumber: true, cell: (row) =>
      html`<a href=${linkTo("block", { height: row.height })}>${formatNumber(row.height)}</a>` },
    { title: t("block.key"), cell: (row) => html`<${Short} text=${row.name} />` },
    ...(report
      ? [{ title: t("actions"), cell: (row) => html`<${NodeButton} groupId=${groupId} row=${row} onChange=${onChange} />` }]
      : [{ title: t("replicas.proposer"), cell: (row) => (row.isProposer ? t("replicas.latest") : "") },
        { title: t("node.kind"), cell: (row) => t(`node.${row.kind}`) }]),
  ];
  return html`<${Table} label=${t("page.replicas")} rows=${rows} keyOf=${(row) => row.index}
    empty=${t("overview.noNodes")} columns=${columns} />`;
}

/** Why there are no faults to be made; nothing where there are. */
function FaultNotice({ group, user, onLogIn, configuration }) {
  if (!may(user, group, "operate")) return html`<${OperatorNotice} user=${user} onLogIn=${onLogIn} />`;
  const isOff = configuration.data?.settings.find((each) => each.name === "faults").values[0] === "off";
  return isOff && html`<p>${t("faults.off")} <code>--faults</code></p>`;
}

export default function Replicas({ group, user, onLogIn }) {
  const groupId = group;
  const configuration = useConfiguration(user, group);
  const hasFaults = configuration.data?.settings.find((each) => each.name === "faults").values[0] === "on";
  const nodes = useCall(
    may(user, group, "admin") ? (signal) => askNodes(groupId, signal) : null, [group], SLOW);
  const faults = useCall(
    hasFaults ? (signal) => operate("faults/show", { groupId }, signal) : null, [group], FAST);
  const report = faults.data ?? null;
  const rows = nodes.data ? rowsOf(nodes.data, report) : [];
  const history = useHistory(rows, group);
  return html`
    <${ErrorText} error=${nodes.error} />
    ${hasFaults && html`<${ErrorText} error=${faults.error} />`}
    ${nodes.data && html`
      <${Section} title=${t("node.state")}>
        <${Nodes} rows=${rows} groupId=${groupId} report=${report} onChange=${faults.reload} />
        ${nodes.data.total > rows.length && html`<p class="quiet">${t("block.firstOf",
          { shown: rows.length, total: formatNumber(nodes.data.total) })}</p>`}
      <//>`}
    ${report && html`<${Faults} groupId=${groupId} report=${report} onChange=${faults.reload} />`}
    ${rows.length > 0 && html`<${Timeline} history=${history} count=${rows.length} hasLeaders=${report !== null} />`}
    <${FaultNotice} group=${group} user=${user} onLogIn=${onLogIn} configuration=${configuration} />`;
}

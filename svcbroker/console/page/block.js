// A block: what it is, who has signed it, its transactions and its events.

import { html } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { Erased } from "./content.js";
import { Badge, ErrorText, EventLink, explain, Facts, linkTo, readHeight, Section, Short, Table, Time, useCall } from "./parts.js";
import { formatNumber, parseUtc, t } from "./texts.js";

const MOST = 99;

/** The events of a block that the account may read, erased ones too, of all topics but those that begin with $. */
async function askEvents(groupId, height, signal) {
  const page = await ask(
    "rest/events", { groupId, topic: "#", from: height, limit: MOST + 1, erased: "tombstone" }, signal);
  return page.events.filter((each) => each.blockNumber === height);
}

/** The header of a block, its certificate and the nodes, as the proof of one of its events has them. */
async function askSigned(groupId, events, signal) {
  if (!events.length) return null;
  const { block, genesis, changes } = await ask("rest/proof", { groupId, eventId: events[0].eventId }, signal);
  return { ...block, nodes: (changes ?? []).at(-1)?.nodes ?? genesis.nodes };
}

/** The header of a block: the parts that the certificate is about, where it is known. */
function factsOf(block, signed) {
  return [
    [t("block.time"), html`<${Time} at=${parseUtc(block.blockTimestamp)} />`],
    [t("block.transactions"), formatNumber(block.transCount)],
    [t("block.proposer"), block.sealerIndex],
    [t("block.hash"), html`<code>${block.pkHash}</code>`],
    ...(signed ? [
      [t("block.parent"), html`<code>0x${signed.header.parent}</code>`],
      [t("block.state"), html`<code>0x${signed.header.stateRoot}</code>`],
      [t("block.view"), formatNumber(signed.header.view)],
    ] : []),
  ];
}

/** Each node, and whether its signature is in the certificate. */
function Signers({ signed }) {
  if (signed.certificate?.kind !== "pbft") return html`<p class="quiet">${t("block.otherCertificate")}</p>`;
  const { nodes, certificate } = signed;
  const signatures = new Map(certificate.signatures.map((each) => [each.node, each.signature]));
  const quorum = nodes.length - Math.floor((nodes.length - 1) / 3);
  return html`
    <p>${t("block.quorum", { signed: signatures.size, nodes: nodes.length, quorum, round: certificate.round })}</p>
    <${Table} label=${t("block.signers")} rows=${nodes.map((key, index) => ({ key, index }))}
      keyOf=${(row) => row.index} empty="" columns=${[
        { title: t("node.id"), isNumber: true, cell: (row) => row.index },
        { title: t("block.key"), cell: (row) => html`<${Short} text=${row.key} />` },
        { title: t("block.signature"), cell: (row) => signatures.has(row.index)
          ? html`<${Badge} kind="good">${t("block.signed")}<//> <${Short} text=${signatures.get(row.index)} />`
          : html`<${Badge} kind="warn">${t("block.notSigned")}<//>` },
      ]} />`;
}

export default function Block({ group, parameters }) {
  const given = parameters.get("height") ?? "";
  const height = readHeight(given);
  if (height === undefined) return html`<p class="error" role="alert">${t("block.noHeight", { given })}</p>`;
  return html`<${Shown} group=${group} height=${height} />`;
}

function Shown({ group, height }) {
  const groupId = group;
  const blocks = useCall(
    (signal) => ask("admin/block/blockList", { groupId, blockNumber: height }, signal), [group, height]);
  const transactions = useCall(
    (signal) => ask("admin/transaction/transList", { groupId, blockNumber: height, pageSize: MOST }, signal),
    [group, height]);
  const events = useCall((signal) => askEvents(groupId, height, signal), [group, height]);
  const signed = useCall(
    (signal) => askSigned(groupId, events.data ?? [], signal), [group, height, events.data]);
  const block = blocks.data?.pageData[0];
  return html`
    <div class="title">
      <p>${t("block.numbered", { height: formatNumber(height) })}</p>
      <span class="pager">
        ${height > 0 && html`<a href=${linkTo("block", { height: height - 1 })}>${t("block.before")}</a>`}
        <a href=${linkTo("block", { height: height + 1 })}>${t("block.after")}</a>
      </span>
    </div>
    <${ErrorText} error=${blocks.error} />
    ${blocks.data && !block && html`<p class="quiet">${t("blocks.notFound")}</p>`}
    ${block && html`
      <${Section} title=${t("block.title")}><${Facts} rows=${factsOf(block, signed.data)} /><//>
      <${Section} title=${t("block.signers")}>
        ${signed.data && html`<${Signers} signed=${signed.data} />`}
        ${signed.error && html`<p class="quiet">${explain(signed.error)}</p>`}
        ${events.data && !events.data.length && html`<p class="quiet">${t("block.noProof")}</p>`}
      <//>
      <${Section} title=${t("block.events")}>
        <${ErrorText} error=${events.error} />
        ${events.data && html`<${Table} label=${t("block.events")} rows=${events.data.slice(0, MOST)}
          keyOf=${(row) => row.eventId} hasMore=${events.data.length > MOST} empty=${t("topic.noEvents")} columns=${[
            { title: t("block.eventId"), cell: (row) =>
              html`<${EventLink} id=${row.eventId} />` },
            { title: t("topic.label"), cell: (row) =>
              html`<a class="name" href=${linkTo("topic", { name: row.topic })}>${row.topic}</a>
                ${row.erased && html`<${Erased} groupId=${groupId} topic=${row.topic} eventId=${row.eventId} />`}` },
          ]} />`}
      <//>
      <${Section} title=${t("block.transactions")}>
        <${ErrorText} error=${transactions.error} />
        ${transactions.data && html`<${Table} label=${t("block.transactions")} rows=${transactions.data.pageData}
          keyOf=${(row) => row.transHash} empty=${t("block.noTransactions")} columns=${[
            { title: t("block.hash"), cell: (row) => html`<${Short} text=${row.transHash} length=${26} />` },
            { title: t("block.sender"), cell: (row) => html`<${Short} text=${row.transFrom} />` },
            { title: t("block.recipient"), cell: (row) => html`<${Short} text=${row.transTo} />` },
          ]} />
          ${transactions.data.total > MOST && html`<p class="quiet">${t("block.firstOf",
            { shown: MOST, total: formatNumber(transactions.data.total) })}</p>`}`}
      <//>`}`;
}

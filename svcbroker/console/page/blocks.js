// The blocks of the chain, newest first.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { ErrorText, linkTo, readHeight, Section, Short, Table, Time, useCall } from "./parts.js";
import { formatNumber, parseUtc, t } from "./texts.js";

const PAGE = 25;
const EVERY = 5000;

/** The parameters of a search: a height, or a hash with or without 0x; undefined for neither. */
function searchOf(text) {
  const wanted = text.trim().replace(/^0x/, "");
  const blockNumber = readHeight(wanted);
  if (blockNumber !== undefined) return { blockNumber };
  if (/^[0-9a-fA-F]{64}$/.test(wanted)) return { hash: `0x${wanted.toLowerCase()}` };
  return undefined;
}

function SearchForm({ groupId }) {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const search = searchOf(event.target.elements.wanted.value);
    if (!search) {
      setError(t("blocks.neither"));
      return;
    }
    let height = search.blockNumber;
    if (search.hash) {
      try {
        const { hash } = search;
        const block = await ask("admin/block/blockList", { groupId, pkHash: hash });
        const transactions = await ask("admin/transaction/transList", { groupId, transactionHash: hash });
        height = [...block.pageData, ...transactions.pageData][0]?.blockNumber;
      } catch (failure) {
        setError(failure.message);
        return;
      }
    }
    if (height === undefined) setError(t("blocks.notFound"));
    else location.hash = linkTo("block", { height });
  };
  return html`<form class="row" role="search" onSubmit=${submit}>
    <label>${t("blocks.search")}<input name="wanted" required autocapitalize="none" spellcheck=${false} /></label>
    <button class="main">${t("blocks.find")}</button>
    ${error && html`<p class="error" role="alert">${error}</p>`}
  </form>`;
}

export default function Blocks({ group }) {
  const groupId = group;
  const [page, setPage] = useState(1);
  // Only the newest blocks change.
  const blocks = useCall(
    (signal) => ask("admin/block/blockList", { groupId, pageNumber: page, pageSize: PAGE }, signal),
    [group, page], page === 1 ? EVERY : 0);
  const last = blocks.data ? Math.max(1, Math.ceil(blocks.data.total / PAGE)) : 1;
  return html`<${Section} title=${t("blocks.title")}>
    <${SearchForm} groupId=${groupId} />
    <${ErrorText} error=${blocks.error} />
    ${blocks.data && html`
      <${Table} label=${t("blocks.title")} rows=${blocks.data.pageData} keyOf=${(row) => row.blockNumber}
        empty=${t("blocks.none")} columns=${[
          { title: t("block.height"), isNumber: true, cell: (row) =>
            html`<a href=${linkTo("block", { height: row.blockNumber })}>${formatNumber(row.blockNumber)}</a>` },
          { title: t("block.time"), cell: (row) => html`<${Time} at=${parseUtc(row.blockTimestamp)} />` },
          { title: t("block.transactions"), isNumber: true, cell: (row) => formatNumber(row.transCount) },
          { title: t("block.proposer"), isNumber: true, cell: (row) => row.sealerIndex },
          { title: t("block.hash"), cell: (row) => html`<${Short} text=${row.pkHash} length=${26} />` },
        ]} />
      <div class="pager">
        <button type="button" disabled=${page === 1} onClick=${() => setPage(page - 1)}>${t("blocks.newer")}</button>
        <span>${t("blocks.page", { page: formatNumber(page), last: formatNumber(last) })}</span>
        <button type="button" disabled=${page >= last} onClick=${() => setPage(page + 1)}>${t("blocks.older")}</button>
      </div>`}
  <//>`;
}

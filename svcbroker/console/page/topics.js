// The topics: search, open, close.

import { html, useState } from "./vendor/preact-htm.js";
import { act, ask, askAll } from "./api.js";
import { ActionButton, announce, ErrorText, linkTo, Section, Table, Time, useCall } from "./parts.js";
import { formatNumber, t } from "./texts.js";

const PAGE = 99;
// How many topics are searched. Others are found by their whole names.
const MOST = 2000;

async function askTopics(groupId, signal) {
  return askAll(async (pageIndex) => {
    const page = await ask("rest/list", { groupId, pageIndex, pageSize: PAGE }, signal);
    return { total: page.total, items: page.topicInfoList };
  }, MOST);
}

/** A form that opens a topic. */
function OpenForm({ groupId, onOpened }) {
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const form = event.target;
    const topic = form.elements.topic.value;
    setError(null);
    try {
      await act("rest/open", { topic, groupId });
    } catch (failure) {
      setError(failure);
      return;
    }
    form.reset();
    announce(t("topics.opened", { topic }));
    onOpened();
  };
  return html`<form class="row" onSubmit=${submit}>
    <label>${t("topics.openName")}<input name="topic" required autocapitalize="none" spellcheck=${false} /></label>
    <button class="main">${t("topics.open")}</button>
    <${ErrorText} error=${error} />
  </form>`;
}

export default function Topics({ group }) {
  const groupId = group;
  const topics = useCall((signal) => askTopics(groupId, signal), [group]);
  const [search, setSearch] = useState("");
  const [error, setError] = useState(null);
  const close = async (topic) => {
    if (!confirm(t("topics.closeConfirm", { topic }))) return;
    setError(null);
    try {
      await act("rest/close", { topic, groupId });
      announce(t("topics.closed", { topic }));
      topics.reload();
    } catch (failure) {
      setError(failure);
    }
  };
  const wanted = search.trim();
  const items = topics.data?.items ?? [];
  const found = items.filter((each) => each.topicName.toLowerCase().includes(wanted.toLowerCase()));
  const go = (event) => {
    event.preventDefault();
    if (wanted) location.hash = linkTo("topic", { name: wanted });
  };
  return html`
    <${Section} title=${t("topics.openTitle")}><${OpenForm} groupId=${groupId} onOpened=${topics.reload} /><//>
    <${Section} title=${t("topics.openTopics")}>
      <form class="row" role="search" onSubmit=${go}>
        <label>${t("topics.search")}
          <input type="search" value=${search} autocapitalize="none" spellcheck=${false}
            aria-describedby="search-hint" onInput=${(event) => setSearch(event.target.value)} />
        </label>
        <button disabled=${!wanted}>${t("topics.show")}</button>
        <p id="search-hint" class="hint">${t("topics.searchHint")}</p>
      </form>
      <${ErrorText} error=${topics.error ?? error} />
      ${topics.data && html`
        <p class="quiet" role="status">${topics.data.total > items.length
          ? t("topics.foundSome", { found: formatNumber(found.length), loaded: formatNumber(items.length),
              total: formatNumber(topics.data.total) })
          : t("topics.found", { found: formatNumber(found.length), total: formatNumber(items.length) })}</p>
        <${Table} label=${t("topics.openTopics")} rows=${found.slice(0, 500)} keyOf=${(row) => row.topicName}
          empty=${t("topics.none")} columns=${[
            { title: t("topics.name"), cell: (row) =>
              html`<a class="name" href=${linkTo("topic", { name: row.topicName })}>${row.topicName}</a>` },
            { title: t("topics.created"), cell: (row) => html`<${Time} at=${row.createdTimestamp} />` },
            { title: t("actions"), cell: (row) => html`<${ActionButton} kind="danger"
              label=${t("topics.closeLabel", { topic: row.topicName })}
              run=${() => close(row.topicName)}>${t("topics.close")}<//>` },
          ]} />`}
    <//>`;
}

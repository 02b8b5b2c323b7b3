// The topics: how busy each is, and the way to its events.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { act, ask } from "./api.js";
import { announce, ErrorText, linkTo, may, Section, Table, Time, useCall } from "./parts.js";
import { formatBytes, formatNumber, t } from "./texts.js";

const PAGE = 99;
// How many pages are asked for at a time.
const AT_ONCE = 4;
// How many topics are searched and sorted. Others are found by their whole names.
const MOST = 10000;
// How many are shown.
const SHOWN = 200;
// So many are read again and again, to tell rates.
const MOST_POLLED = 500;
const EVERY = 5000;
// So many topics times patterns are compared to sort by subscriptions.
const MOST_COMPARED = 1000000;

/** A page of topics, with their activity where the user may ask for that. */
async function askPage(groupId, isAdmin, index, signal) {
  if (isAdmin) {
    const given = { groupId, pageNumber: index + 1, pageSize: PAGE };
    const { total, pageData } = await ask("admin/topic/topicList", given, signal);
    return { total, items: pageData };
  }
  const page = await ask("rest/list", { groupId, pageIndex: index, pageSize: PAGE }, signal);
  return { total: page.total, items: page.topicInfoList };
}

/**
 * All topics up to a bound; some pages at a time.
 *
 * @param onFirst is told of the first page.
 */
async function askTopics(groupId, isAdmin, signal, onFirst) {
  const first = await askPage(groupId, isAdmin, 0, signal);
  const items = [...first.items];
  onFirst({ total: first.total, items: first.items });
  const pages = Math.ceil(Math.min(first.total, MOST) / PAGE);
  for (let index = 1; index < pages; index += AT_ONCE) {
    const some = Array.from({ length: Math.min(AT_ONCE, pages - index) }, (_, number) => index + number);
    const answers = await Promise.all(some.map((each) => askPage(groupId, isAdmin, each, signal)));
    items.push(...answers.flatMap((each) => each.items));
  }
  return { total: first.total, items, at: Date.now() };
}

/** Whether a filter of MQTT matches a topic. */
function matches(filter, topic) {
  const [wanted, levels] = [filter.split("/"), topic.split("/")];
  if (topic.startsWith("$") && /^[+#]$/.test(wanted[0])) return false;
  for (const [index, each] of wanted.entries()) {
    if (each === "#") return true;
    if (index >= levels.length || (each !== "+" && each !== levels[index])) return false;
  }
  return wanted.length === levels.length;
}

/** How many live subscriptions have each topic and each pattern. */
async function askFilters(groupId, signal) {
  const found = await ask("admin/listSubscription", { groupId }, signal);
  const topics = new Map();
  const patterns = new Map();
  for (const { topicName } of Object.values(found).flatMap((each) => Object.values(each))) {
    for (const filter of topicName.split(",")) {
      const counts = /[+#]/.test(filter) ? patterns : topics;
      counts.set(filter, (counts.get(filter) ?? 0) + 1);
    }
  }
  return { topics, patterns: [...patterns] };
}

/** How many live subscriptions match a topic. */
function countOf({ topics, patterns }, topic) {
  return patterns.reduce((sum, [filter, count]) => sum + (matches(filter, topic) ? count : 0), topics.get(topic) ?? 0);
}

/** How many events a second came to each topic between the last two looks, by its name. */
function useRates(data) {
  const [seen, setSeen] = useState({ data: undefined, rates: new Map() });
  useEffect(() => {
    if (!data) return;
    setSeen((before) => {
      const seconds = before.data ? (data.at - before.data.at) / 1000 : 0;
      if (!seconds) return { data, rates: before.rates };
      const counts = new Map(before.data.items.map((each) => [each.topicName, each.sequenceNumber]));
      const rates = data.items.map(({ topicName, sequenceNumber }) =>
        [topicName, Math.max(0, sequenceNumber - (counts.get(topicName) ?? sequenceNumber)) / seconds]);
      return { data, rates: new Map(rates) };
    });
  }, [data]);
  return seen.rates;
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

/** Rows in the order of a key: texts by their letters, what is not known last. */
function sorted(rows, { key, isDown }) {
  const ordered = [...rows].sort((one, other) => {
    const [left, right] = [one[key] ?? -1, other[key] ?? -1];
    return left < right ? -1 : left > right ? 1 : 0;
  });
  return isDown ? ordered.reverse() : ordered;
}

function columnsOf(isAdmin, isCounted) {
  return [
    { title: t("topics.name"), key: "topicName", cell: (row) =>
      html`<a class="name" href=${linkTo("topic", { name: row.topicName })}>${row.topicName}</a>` },
    ...(isAdmin ? [
      { title: t("topic.count"), key: "sequenceNumber", isNumber: true, cell: (row) => formatNumber(row.sequenceNumber) },
      { title: t("topics.bytes"), key: "bytes", isNumber: true, cell: (row) => (row.bytes === null ? "–" : formatBytes(row.bytes)) },
      { title: t("topics.rate"), key: "rate", isNumber: true, cell: (row) =>
        (row.rate === undefined ? "–" : formatNumber(row.rate, 1)) },
      { title: t("topics.last"), key: "lastTimestamp", cell: (row) =>
        (row.lastTimestamp === null ? "–" : html`<${Time} at=${row.lastTimestamp} />`) },
      { title: t("topics.subscribers"), key: isCounted ? "subscribers" : undefined, isNumber: true, cell: (row) =>
        (row.subscribers === undefined ? "…" : formatNumber(row.subscribers)) },
    ] : []),
    { title: t("topics.created"), key: "createdTimestamp", cell: (row) => html`<${Time} at=${row.createdTimestamp} />` },
  ];
}

export default function Topics({ group, user }) {
  const groupId = group;
  const isAdmin = may(user, group, "admin");
  const [isMany, setMany] = useState(false);
  // Many take a while: the first ones are shown meanwhile.
  const [first, setFirst] = useState(undefined);
  const topics = useCall((signal) => askTopics(groupId, isAdmin, signal, setFirst), [group, isAdmin], isMany ? 0 : EVERY);
  const shown = topics.data ?? first;
  const filters = useCall(isAdmin ? (signal) => askFilters(groupId, signal) : null, [group], isMany ? 0 : EVERY);
  useEffect(() => setMany((topics.data?.total ?? 0) > MOST_POLLED), [topics.data?.total]);
  const rates = useRates(isAdmin ? topics.data : undefined);
  const [search, setSearch] = useState("");
  const [sort, setSort] = useState({ key: "topicName", isDown: false });
  const wanted = search.trim();
  const items = shown?.items ?? [];
  const found = items.filter((each) => each.topicName.toLowerCase().includes(wanted.toLowerCase()))
    .map((each) => ({ ...each, rate: rates.get(each.topicName) }));
  const counted = (each) => ({ ...each, subscribers: filters.data && countOf(filters.data, each.topicName) });
  const isCounted = found.length * (filters.data?.patterns.length ?? Infinity) <= MOST_COMPARED;
  const isFirst = sort.key === "subscribers" && isCounted;
  const rows = sorted(isFirst ? found.map(counted) : found, sort).slice(0, SHOWN).map(counted);
  const go = (event) => {
    event.preventDefault();
    if (wanted) location.hash = linkTo("topic", { name: wanted });
  };
  const refresh = isMany && html`<button type="button" onClick=${topics.reload}>${t("topics.refresh")}</button>`;
  return html`
    ${may(user, group, "open")
      && html`<${Section} title=${t("topics.openTitle")}><${OpenForm} groupId=${groupId} onOpened=${topics.reload} /><//>`}
    <${Section} title=${t("topics.openTopics")} actions=${refresh}>
      <form class="row" role="search" onSubmit=${go}>
        <label>${t("topics.search")}
          <input type="search" value=${search} autocapitalize="none" spellcheck=${false}
            aria-describedby="search-hint" onInput=${(event) => setSearch(event.target.value)} />
        </label>
        <button disabled=${!wanted}>${t("topics.show")}</button>
        <p id="search-hint" class="hint">${t("topics.searchHint")}</p>
      </form>
      <${ErrorText} error=${topics.error} />
      ${shown && html`
        <p class="quiet" role="status">${shown.total > items.length
          ? t("topics.foundSome", { found: formatNumber(found.length), loaded: formatNumber(items.length),
              total: formatNumber(shown.total) })
          : t("topics.found", { found: formatNumber(found.length), total: formatNumber(items.length) })}</p>
        <${Table} label=${t("topics.openTopics")} rows=${rows} keyOf=${(row) => row.topicName} sort=${sort} onSort=${setSort}
          empty=${t("topics.none")} hasMore=${found.length > rows.length} columns=${columnsOf(isAdmin, isCounted)} />`}
    <//>`;
}

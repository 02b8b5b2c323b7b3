// Those who get events: webhooks, durable subscriptions and where they stand, and live subscriptions.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/preact-htm.js";
import { act, ask, operate } from "./api.js";
import { ActionButton, announce, Badge, ErrorText, EventLink, linkTo, may, Section, Short, Table, Time, Told, useCall } from "./parts.js";
import { formatBytes, formatMilliseconds, formatNumber, formatSeconds, parseUtc, t } from "./texts.js";

const EVERY = 10000;
const MOST = 1000;
// Further connections and live subscriptions are found by a search.
const SHOWN = 200;

/** Have a call made that changes something, and the list read again. */
function useActing(reload) {
  const [error, setError] = useState(null);
  const run = async (path, parameters, done) => {
    setError(null);
    try {
      await act(path, parameters);
      announce(done);
    } catch (failure) {
      setError(failure);
    }
    reload();
  };
  return [error, run];
}

function WebhookState({ webhook }) {
  if (webhook.paused) return html`<${Badge} kind="warn">${t("webhook.paused")}<//>`;
  if (webhook.failures) {
    return html`<${Badge} kind="bad">${t("webhook.failing", { count: formatNumber(webhook.failures) })}<//>`;
  }
  return html`<${Badge} kind="good">${t("webhook.well")}<//>`;
}

function WebhookActions({ webhook, run }) {
  const { subscriptionId, oldestEventId: eventId, receiver } = webhook;
  const button = (call, parameters, confirmation, kind) => html`<${ActionButton}
    kind=${kind} label=${`${t(`webhook.${call}`)} ${receiver}`}
    run=${async () => {
      if (confirmation && !confirm(confirmation)) return;
      await run(`rest/${call}`, { subscriptionId, ...parameters }, t("done"));
    }}>${t(`webhook.${call}`)}<//>`;
  return html`<span class="buttons">
    ${webhook.paused ? button("resumeWebhook") : button("pauseWebhook")}
    ${webhook.failures > 0 && !webhook.paused && button("retryWebhook")}
    ${eventId && button("skipEvent", { eventId }, t("webhook.skipConfirm", { eventId }), "danger")}
    ${button("unSubscribe", {}, t("webhook.deleteConfirm", { receiver }), "danger")}
  </span>`;
}

/** What came of the last requests, the newest first, and when the next one is made. */
function Answers({ webhook }) {
  const { answers, lastError, lastErrorTimestamp, nextAttemptTimestamp: next } = webhook;
  const shown = answers.length || !lastError ? answers : [{ timestamp: lastErrorTimestamp, error: lastError, milliseconds: null }];
  if (!shown.length) return "–";
  return html`<ol class="plain-list">${shown.toReversed().map(({ timestamp, error, milliseconds }) => html`<li>
      ${error ? html`<${Told} text=${error} />` : t("webhook.acknowledged")}${milliseconds !== null && html` <span class="quiet">${formatMilliseconds(milliseconds / 1000)}</span>`}
      <br /><span class="quiet"><${Time} at=${timestamp} /></span></li>`)}</ol>
    ${next !== null && html`<p>${t("webhook.next")} <${Time} at=${next} /></p>`}`;
}

/** The height before that of the block of an event. */
const heightBefore = (eventId) => Number(eventId.split("-").at(-1)) - 1;

/** The oldest event that a webhook waits to deliver, and where it stands. */
function Waiting({ webhook, head }) {
  const { oldestEventId: eventId, oldestEventAge: age } = webhook;
  if (!eventId) return t("overview.nothingWaits");
  return html`<${Place} height=${heightBefore(eventId)} head=${head} isWaiting />
    <br />${formatSeconds(age)}<br /><${EventLink} id=${eventId} />`;
}

function Webhooks({ groupId, head }) {
  const webhooks = useCall((signal) => ask("rest/listWebhooks", { groupId, limit: MOST }, signal), [groupId], EVERY);
  const [error, run] = useActing(webhooks.reload);
  return html`<${Section} title=${t("overview.webhooks")}>
    <${ErrorText} error=${webhooks.error ?? error} />
    ${webhooks.data && html`<${Table} label=${t("overview.webhooks")} rows=${webhooks.data.webhooks}
      keyOf=${(row) => row.subscriptionId} empty=${t("webhook.none")} hasMore=${Boolean(webhooks.data.next)} columns=${[
        { title: t("webhook.receiver"), cell: (row) => html`${row.receiver}<br /><${Short} text=${row.subscriptionId} />` },
        { title: t("page.topics"), cell: (row) => row.topics.join(", ") },
        { title: t("node.state"), cell: (row) => html`<${WebhookState} webhook=${row} />` },
        { title: t("webhook.answers"), cell: (row) => html`<${Answers} webhook=${row} />` },
        { title: t("webhook.deadLetters"), cell: (row) => row.deadLetter
          ? html`<a class="name" href=${linkTo("topic", { name: row.deadLetter })}>${row.deadLetter}</a>` : "–" },
        { title: t("overview.oldest"), cell: (row) => html`<${Waiting} webhook=${row} head=${head} />` },
        { title: t("actions"), cell: (row) => html`<${WebhookActions} webhook=${row} run=${run} />` },
      ]} />`}
  <//>`;
}

/** The form that says where a durable subscription resumes. */
function ResetDialog({ subscription, onClose, onReset }) {
  const dialog = useRef(null);
  const [kind, setKind] = useState("OFFSET_LAST");
  useEffect(() => dialog.current.showModal(), []);
  const submit = (event) => {
    event.preventDefault();
    const value = event.target.elements.value?.value.trim();
    onReset({ OFFSET_TIME: `OFFSET_TIME:${new Date(value).getTime()}`, id: value }[kind] ?? kind);
    dialog.current.close();
  };
  return html`<dialog ref=${dialog} onClose=${onClose} aria-labelledby="reset-title">
    <form onSubmit=${submit}>
      <h2 id="reset-title">${t("durable.resetTitle", { id: subscription.id })}</h2>
      <label>${t("durable.where")}
        <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
          ${["OFFSET_LAST", "OFFSET_FIRST", "OFFSET_TIME"].map((each) =>
            html`<option value=${each}>${t(`durable.${each}`)}</option>`)}
          <option value="id">${t("topic.from.id")}</option>
        </select>
      </label>
      ${kind === "OFFSET_TIME" && html`<label>${t("topic.time")}<input name="value" type="datetime-local" step="1" required /></label>`}
      ${kind === "id" && html`<label>${t("topic.id")}<input name="value" required spellcheck=${false} /></label>`}
      <span class="buttons">
        <button class="main">${t("durable.reset")}</button>
        <button type="button" onClick=${() => dialog.current.close()}>${t("cancel")}</button>
      </span>
    </form>
  </dialog>`;
}

/**
 * Where a subscription stands between the first block and the latest one.
 *
 * @param head the height of the latest; undefined where the account may not know it.
 * @param isWaiting whether an event of the next block waits; there may be none for it in the others.
 */
function Place({ height, head, isWaiting = false }) {
  if (height === null) return "–";
  if (head === undefined) return formatNumber(height);
  const behind = Math.max(0, head - height);
  const name = !behind ? "durable.atHead" : isWaiting ? "durable.behind" : "durable.upTo";
  const text = t(name, { height: formatNumber(height), head: formatNumber(head), behind: formatNumber(behind) });
  return html`<meter min="0" max=${Math.max(1, head)} value=${Math.min(height, head)} aria-label=${text}></meter>
    <br /><span class="quiet">${text}</span>`;
}

async function askDurable(groupId, signal) {
  const asked = ["STOMP", "MQTT"].map((interfaceType) =>
    ask("rest/listDurableSubscriptions", { groupId, interfaceType, limit: MOST }, signal));
  const pages = await Promise.all(asked);
  return { rows: pages.flatMap((page) => page.subscriptions), hasMore: pages.some((page) => page.next) };
}

function Durable({ groupId, head }) {
  const durable = useCall((signal) => askDurable(groupId, signal), [groupId], EVERY);
  const [error, run] = useActing(durable.reload);
  const [chosen, setChosen] = useState(null);
  const remove = (row) => confirm(t("durable.deleteConfirm", { id: row.id }))
    && run("rest/deleteDurableSubscription", keyOf(row), t("done"));
  const keyOf = ({ id, interfaceType }) => ({ groupId, interfaceType, id });
  return html`<${Section} title=${t("durable.title")}>
    <${ErrorText} error=${durable.error ?? error} />
    ${chosen && html`<${ResetDialog} subscription=${chosen} onClose=${() => setChosen(null)}
      onReset=${(offset) => run("rest/resetDurableSubscription", { ...keyOf(chosen), offset }, t("done"))} />`}
    ${durable.data && html`<${Table} label=${t("durable.title")} ...${durable.data}
      keyOf=${(row) => `${row.interfaceType} ${row.id}`} empty=${t("durable.none")} columns=${[
        { title: t("durable.id"), cell: (row) => html`<span class="name">${row.id}</span>` },
        { title: t("live.protocol"), cell: (row) => row.interfaceType },
        { title: t("durable.owner"), cell: (row) => row.owner },
        { title: t("node.state"), cell: (row) => row.live ? html`<${Badge} kind="good">${t("durable.live")}<//>`
          : html`<${Badge} kind="warn">${t("durable.away")}<//><br /><span class="quiet"><${Time} at=${parseUtc(row.usedTimeStamp)} /></span>` },
        { title: t("durable.place"), cell: (row) => html`<${Place} height=${row.blockNumber} head=${head} />` },
        { title: t("actions"), cell: (row) => row.live ? html`<span class="quiet">${t("durable.inUse")}</span>`
          : html`<span class="buttons">
              <button type="button" aria-label=${`${t("durable.reset")} ${row.id}`} onClick=${() => setChosen(row)}>${t("durable.reset")}</button>
              <${ActionButton} kind="danger" label=${`${t("durable.delete")} ${row.id}`} run=${() => remove(row)}>${t("durable.delete")}<//>
            </span>` },
      ]} />`}
  <//>`;
}

function Live({ live, rows }) {
  return html`<${Section} title=${t("overview.live")}>
    <${ErrorText} error=${live.error} />
    ${live.data && html`<${Table} label=${t("overview.live")} rows=${rows.slice(0, SHOWN)}
      keyOf=${(row) => `${row.interfaceType} ${row.subscribeId}`} empty=${t("live.none")} hasMore=${rows.length > SHOWN} columns=${[
        { title: t("live.protocol"), cell: (row) => row.interfaceType },
        { title: t("page.topics"), cell: (row) => html`<span class="name">${row.topicName}</span>` },
        { title: t("live.remote"), cell: (row) => row.remoteIp },
        { title: t("live.delivered"), isNumber: true, cell: (row) => formatNumber(row.notifiedEventCount) },
        { title: t("live.pending"), isNumber: true, cell: (row) => formatNumber(row.notifyingEventCount) },
        { title: t("live.since"), cell: (row) => html`<${Time} at=${parseUtc(row.createTimeStamp)} />` },
      ]} />`}
  <//>`;
}

/**
 * How many of something came a second between the last two looks, by its key; undefined where that is not known.
 *
 * @param counts how many there have been; another map at each look.
 */
function useRates(counts) {
  const before = useRef({ at: 0, counts: new Map() });
  return useMemo(() => {
    const { at, counts: earlier } = before.current;
    const now = Date.now();
    before.current = { at: now, counts };
    const changes = [...counts].map(([key, count]) => [key, count - earlier.get(key)]).filter(([, change]) => change >= 0);
    return new Map(changes.map(([key, change]) => [key, (change * 1000) / (now - at)]));
  }, [counts]);
}

/** What each connection has subscribed to, by its address: topics, how many events were delivered, and how many are not acknowledged yet. */
function subscribedOf(rows) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row.remoteIp)) found.set(row.remoteIp, { topics: [], delivered: 0, pending: 0 });
    const each = found.get(row.remoteIp);
    each.topics.push(row.topicName);
    // Numbers as texts, as the published interface has them.
    each.delivered += Number(row.notifiedEventCount);
    each.pending += Number(row.notifyingEventCount);
  }
  return found;
}

function Topics({ topics }) {
  const shown = topics.slice(0, 3).join(", ");
  return html`<span class="name" title=${topics.slice(0, 100).join("\n")}>${shown}${topics.length > 3 && ` … (${formatNumber(topics.length)})`}</span>`;
}

/** How many events a client has sent and was delivered, and how many a second. */
function Events({ sent, sentRate, delivered, deliveredRate }) {
  const withRate = (text, rate) => (rate === undefined ? text : t("clients.rate", { text, rate: formatNumber(rate, 1) }));
  return html`${withRate(t("clients.sent", { count: formatNumber(sent) }), sentRate)}
    ${delivered !== undefined && html`<br />${withRate(t("clients.delivered", { count: formatNumber(delivered) }), deliveredRate)}`}`;
}

/** How many events the client has not acknowledged, and how many may wait for that. */
function Pending({ row, pending }) {
  if (pending === undefined) return "–";
  return row.window ? t("clients.pendingOf", { count: formatNumber(pending), window: formatNumber(row.window) }) : formatNumber(pending);
}

/** Who is connected to this broker, for operators. */
function Connections({ subscribed }) {
  const [search, setSearch] = useState("");
  const given = { search: search.trim(), limit: SHOWN };
  const connections = useCall((signal) => operate("connections/list", given, signal), [given.search], EVERY);
  const [error, setError] = useState(null);
  const close = async ({ protocol, remote, account }) => {
    if (!confirm(t("clients.closeConfirm", { remote, account: account || t("accounts.anonymous") }))) return;
    setError(null);
    try {
      await operate("connections/close", { protocol, remote });
      announce(t("done"));
    } catch (failure) {
      setError(failure);
    }
    connections.reload();
  };
  const { data } = connections;
  const keyOf = (row) => `${row.protocol} ${row.remote}`;
  const sentRates = useRates(useMemo(() => new Map((data?.connections ?? []).map((row) => [keyOf(row), row.sentEvents])), [data]));
  const deliveredRates = useRates(useMemo(() => new Map([...subscribed].map(([remote, each]) => [remote, each.delivered])), [subscribed]));
  return html`<${Section} title=${t("clients.title")}>
    <form class="row" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>${t("clients.search")}
        <input type="search" value=${search} spellcheck=${false} onInput=${(event) => setSearch(event.target.value)} /></label>
    </form>
    <${ErrorText} error=${connections.error ?? error} />
    ${data && html`
      <p class="quiet" role="status">${t("clients.found", { count: formatNumber(data.total) })}</p>
      <${Table} label=${t("clients.title")} rows=${data.connections} keyOf=${keyOf}
        empty=${t("durable.none")} hasMore=${data.total > data.connections.length} columns=${[
          { title: t("live.protocol"), cell: (row) => row.protocol.toUpperCase() },
          { title: t("live.remote"), cell: (row) => html`<code>${row.remote}</code>${row.clientId &&
            html`<br /><span class="name">${row.clientId}</span>`}` },
          { title: t("login.name"), cell: (row) => row.account || html`<span class="quiet">${t("accounts.anonymous")}</span>` },
          { title: t("live.since"), cell: (row) => html`<${Time} at=${row.connectedTimestamp} />` },
          { title: t("page.topics"), cell: (row) => subscribed.has(row.remote)
            ? html`<${Topics} ...${subscribed.get(row.remote)} />` : "–" },
          { title: t("clients.events"), cell: (row) => html`<${Events} sent=${row.sentEvents} sentRate=${sentRates.get(keyOf(row))}
            delivered=${subscribed.get(row.remote)?.delivered} deliveredRate=${deliveredRates.get(row.remote)} />` },
          { title: t("clients.window"), isNumber: true, cell: (row) => html`<${Pending} row=${row} pending=${subscribed.get(row.remote)?.pending} />` },
          { title: t("clients.unread"), isNumber: true, cell: (row) => formatBytes(row.unreadBytes) },
          { title: t("actions"), cell: (row) => html`<${ActionButton} label=${`${t("clients.close")} ${row.remote}`}
            run=${() => close(row)}>${t("clients.close")}<//>` },
        ]} />`}
  <//>`;
}

export default function Subscriptions({ group, user }) {
  const general = useCall(may(user, group, "admin")
    ? (signal) => ask("admin/group/general", { groupId: group }, signal) : null, [group], EVERY);
  // Undefined where the account may not know it.
  const head = general.data && Number(general.data.latestBlock);
  const live = useCall((signal) => ask("admin/listSubscription", { groupId: group }, signal), [group], EVERY);
  const rows = useMemo(() => Object.values(live.data ?? {}).flatMap((each) => Object.values(each)), [live.data]);
  const subscribed = useMemo(() => subscribedOf(rows), [rows]);
  return html`
    ${may(user, group, "operate") && html`<${Connections} subscribed=${subscribed} />`}
    <${Webhooks} groupId=${group} head=${head} />
    <${Durable} groupId=${group} head=${head} />
    <${Live} live=${live} rows=${rows} />`;
}

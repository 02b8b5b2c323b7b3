// A topic, or all topics of a pattern: its events by time or id, the newest as they come, and publishing.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { act, ask, isGranted, saw, TRANSIENT, urlOf } from "./api.js";
import { close } from "./confidential.js";
import { FormatField } from "./content.js";
import { EventList } from "./eventlist.js";
import { ActionButton, announce, Badge, BlockLink, ErrorText, EventLink, Facts, linkTo, Section, Table, Time, useCall } from "./parts.js";
import { matches, placeOf, readReceipt } from "./receipts.mjs";
import { formatNumber, t } from "./texts.js";

const PAGE = 50;
const EVERY = 5000;
// How many events are kept of those that come.
const MOST_LIVE = 200;
// How many receipts are read, the newest first.
const MOST_RECEIPTS = 200;
const EXPECTED = "svcbroker/recipients/1";

const bytesOf = (base64) => Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));

function isPattern(topic) {
  return /(^|\/)(\+|#)(\/|$)/.test(topic);
}

/** Where reading begins, as a call takes it: from and whether it goes backwards. */
function startOf(kind, value) {
  if (kind === "newest") return { reverse: true };
  if (kind === "oldest") return {};
  if (kind === "time") return { from: `OFFSET_TIME:${new Date(value).getTime()}` };
  return { from: value.trim() };
}

/** The events of the log, page after page. */
function History({ topic, groupId, format, isAlone, hasEvents }) {
  const [kind, setKind] = useState("newest");
  const [state, setState] = useState({ events: [], next: null, atEnd: false, error: null });
  const start = useRef({});
  const abortion = useRef(null);
  const read = async (given, before) => {
    abortion.current?.abort();
    const current = (abortion.current = new AbortController());
    try {
      const page = await ask(
        "rest/events", { topic, groupId, limit: PAGE, erased: "tombstone", ...given }, current.signal);
      const events = [...before, ...page.events];
      setState({ events, next: page.next, atEnd: page.atEnd, error: null });
      announce(t("topic.read", { count: formatNumber(events.length) }));
    } catch (error) {
      // What was read stays, and reading on can be tried again.
      const next = before.length ? given.from : null;
      if (!current.signal.aborted) setState({ events: before, next, atEnd: false, error });
    }
  };
  const begin = (given) => {
    start.current = given;
    return read(given, []);
  };
  useEffect(() => {
    begin({ reverse: true });
    return () => abortion.current.abort();
  }, [topic, groupId]);
  const isEmpty = !state.error && state.next !== null && !state.events.length;
  // The first event may come when the list was read already.
  useEffect(() => {
    if (hasEvents && isEmpty) begin(start.current);
  }, [hasEvents, isEmpty]);
  const submit = (event) => {
    event.preventDefault();
    begin(startOf(kind, event.target.elements.value?.value));
  };
  const more = () => read({ ...start.current, from: state.next }, state.events);
  return html`<${Section} title=${t("topic.events")}>
    <form class="row" onSubmit=${submit}>
      <label>${t("topic.from")}
        <select name="kind" value=${kind} onChange=${(event) => setKind(event.target.value)}>
          ${["newest", "oldest", "time", "id"].map((each) =>
            html`<option value=${each}>${t(`topic.from.${each}`)}</option>`)}
        </select>
      </label>
      ${kind === "time" && html`<label>${t("topic.time")}
        <input name="value" type="datetime-local" step="1" required /></label>`}
      ${kind === "id" && html`<label>${t("topic.id")}
        <input name="value" required autocapitalize="none" spellcheck=${false} /></label>`}
      <button class="main">${t("topic.readButton")}</button>
    </form>
    <${ErrorText} error=${state.error} />
    ${isEmpty && html`<p class="quiet">${t("topic.noEvents")}</p>`}
    <${EventList} events=${state.events} groupId=${groupId} format=${format} isAlone=${isAlone} label=${t("topic.events")} />
    ${state.next !== null && !state.atEnd && html`<button type="button" onClick=${more}>${t("topic.more")}</button>`}
  <//>`;
}

/** The events that are published from now on. */
function Live({ topic, groupId, format, isAlone }) {
  const [isOn, setOn] = useState(false);
  const [isConnected, setConnected] = useState(false);
  const [events, setEvents] = useState([]);
  const [count, setCount] = useState(0);
  // What is shown while it is paused, and how many had come then.
  const [paused, setPaused] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!isOn) return undefined;
    setError(null);
    const stream = new EventSource(urlOf("rest/follow", { topic, groupId, erased: "tombstone" }));
    stream.addEventListener("open", () => setConnected(true));
    stream.addEventListener("event", ({ data }) => {
      const event = JSON.parse(data);
      saw(groupId, event.eventId);
      setEvents((before) => [event, ...before].slice(0, MOST_LIVE));
      setCount((before) => before + 1);
    });
    stream.addEventListener("end", ({ data }) => {
      const told = JSON.parse(data);
      // Otherwise the browser connects again by itself: the broker may take it then.
      if (TRANSIENT.has(told.code)) return;
      setError(told);
      setOn(false);
    });
    stream.addEventListener("error", () => {
      setConnected(false);
      // Otherwise the browser connects again by itself, and resumes.
      if (stream.readyState === EventSource.CLOSED) {
        setOn(false);
        // An EventSource does not tell why. Reading is refused for the same reason.
        ask("rest/events", { topic, groupId, limit: 1 }).catch(setError);
      }
    });
    return () => {
      stream.close();
      setConnected(false);
    };
  }, [isOn, topic, groupId]);
  const toggle = () => {
    announce(isOn ? t("live.stopped") : t("live.started"));
    setPaused(null);
    setOn(!isOn);
  };
  const actions = html`<span class="buttons">
    ${isOn && html`<button type="button" onClick=${() => setPaused(paused ? null : { events, count })}>
      ${t(paused ? "live.resume" : "live.pause")}</button>`}
    <button type="button" class=${isOn ? "" : "main"} onClick=${toggle}>${isOn ? t("live.stop") : t("live.start")}</button>
  </span>`;
  return html`<${Section} title=${t("live.title")} actions=${actions}>
    <${ErrorText} error=${error} />
    <p class="quiet">
      ${isOn && (isConnected
        ? html`<${Badge} kind="good">${t("live.connected")}<//> `
        : html`<${Badge} kind="warn">${t("live.connecting")}<//> `)}
      ${paused && html`<${Badge} kind="warn">${t("live.paused", { count: formatNumber(count - paused.count) })}<//> `}
      ${count > 0 ? t("live.count", { count: formatNumber(count) }) : t(isOn ? "live.waiting" : "live.hint")}
    </p>
    <${EventList} events=${paused ? paused.events : events} groupId=${groupId} format=${format} isAlone=${isAlone}
      label=${t("live.title")} />
  <//>`;
}

/** Extensions from lines of name=value. All names begin with svc-. */
function readExtensions(text) {
  const lines = text.split("\n").map((each) => each.trim()).filter(Boolean);
  return Object.fromEntries(lines.map((line) => {
    const [name, ...rest] = line.split("=");
    return [`svc-${name.trim().replace(/^svc-/, "")}`, rest.join("=").trim()];
  }));
}

function PublishForm({ topic, groupId, onPublished }) {
  const [error, setError] = useState(null);
  const [result, setResult] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const { content, extensions, recipients } = event.target.elements;
    setError(null);
    setBusy(true);
    try {
      const answer = await act("rest/publish", {
        ...readExtensions(extensions.value), topic, groupId,
        ...(recipients.value.trim() ? await close(content.value, recipients.value) : { content: content.value }),
      });
      setResult(answer);
      if (answer.status === "SUCCESS") {
        content.value = "";
        onPublished();
      }
    } catch (failure) {
      setResult(null);
      setError(failure);
    }
    setBusy(false);
  };
  return html`<form onSubmit=${submit}>
    <label>${t("publish.content")}<textarea class="code" name="content" rows="4" required spellcheck=${false}></textarea></label>
    <details>
      <summary>${t("publish.extensions")}</summary>
      <label>${t("publish.extensionsLabel")}
        <textarea class="code" name="extensions" rows="2" spellcheck=${false} placeholder="svc-name=value"></textarea></label>
    </details>
    <details>
      <summary>${t("closed.close")}</summary>
      <label>${t("closed.recipients")}
        <textarea class="code" name="recipients" rows="2" spellcheck=${false} placeholder="age1…"></textarea></label>
      <p class="hint">${t("closed.closeHint")}</p>
    </details>
    <button class="main" disabled=${isBusy}>${t("publish.submit")}</button>
    <div role="status">
      ${result && (result.status === "SUCCESS"
        ? html`<p><${Badge} kind="good">${t("publish.final")}<//> <${EventLink} id=${result.eventId} /></p>`
        : html`<p><${Badge} kind="warn">${result.status}<//> ${t("publish.unknown")}</p>`)}
    </div>
    <${ErrorText} error=${error} />
  </form>`;
}

/** The state of a topic by the chain. */
function factsOf(state, user, group) {
  return [
    [t("topic.count"), formatNumber(state.sequenceNumber)],
    [t("topic.block"), html`<${BlockLink} height=${state.blockNumber} user=${user} group=${group} />`],
    [t("topics.created"), html`<${Time} at=${state.createdTimestamp} />`],
    [t("topic.address"), html`<code>${state.topicAddress}</code>`],
    state.authors && [t("topic.authors"), state.authors.map((key) => html`<code class="key">${key}</code>`)],
  ];
}

/** The newest receipts for a topic, and who is expected and has signed none of them. */
async function askReceipts(groupId, topic, signal) {
  const { chain } = await ask("rest/genesis", { groupId }, signal);
  const newest = new Map();
  const page = await ask("rest/events", { topic: "receipts/#", groupId, limit: MOST_RECEIPTS, reverse: true }, signal);
  for (const { content, eventId, topic: recipient, author, signedAt } of page.events) {
    try {
      const event = { content: new TextDecoder("utf-8", { fatal: true }).decode(bytesOf(content)), author };
      if (author === undefined) continue;
      const receipt = await readReceipt({ event, chain, block: placeOf(eventId) });
      const before = newest.get(`${recipient} ${author}`);
      if (!matches(receipt.topic, topic) || (before && before.receipt.topic === topic)) continue;
      if (!before || receipt.topic === topic) {
        newest.set(`${recipient} ${author}`, { recipient, author, signedAt, eventId, receipt });
      }
    } catch {
      continue; // it is no receipt that can be believed
    }
  }
  return { receipts: [...newest.values()], silent: await askSilent(groupId, topic, newest, chain, signal) };
}

/** The recipients that are expected and have signed nothing. */
async function askSilent(groupId, topic, newest, chain, signal) {
  const signed = new Set([...newest.values()].map(({ recipient }) => recipient));
  try {
    const page = await ask("rest/events", { topic: `recipients/${topic}`, groupId, limit: 1, reverse: true }, signal);
    const said = page.events.length ? JSON.parse(new TextDecoder().decode(bytesOf(page.events[0].content))) : {};
    if (said.format !== EXPECTED || said.chain !== chain || said.topic !== topic) return [];
    return said.recipients.map((name) => `receipts/${name}`).filter((each) => !signed.has(each));
  } catch {
    return []; // nobody is expected
  }
}

/** Who has signed to have received the topic, up to which event. */
function Receipts({ topic, groupId, count }) {
  const known = useCall((signal) => askReceipts(groupId, topic, signal), [topic, groupId]);
  const { receipts = [], silent = [] } = known.data ?? {};
  if (!receipts.length && !silent.length) return null;
  const rows = [...receipts, ...silent.map((recipient) => ({ recipient }))];
  const columns = [
    { title: t("receipts.recipient"), cell: ({ recipient }) => html`<code>${recipient}</code>` },
    { title: t("receipts.upTo"), cell: ({ receipt }) => receipt
      ? html`<${EventLink} id=${receipt.eventId} /> ${t(`receipts.${receipt.means}`)}` : t("receipts.nothing") },
    { title: t("receipts.signed"), cell: ({ signedAt }) => signedAt !== undefined && html`<${Time} at=${signedAt} />` },
    { title: t("receipts.behind"), isNumber: true, cell: ({ receipt }) => (receipt?.topic === topic
      ? formatNumber(Math.max(0, count - receipt.number)) : "") },
  ];
  return html`<${Section} title=${t("receipts.title")}>
    <${Table} label=${t("receipts.title")} columns=${columns} rows=${rows}
      keyOf=${({ recipient, author }) => `${recipient} ${author}`} empty="" />
    <p class="hint">${t("receipts.silence")} ${t("receipts.newest", { count: formatNumber(MOST_RECEIPTS) })}</p>
  <//>`;
}

/** What the user may do with a topic, of what this page can do. */
async function askGranted(groupId, topic, signal) {
  const actions = ["publish", "close"];
  const granted = await Promise.all(actions.map((each) => isGranted(groupId, each, topic, signal)));
  return Object.fromEntries(actions.map((each, index) => [each, granted[index]]));
}

/** The button that closes a topic, after a question. */
function CloseButton({ topic, groupId }) {
  const [error, setError] = useState(null);
  const close = async () => {
    if (!confirm(t("topics.closeConfirm", { topic }))) return;
    try {
      await act("rest/close", { topic, groupId });
      announce(t("topics.closed", { topic }));
      location.hash = linkTo("topics");
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${ActionButton} label=${t("topics.closeLabel", { topic })} run=${close}>${t("topics.close")}<//>
    <${ErrorText} error=${error} />`;
}

export default function Topic({ group, parameters, user }) {
  const topic = parameters.get("name") ?? "";
  const groupId = group;
  const isAlone = !isPattern(topic);
  const [format, setFormat] = useState("auto");
  const state = useCall(isAlone ? (signal) => ask("rest/state", { topic, groupId }, signal) : null, [topic, group], EVERY);
  const granted = useCall(state.data ? (signal) => askGranted(groupId, topic, signal) : null, [topic, group]);
  return html`
    <div class="title"><p class="name">${topic}</p><${FormatField} format=${format} onChange=${setFormat} /></div>
    ${isAlone && html`<${ErrorText} error=${state.error} />`}
    ${state.data && html`
      <div class="columns">
        <${Section} title=${t("topic.state")}
            actions=${granted.data?.close && html`<${CloseButton} topic=${topic} groupId=${groupId} />`}>
          <${Facts} rows=${factsOf(state.data, user, group)} />
        <//>
        ${granted.data?.publish && html`<${Section} title=${t("publish.title")}>
          <${PublishForm} key=${topic} topic=${topic} groupId=${groupId} onPublished=${state.reload} />
        <//>`}
      </div>`}
    ${state.data && html`<${Receipts} key=${`receipts ${topic}`} topic=${topic} groupId=${groupId}
      count=${state.data.sequenceNumber} />`}
    <p><a href=${linkTo("search", { topic })}>${t("search.here")}</a></p>
    <${Live} key=${`live ${topic}`} topic=${topic} groupId=${groupId} format=${format} isAlone=${isAlone} />
    <${History} key=${`events ${topic}`} topic=${topic} groupId=${groupId} format=${format} isAlone=${isAlone}
      hasEvents=${state.data?.sequenceNumber > 0} />`;
}

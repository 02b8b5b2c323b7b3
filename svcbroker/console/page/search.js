// The search for events: the log is walked backwards, a page at a time, and each event is looked at here.

import { html, useEffect, useRef, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { bytesOf, FormatField } from "./content.js";
import { DocumentSearch } from "./document.js";
import { EventList } from "./eventlist.js";
import { ErrorText, Section } from "./parts.js";
import { formatNumber, formatTime, t } from "./texts.js";

// How many events are asked for at a time, and looked at before the reader is asked whether to go on.
const PAGE = 100;
const MOST_LOOKED = 20000;
const MOST_FOUND = 100;

const NOTHING = { found: [], looked: 0, from: undefined, at: null, state: "none", error: null };

/** What decides whether an event is found, from the fields of the form. */
function testOf({ text, extension, author, since }) {
  const [name, ...value] = extension.split("=");
  const wanted = { name: name.trim(), value: value.join("=").trim().toLowerCase() };
  const letters = text.toLowerCase();
  return (event) => {
    if (since && event.timestamp < since) return false;
    if (author && !(event.author ?? "").startsWith(author.toLowerCase())) return false;
    if (wanted.name) {
      if (!Object.hasOwn(event.extensions, wanted.name)) return false;
      if (!event.extensions[wanted.name].toLowerCase().includes(wanted.value)) return false;
    }
    if (!letters) return true;
    if (event.erased) return false;
    return new TextDecoder().decode(bytesOf(event.content)).toLowerCase().includes(letters);
  };
}

/**
 * A walk through the log, that can be ended and gone on with.
 *
 * @returns what was found so far; start, which is given the fields of the form; goOn; cancel.
 */
function useWalk(groupId) {
  const [walk, setWalk] = useState(NOTHING);
  const abortion = useRef(null);
  const fields = useRef(null);
  useEffect(() => () => abortion.current?.abort(), []);
  const run = async (begin) => {
    abortion.current?.abort();
    const { signal } = (abortion.current = new AbortController());
    const { topic, tag, since, until } = fields.current;
    const test = testOf(fields.current);
    let now = { ...begin, state: "walking", error: null };
    const [looked, most] = [now.looked + MOST_LOOKED, now.found.length + MOST_FOUND];
    setWalk(now);
    try {
      while (now.state === "walking") {
        const from = now.from ?? (until ? `OFFSET_TIME:${until}` : undefined);
        const given = { topic, groupId, tag, from, limit: PAGE, reverse: true, erased: "tombstone" };
        const { events, next, atEnd } = await ask("rest/events", given, signal);
        const at = events.at(-1)?.timestamp ?? now.at;
        const found = [...now.found, ...events.filter(test)];
        now = { ...now, found, looked: now.looked + events.length, from: next, at };
        if (atEnd || (since && at !== null && at < since)) now.state = "ended";
        else if (now.looked >= looked || found.length >= most) now.state = "paused";
        setWalk(now);
      }
    } catch (error) {
      setWalk({ ...now, state: "paused", error: signal.aborted ? null : error });
    }
  };
  return {
    ...walk,
    start: (given) => {
      fields.current = given;
      return run(NOTHING);
    },
    goOn: () => run(walk),
    cancel: () => abortion.current?.abort(),
  };
}

const timeOf = (field) => (field.value ? new Date(field.value).getTime() : undefined);

function SearchForm({ topic, onSearch }) {
  const submit = (event) => {
    event.preventDefault();
    const { topic: pattern, text, tag, extension, author, since, until } = event.target.elements;
    onSearch({
      topic: pattern.value.trim(), text: text.value, tag: tag.value.trim(), extension: extension.value,
      author: author.value.trim(), since: timeOf(since), until: timeOf(until),
    });
  };
  const field = (name, more = {}) => html`<label>${t(`search.${name}`)}
    <input name=${name} autocapitalize="none" spellcheck=${false} ...${more} /></label>`;
  return html`<form role="search" onSubmit=${submit}>
    <div class="fields">
      ${field("topic", { defaultValue: topic, required: true })}
      ${field("text")}
      ${field("tag")}
      ${field("extension", { placeholder: "svc-name=value" })}
      ${field("author", { pattern: "[0-9a-fA-F]{1,64}" })}
      ${field("since", { type: "datetime-local", step: 1 })}
      ${field("until", { type: "datetime-local", step: 1 })}
    </div>
    <button class="main">${t("search.start")}</button>
  </form>`;
}

/** How far the walk has come, and whether it goes on. */
function Progress({ walk }) {
  if (walk.state === "none") return null;
  const values = { found: formatNumber(walk.found.length), looked: formatNumber(walk.looked),
    time: walk.at === null ? "–" : formatTime(walk.at) };
  const text = t(walk.state === "ended" ? "search.ended" : "search.soFar", values);
  return html`<p role=${walk.state === "walking" ? undefined : "status"}>${text}</p>
    ${walk.state === "walking" && html`<progress aria-label=${t("search.walking")}></progress>`}
    <div class="buttons">
      ${walk.state === "walking" && html`<button type="button" onClick=${walk.cancel}>${t("cancel")}</button>`}
      ${walk.state === "paused" && html`<button type="button" onClick=${walk.goOn}>${t("search.goOn")}</button>`}
    </div>`;
}

export default function Search({ group, parameters }) {
  const walk = useWalk(group);
  const [format, setFormat] = useState("auto");
  const [topic, setTopic] = useState("");
  const given = parameters.get("topic") ?? "#";
  const search = (fields) => {
    setTopic(fields.topic);
    return walk.start(fields);
  };
  return html`
    <${DocumentSearch} group=${group} />
    <${Section} title=${t("search.title")}>
      <p class="quiet">${t("search.about")}</p>
      <${SearchForm} key=${given} topic=${given} onSearch=${search} />
    <//>
    ${walk.state !== "none" && html`<${Section} title=${t("search.result")}
        actions=${html`<${FormatField} format=${format} onChange=${setFormat} />`}>
      <${Progress} walk=${walk} />
      <${ErrorText} error=${walk.error} />
      <${EventList} events=${walk.found} groupId=${group} format=${format} isAlone=${!/[+#]/.test(topic)} label=${t("search.result")} />
    <//>`}`;
}

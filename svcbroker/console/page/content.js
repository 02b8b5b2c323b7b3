// The contents of events, as people read them: JSON, text, or hexadecimal digits.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { Closed } from "./confidential.js";
import { Badge, useCall } from "./parts.js";
import { formatNumber, formatTime, t } from "./texts.js";

const FORMATS = ["auto", "json", "text", "hex"];
// How much of a content is shown at first, in characters.
const SHOWN = 2000;
// How long JSON in one line may be.
const LINE = 100;
// Of how many topics the latest erasure is kept.
const MOST_ERASURES = 200;
// White space of JSON, and the strings in which it is none.
const SPACE = /("(?:[^"\\]|\\.)*")|[ \t\n\r]+/g;
// What no text has.
const CONTROL = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/;

export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
}

export function base64Of(bytes) {
  let text = "";
  for (let start = 0; start < bytes.length; start += 8192) {
    text += String.fromCharCode(...bytes.subarray(start, start + 8192));
  }
  return btoa(text);
}

/** The text of UTF-8; null where it is none. */
function decode(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return null;
  }
}

/** Lines of 16 bytes: where they are, the bytes, and their characters of ASCII. */
function dump(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const part = [...bytes.subarray(start, start + 16)];
    const hex = part.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const characters = part.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "."));
    lines.push(`${start.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${characters.join("")}`);
  }
  return lines.join("\n");
}

/**
 * A text as indented JSON, or in a line if it is short; null where it is none, or where that would
 * show something else than it says: browsers round numbers, and keep one of members of one name.
 */
function asJson(text) {
  if (text === null) return null;
  try {
    const value = JSON.parse(text);
    const line = JSON.stringify(value);
    if (line !== text.replace(SPACE, "$1")) return null;
    return line.length <= LINE ? line : JSON.stringify(value, null, 2);
  } catch {
    return null;
  }
}

/** A content in a format; "auto" takes the first that it has. */
export function show(bytes, format) {
  if (format === "hex") return dump(bytes);
  const text = decode(bytes);
  if (format === "text") return text ?? new TextDecoder().decode(bytes);
  return asJson(text) ?? (text === null || (format === "auto" && CONTROL.test(text)) ? dump(bytes) : text);
}

// The pictures that browsers show without running anything in them, by how they begin.
const PICTURES = { "image/png": "iVBORw0KGgo", "image/jpeg": "/9j/", "image/gif": "R0lGOD", "image/webp": "UklGR" };

/** The media type that the publisher of an event has told: of a closed one, by CloudEvents, or by MQTT; undefined for none. */
export function typeOf({ extensions = {} }) {
  if (isClosed({ extensions }) && "svc-content-type" in extensions) return mediaType(extensions["svc-content-type"]);
  for (const [name, member] of [["svc-ce", "datacontenttype"], ["svc-mqtt", "t"]]) {
    try {
      const type = JSON.parse(extensions[name] ?? "{}")[member];
      if (typeof type === "string") return mediaType(type);
    } catch {
      // It is of somebody else.
    }
  }
  return undefined;
}

/** Whether the content of an event is closed to recipients. */
export function isClosed({ extensions = {} }) {
  return Object.hasOwn(extensions, "svc-encrypted");
}

/** The extensions of an event that is closed; undefined for another one. */
export const closedOf = (event) => (event && isClosed(event) ? event.extensions : undefined);

const mediaType = (text) => text.split(";")[0].trim().toLowerCase();

/** The picture in a content; null where its type says none, or it begins as none. */
function pictureOf(base64, type) {
  if (!Object.hasOwn(PICTURES, type ?? "") || !base64.startsWith(PICTURES[type])) return null;
  return `data:${type};base64,${base64}`;
}

// How many members of a value are shown at first.
const MEMBERS = 100;
const isNested = (value) => value !== null && typeof value === "object";

/** A value of JSON, of which the inner ones are folded; what is folded is not made. */
function Folded({ name, value, isOpen }) {
  const [isShown, setShown] = useState(isOpen);
  const [most, setMost] = useState(MEMBERS);
  const label = name !== undefined && html`<span class="json-name">${name}: </span>`;
  if (!isNested(value)) return html`${label}<span class="json-value">${JSON.stringify(value)}</span>`;
  const entries = Object.entries(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return html`${label}${open}${close}`;
  return html`<details open=${isShown} onToggle=${(event) => setShown(event.target.open)}>
    <summary>${label}${open}${t("event.members", { count: formatNumber(entries.length) })}${close}</summary>
    ${isShown && html`<ul>${entries.slice(0, most).map(([key, each]) => html`<li key=${key}>
      <${Folded} name=${Array.isArray(value) ? undefined : JSON.stringify(key)} value=${each} isOpen=${false} /></li>`)}
      ${entries.length > most && html`<li><button type="button" class="plain" onClick=${() => setMost(most + 10 * MEMBERS)}>${t("event.whole")}</button></li>`}
    </ul>`}
  </details>`;
}

/**
 * A content in a format.
 *
 * @param type the media type that its publisher has told, if any.
 * @param isFolded whether JSON is shown as a tree.
 * @param closed the extensions of its event, if it is closed to recipients. Then its bytes are shown where a format is chosen.
 */
export function Content({ base64, format, type, isFolded, closed }) {
  const [isWhole, setWhole] = useState(false);
  if (closed) {
    const shown = { format, type, isFolded };
    return html`<${Closed} key=${base64} bytes=${bytesOf(base64)} extensions=${closed}
      show=${(plain) => html`<${Content} base64=${base64Of(plain)} ...${shown} />`}
      fallback=${format !== "auto" && html`<${Content} base64=${base64} ...${shown} />`} />`;
  }
  const picture = format === "auto" ? pictureOf(base64, type) : null;
  if (picture) return html`<img class="picture" src=${picture} alt=${t("event.picture", { type })} />`;
  const bytes = bytesOf(base64);
  if (isFolded && (format === "auto" || format === "json")) {
    const text = decode(bytes);
    const value = asJson(text) === null ? null : JSON.parse(text);
    if (isNested(value)) return html`<div class="json"><${Folded} value=${value} isOpen=${true} /></div>`;
  }
  const shown = show(bytes, format);
  if (isWhole || shown.length <= SHOWN) return html`<pre>${shown}</pre>`;
  return html`<pre>${shown.slice(0, SHOWN)}…</pre>
    <button type="button" class="plain" onClick=${() => setWhole(true)}>${t("event.whole")}</button>`;
}

/** The choice of a format. */
export function FormatField({ format, onChange }) {
  return html`<label class="inline">${t("event.format")}
    <select value=${format} onChange=${(event) => onChange(event.target.value)}>
      ${FORMATS.map((each) => html`<option value=${each}>${t(`event.format.${each}`)}</option>`)}
    </select>
  </label>`;
}

const erasures = new Map();

async function findErasure(before, groupId, eventId) {
  const known = await before;
  const sequence = Number(eventId.split("-")[1]);
  if (known && known.first <= sequence && sequence <= known.last) return known;
  try {
    await ask("rest/getEvent", { groupId, eventId });
  } catch (error) {
    if (error.erasure) return error.erasure;
  }
  // The next one is not of the same erasure, as far as is known.
  return null;
}

/** When, by whom and why an event was erased; null where the broker does not tell. Those that were erased together are asked for once. */
export function erasureOf(groupId, topic, eventId) {
  const key = `${groupId} ${topic}`;
  const found = findErasure(erasures.get(key), groupId, eventId);
  if (erasures.size >= MOST_ERASURES && !erasures.has(key)) erasures.clear();
  erasures.set(key, found);
  return found;
}

/** What stands in the place of a content that was erased. */
export function Erased({ groupId, topic, eventId }) {
  const { data } = useCall(() => erasureOf(groupId, topic, eventId), [groupId, eventId]);
  const key = data?.account ? "event.erasedBy" : "event.erasedAt";
  return html`<p><${Badge} kind="warn">${t("event.erased")}<//>
    ${data && ` ${t(key, { time: formatTime(data.timestamp), account: data.account, reason: data.reason })}`}</p>`;
}

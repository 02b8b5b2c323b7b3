// The contents of events, as people read them: JSON, text, or hexadecimal digits.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { Badge, useCall } from "./parts.js";
import { formatTime, t } from "./texts.js";

export const FORMATS = ["auto", "json", "text", "hex"];
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

export function Content({ base64, format }) {
  const [isWhole, setWhole] = useState(false);
  const shown = show(bytesOf(base64), format);
  if (isWhole || shown.length <= SHOWN) return html`<pre>${shown}</pre>`;
  return html`<pre>${shown.slice(0, SHOWN)}…</pre>
    <button type="button" class="plain" onClick=${() => setWhole(true)}>${t("event.whole")}</button>`;
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

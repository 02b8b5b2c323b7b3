// The contents of events, as people read them: JSON, text, or hexadecimal digits.

import { html, useState } from "./vendor/preact-htm.js";
import { t } from "./texts.js";

export const FORMATS = ["auto", "json", "text", "hex"];
// How much of a content is shown at first, in characters.
const SHOWN = 2000;
// How long JSON in one line may be.
const LINE = 100;
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

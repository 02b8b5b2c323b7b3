// What the pages are made of: calls that keep themselves current, tables, and messages.

import { html, useCallback, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { NOT_AUTHORIZED } from "./api.js";
import { formatNumber, formatTime, language, t, tell } from "./texts.js";

// Milliseconds after which a call is made again that did not reach the broker.
const AGAIN = 2000;
// No page asks the same more often.
const SHORTEST = 1000;

/**
 * Have a call made, and again when what it depends on changes; while the page cannot be seen, as soon as it can.
 * One that does not reach the broker is no error: the frame tells of it, what is shown stays, and the call is made again.
 * One that is refused is not: each refusal is an event of the audit trail.
 *
 * @param call makes the call; it is given a signal that aborts it. Null for no call.
 * @param inputs what the call depends on.
 * @param every milliseconds after which it is made again while the page can be seen; 0 for never.
 * @returns data of the last success; the error of the last call, or null; reload makes it now.
 */
export function useCall(call, inputs, every = 0) {
  const [state, setState] = useState({ data: undefined, error: null });
  const [count, setCount] = useState(0);
  const current = useRef(inputs);
  // Before the browser paints: the call is made a frame earlier.
  useLayoutEffect(() => {
    const isOther = current.current.some((each, index) => each !== inputs[index]);
    current.current = inputs;
    if (isOther) setState({ data: undefined, error: null });
    if (!call) return undefined;
    const abortion = new AbortController();
    let timer;
    const run = async () => {
      if (document.hidden) {
        document.addEventListener("visibilitychange", run, { once: true, signal: abortion.signal });
        return;
      }
      try {
        const data = await call(abortion.signal);
        if (!abortion.signal.aborted) setState({ data, error: null });
      } catch (error) {
        if (abortion.signal.aborted) return;
        if (error.code === 0) {
          timer = setTimeout(run, AGAIN);
          return;
        }
        setState(({ data }) => ({ data, error }));
        if (error.code === NOT_AUTHORIZED) return;
      }
      if (every && !abortion.signal.aborted) timer = setTimeout(run, Math.max(SHORTEST, every));
    };
    run();
    return () => {
      clearTimeout(timer);
      abortion.abort();
    };
  }, [...inputs, count, every, call === null]);
  const reload = useCallback(() => setCount((before) => before + 1), []);
  return { ...state, reload };
}

/** Whether an action is granted to the user in a group, or for some topic of it. */
export function may(user, group, action) {
  return user.actions[group]?.includes(action) ?? false;
}

/** What a narrow window shows only once its button is pressed. A wide one shows it without a button. */
export function Fold({ label, kind = "", id, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`
    <button type="button" class=${`fold ${kind}`} aria-expanded=${String(isOpen)} aria-controls=${id}
      onClick=${() => setOpen(!isOpen)}>${label}</button>
    <div id=${id} class=${isOpen ? "unfolded" : "folded"}>${children}</div>`;
}

/** A text that the broker has written; what stays English is read as such. */
export function Told({ text }) {
  const told = tell(text);
  return told === text && language !== "en" ? html`<span lang="en">${text}</span>` : told;
}

/** Tell a screen reader of something that has changed elsewhere on the page. */
export function announce(text) {
  const region = document.getElementById("announcements");
  // The same text twice is told twice only if it changes in between.
  region.textContent = "";
  setTimeout(() => (region.textContent = text), 50);
}

/** Why a call has failed, for people. */
export function explain(error) {
  if (error.code === undefined) return error.message;
  const reason = tell(error.message);
  if (error.code === NOT_AUTHORIZED) return t("error.notGranted", { reason });
  if (error.code === 0) return t("error.noAnswer", { reason });
  return t("error.refused", { code: error.code, reason });
}

export function ErrorText({ error }) {
  return error && html`<p class="error" role="alert">${explain(error)}</p>`;
}

/** A heading with what belongs to it. */
export function Section({ title, actions, children }) {
  return html`<section class="panel">
    <div class="panel-head"><h2>${title}</h2>${actions}</div>
    ${children}
  </section>`;
}

/** Two columns share the width, and many scroll. */
function layoutOf(columns) {
  if (columns.length === 2) return "halves";
  return columns.length > 5 ? "wide" : "";
}

/** A title of a column; a button where rows can be sorted by it. */
function ColumnTitle({ column, sort, onSort }) {
  const { title, key, isNumber } = column;
  const isSorted = key !== undefined && sort?.key === key;
  const order = isSorted ? (sort.isDown ? "descending" : "ascending") : undefined;
  return html`<th scope="col" role="columnheader" class=${isNumber ? "number" : ""} aria-sort=${order}>
    ${key !== undefined && onSort
      ? html`<button type="button" class="plain sort" onClick=${() => onSort({ key, isDown: isSorted ? !sort.isDown : isNumber })}>
          ${title}${isSorted && html`<span aria-hidden="true"> ${sort.isDown ? "↓" : "↑"}</span>`}</button>`
      : title}
  </th>`;
}

/**
 * A table that scrolls in its frame where the window is narrow; on phones each row is a card.
 *
 * @param columns of each its title, what makes a cell of a row, whether it holds numbers, and the key that it is sorted by, if any.
 * @param keyOf what a row is told apart by.
 * @param hasMore whether there are more than these rows.
 * @param sort the key of the column that rows are sorted by, and whether the largest come first; onSort is told of another choice.
 */
export function Table({ label, columns, rows, keyOf, empty, hasMore = false, sort, onSort }) {
  if (!rows.length) return html`<p class="quiet">${empty}</p>`;
  // Roles of their own: a table that is laid out as cards has lost them.
  return html`<div class="frame" tabindex="0" role="region" aria-label=${label}>
    <table role="table" class=${layoutOf(columns)}>
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map((column) => html`<${ColumnTitle} column=${column} sort=${sort} onSort=${onSort} />`)}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map((row) => html`<tr role="row" key=${keyOf(row)}>
          ${columns.map(({ title, cell, isNumber }) => html`<td role="cell" data-title=${title} class=${isNumber ? "number" : ""}>
            <span>${cell(row)}</span></td>`)}
        </tr>`)}
      </tbody>
    </table>
  </div>
  ${hasMore && html`<p class="quiet">${t("table.more", { count: formatNumber(rows.length) })}</p>`}`;
}

/** A state as a word; its colour only repeats what the word says. */
export function Badge({ kind, children }) {
  return html`<span class=${`badge ${kind}`}>${children}</span>`;
}

export function Time({ at }) {
  return html`<time datetime=${new Date(at).toISOString()}>${formatTime(at)}</time>`;
}

/** A text that is too long for its place: shortened, with the whole of it for those who need it. */
export function Short({ text, length = 18 }) {
  if (text.length <= length) return html`<code>${text}</code>`;
  return html`<code title=${text}>${text.slice(0, length - 1)}…</code>`;
}

/** A button that does something, and cannot be pressed again before that is done. */
export function ActionButton({ run, kind = "", label, children }) {
  const [isBusy, setBusy] = useState(false);
  const press = async () => {
    setBusy(true);
    try {
      await run();
    } finally {
      setBusy(false);
    }
  };
  return html`<button
    type="button" class=${kind} disabled=${isBusy} aria-label=${label} onClick=${press}
  >${children}</button>`;
}

/** A column of facts: pairs of a name and a value; what is false is left out. */
export function Facts({ rows }) {
  return html`<dl class="facts">${rows.filter(Boolean).map(([name, value]) =>
    html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** The height of a block, which leads to its page where the user may see that. */
export function BlockLink({ height, user, group, text = formatNumber(height) }) {
  return may(user, group, "admin") ? html`<a href=${linkTo("block", { height })}>${text}</a>` : text;
}

/** The id of an event, which leads to its page. */
export function EventLink({ id }) {
  return html`<a href=${linkTo("event", { id })}><code>${id}</code></a>`;
}

/** Have the browser keep a file. */
export function saveFile(name, type, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

/** A word of a command as a shell takes it. */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The command that does the same, to be copied. */
export function Command({ words }) {
  const text = `svcbroker ${words.map(quoted).join(" ")}`;
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    announce(t("command.copied"));
  };
  return html`<div class="command"><code tabindex="0" aria-label=${t("command.label")} role="group">${text}</code>
    ${navigator.clipboard && html`<${ActionButton} label=${`${t("command.copy")}: ${text}`} run=${copy}>${t("command.copy")}<//>`}</div>`;
}

/** The height of a block in a text; undefined where that is none. */
export function readHeight(text) {
  // Longer numbers are not exact.
  return /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/** An address of a page of this console. */
export function linkTo(page, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return query ? `#${page}?${query}` : `#${page}`;
}

// What operators do: erase events, after a look at them, and the commands that keep a broker well.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { ask, operate } from "./api.js";
import { MOST } from "./basket.js";
import { closedOf, Content, typeOf } from "./content.js";
import { Holds, maySeeHolds } from "./holds.js";
import { dataDirOf, OperatorNotice, Reload, useConfiguration } from "./operator.js";
import { ActionButton, Badge, Command, ErrorText, EventLink, explain, linkTo, may, Section, Time, useCall } from "./parts.js";
import { formatNumber, formatTime, t, tellFindings } from "./texts.js";

// Milliseconds from one look at the jobs to the next, while one runs and while none does.
const OFTEN = 1000;
const SELDOM = 10000;

/** What there is of an event, before it is erased: the event, its erasure, or the reason why it cannot be shown. */
async function previewOf(groupId, eventId) {
  try {
    return { eventId, event: await ask("rest/getEvent", { groupId, eventId }) };
  } catch (error) {
    if (error.code === 0) throw error;
    return error.erasure ? { eventId, erasure: error.erasure } : { eventId, error };
  }
}

function Preview({ eventId, event, erasure, error }) {
  return html`<li class="event">
    <div class="event-head"><${EventLink} id=${eventId} />
      ${event && html`<a class="name" href=${linkTo("topic", { name: event.topic })}>${event.topic}</a>`}</div>
    ${event && html`<${Content} base64=${event.content} format="auto" type=${typeOf(event)} closed=${closedOf(event)} />`}
    ${erasure && html`<p><${Badge} kind="warn">${t("event.erased")}<//> ${formatTime(erasure.timestamp)}: ${erasure.reason}</p>`}
    ${error && html`<p class="error">${explain(error)}</p>`}
  </li>`;
}

/** The form that erases events: what goes is shown before. */
function Erasing({ groupId, given }) {
  const [ids, setIds] = useState(given);
  const [found, setFound] = useState(null);
  const [reason, setReason] = useState("");
  const [error, setError] = useState(null);
  const [done, setDone] = useState(null);
  const read = async (event) => {
    event.preventDefault();
    setError(null);
    setDone(null);
    const wanted = [...new Set(ids.split(/[\s,]+/).filter(Boolean))];
    try {
      if (wanted.length > MOST) throw new RangeError(t("erase.tooMany", { most: formatNumber(MOST) }));
      setFound(await Promise.all(wanted.map((each) => previewOf(groupId, each))));
    } catch (failure) {
      setFound(null);
      setError(failure);
    }
  };
  const there = (found ?? []).filter((each) => each.event).map((each) => each.eventId);
  const erase = async () => {
    if (!confirm(t("erase.confirm", { count: formatNumber(there.length) }))) return;
    setError(null);
    try {
      const count = await operate("erase", { groupId, reason: reason.trim(), events: there });
      setDone(t("erase.done", { count: formatNumber(count) }));
      setFound(null);
      setIds("");
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Section} title=${t("erase.title")}>
    <p class="quiet">${t("erase.about")}</p>
    <form onSubmit=${read}>
      <label>${t("erase.ids")}
        <textarea name="events" rows="3" required spellcheck=${false} value=${ids}
          onInput=${(event) => (setIds(event.target.value), setFound(null))}></textarea></label>
      <button class=${found ? "" : "main"}>${t("erase.preview")}</button>
    </form>
    ${error && (error instanceof RangeError ? html`<p class="error" role="alert">${error.message}</p>`
      : html`<${ErrorText} error=${error} />`)}
    <p role="status">${done}</p>
    ${found && html`
      <h3>${t("erase.what", { count: formatNumber(there.length) })}</h3>
      <ol class="events">${found.map((each) => html`<${Preview} key=${each.eventId} ...${each} />`)}</ol>
      ${there.length > 0 && html`
        <div class="fields"><label>${t("erase.reason")}
          <input name="reason" maxlength="1024" value=${reason} onInput=${(event) => setReason(event.target.value)} /></label></div>
        <p class="hint">${t("erase.reasonHint")}</p>
        ${reason.trim() && html`<${ActionButton} kind="danger" run=${erase}>${t("erase.now", { count: formatNumber(there.length) })}<//>
          <${Command} words=${["admin", "erase", ...(groupId === "1" ? [] : ["--group", groupId]), "--reason", reason.trim(), ...there]} />`}`}`}
  <//>`;
}

/** What has become of a job: how long it ran, and its last lines. */
function Job({ job }) {
  const { name, startedTimestamp, endedTimestamp, good, output } = job;
  const isOver = endedTimestamp !== null;
  const told = name === "doctor" ? tellFindings(output) : output;
  return html`<p role="status">
      <${Badge} kind=${isOver ? (good ? "good" : "bad") : "warn"}>${t(!isOver ? "jobs.running" : good ? "jobs.good" : name === "doctor" ? "jobs.found" : "jobs.bad")}<//>
      ${" "}<${Time} at=${startedTimestamp} />${isOver && html` – <${Time} at=${endedTimestamp} />`}</p>
    ${!isOver && html`<progress aria-label=${t("jobs.running")}></progress>`}
    ${output.length > 0 && html`<pre tabindex="0">
      ${told.map((line, index) => html`<div lang=${line === output[index] ? "en" : undefined}>${line}</div>`)}</pre>`}`;
}

/** What the broker does for operators beside its work: each with the command that does the same. */
function Jobs({ configuration }) {
  const dataDir = dataDirOf(configuration);
  const [isRunning, setRunning] = useState(false);
  const list = useCall((signal) => operate("jobs/list", {}, signal), [], isRunning ? OFTEN : SELDOM);
  const [error, setError] = useState(null);
  const jobs = list.data?.jobs ?? [];
  useEffect(() => setRunning(jobs.some((each) => each.endedTimestamp === null)), [list.data]);
  const start = async (name) => {
    setError(null);
    try {
      await operate("jobs/start", { name });
    } catch (failure) {
      setError(failure);
    }
    list.reload();
  };
  const rows = [
    ["doctor", ["doctor", ...(configuration.file ? ["--config", configuration.file] : ["--data-dir", dataDir])]],
    ["audit", ["chain", "audit", dataDir]],
    ["backup", ["chain", "backup", dataDir, `${dataDir}-backups/${new Date().toISOString().slice(0, 10)}`]],
  ];
  return html`<${Section} title=${t("jobs.title")}>
    <p class="quiet">${t("jobs.about")}</p>
    <${ErrorText} error=${error ?? list.error} />
    ${rows.map(([name, words]) => {
      const job = jobs.find((each) => each.name === name);
      return html`<h3>${t(`operations.${name}`)}</h3>
        <p class="quiet">${t(`operations.${name}About`)}</p>
        <button type="button" disabled=${isRunning} onClick=${() => start(name)}>${t(`jobs.${name}`)}</button>
        ${job && html`<${Job} job=${job} />`}
        <${Command} words=${job ? job.command.slice(1) : words} />`;
    })}
  <//>`;
}

export default function Operations({ group, user, parameters, onLogIn }) {
  const { data, error, reload } = useConfiguration(user, group);
  const holds = maySeeHolds(user, group) && html`<${Holds} key=${group} groupId=${group} />`;
  if (!may(user, group, "operate")) return html`${holds}<${OperatorNotice} user=${user} onLogIn=${onLogIn} />`;
  const given = parameters.get("events") ?? "";
  return html`
    <${Erasing} key=${given} groupId=${group} given=${given} />
    ${holds}
    <${ErrorText} error=${error} />
    ${data && html`<${Jobs} configuration=${data} />
      <${Section} title=${t("configuration.reload")}>
        <${Reload} dataDir=${dataDirOf(data)} onDone=${reload} />
      <//>`}`;
}

// Checkpoints: whether the log of the broker has only grown since this browser first saw it.

import { html, useState } from "./vendor/preact-htm.js";
import { ask, isGranted } from "./api.js";
import { announce, Badge, BlockLink, ErrorText, Section, Short, Table, Time, Told, useCall } from "./parts.js";
import { canVerify, checkOther, checkPin, forgetPin, heightOf } from "./pins.js";
import { formatNumber, t } from "./texts.js";

const EVERY = 10000;
// The topic of the transparency log.
const LOG = "$svc/log";

function Checkpoint({ text, user, group }) {
  const height = heightOf(text);
  const name = t("block.numbered", { height: formatNumber(height) });
  return html`<${BlockLink} height=${height} user=${user} group=${group} text=${name} />
    <br /><code>${text}</code>`;
}

/** What contradicts what is kept: in red, with the documents to keep. */
function Contradiction({ contradiction }) {
  const { reason, detail } = contradiction;
  const evidence = `data:application/json,${encodeURIComponent(JSON.stringify(contradiction, null, 2))}`;
  return html`<div class="error" role="alert">
    <p>${reason !== "shorter" && html`<strong>${t("checkpoints.contradiction")}</strong> `}${t(`checkpoints.${reason}`)}
      ${detail && html` (<${Told} text=${detail} />)`}</p>
    <p><a download="svcbroker-contradiction.json" href=${evidence}>${t("checkpoints.evidence")}</a></p>
  </div>`;
}

function Facts({ known, ...reader }) {
  const { chain, latest, pin } = known;
  const facts = [
    [t("checkpoints.chain"), html`<code>${chain}</code>`],
    [t("checkpoints.latest"), html`<${Checkpoint} text=${latest} ...${reader} />`],
    [t("checkpoints.pinned"), html`<${Checkpoint} text=${pin.checkpoint} ...${reader} /><br />
      <span class="quiet">${t("checkpoints.checked")} <${Time} at=${pin.at} /></span>`],
    [t("checkpoints.first"), html`<${Checkpoint} text=${pin.first} ...${reader} /><br />
      <span class="quiet"><${Time} at=${pin.firstAt} /></span>`],
  ];
  return html`<dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** A form that compares a checkpoint from elsewhere. */
function Compare({ groupId }) {
  const [result, setResult] = useState(null);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const checkpoint = event.target.elements.checkpoint.value.trim().toLowerCase();
    setError(null);
    setResult(null);
    try {
      setResult(await checkOther(groupId, checkpoint));
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<${Section} title=${t("checkpoints.compare")}>
    <form onSubmit=${submit}>
      <label>${t("checkpoints.other")}
        <input class="code" name="checkpoint" required pattern="\\s*[0-9]{1,15}:[0-9a-fA-F]{64}\\s*" spellcheck=${false}
          aria-describedby="other-hint" /></label>
      <p id="other-hint" class="hint">${t("checkpoints.otherHint")}</p>
      <button class="main">${t("checkpoints.compareButton")}</button>
    </form>
    <div role="status">
      ${result && !result.contradiction && html`<p><${Badge} kind="good">${t("proof.holds")}<//>
        ${t("checkpoints.sameLog", { latest: result.latest })}</p>`}
    </div>
    ${result?.contradiction && html`<${Contradiction} contradiction=${{ ...result.contradiction, latest: result.latest }} />`}
    <${ErrorText} error=${error} />
  <//>`;
}

/** The witnesses of the log, of which only its readers are told; null for others. */
async function askWitnesses(groupId, signal) {
  if (!(await isGranted(groupId, "subscribe", LOG, signal))) return null;
  return ask("rest/witnesses", { groupId }, signal);
}

/** Who else has seen the log: the witnesses of the broker's policy. */
function Witnesses({ groupId }) {
  const { data, error } = useCall((signal) => askWitnesses(groupId, signal), [groupId], EVERY);
  const stateOf = (each) => {
    if (each.isRefusing) return html`<${Badge} kind="bad">${t("witnesses.refusing")}<//> <${Told} text=${each.lastError} />`;
    if (each.lastError) return html`<${Badge} kind="warn">${t("witnesses.failing")}<//> <${Told} text=${each.lastError} />`;
    return html`<${Badge} kind="good">${t("witnesses.good")}<//>`;
  };
  const columns = [
    { title: t("witnesses.witness"), cell: (each) => html`${each.name}<br /><${Short} text=${each.key} length=${40} />` },
    { title: t("witnesses.cosigned"), isNumber: true,
      cell: (each) => (each.size ? formatNumber(each.size) : t("witnesses.never")) },
    { title: t("witnesses.behind"), isNumber: true, cell: (each) => formatNumber(Math.max(0, data.size - each.size)) },
    { title: t("witnesses.seen"), cell: (each) => (each.time ? html`<${Time} at=${each.time} />` : "") },
    { title: t("witnesses.state"), cell: stateOf },
  ];
  return html`<${Section} title=${t("witnesses.title")}>
    <${ErrorText} error=${error} />
    ${data && html`
      ${data.quorum !== "" && html`<p>${t("witnesses.quorum", {
        quorum: data.quorum, cosigned: formatNumber(data.cosigned), size: formatNumber(data.size) })}</p>`}
      <${Table} label=${t("witnesses.title")} columns=${columns} rows=${data.witnesses}
        keyOf=${(each) => each.name} empty=${t("witnesses.none")} />`}
  <//>`;
}

export default function Checkpoints({ group, user }) {
  const known = useCall((signal) => checkPin(group, signal), [group], EVERY);
  if (!canVerify) return html`<p class="error" role="alert">${t("proof.insecure")}</p>`;
  const forget = () => {
    if (!confirm(t("checkpoints.forgetConfirm"))) return;
    forgetPin(group);
    announce(t("done"));
    known.reload();
  };
  const { data, error } = known;
  const state = data && (data.contradiction
    ? html`<${Badge} kind="bad">${t("checkpoints.bad")}<//>` : html`<${Badge} kind="good">${t("checkpoints.good")}<//>`);
  const actions = html`<span class="buttons">
    <button type="button" onClick=${known.reload}>${t("checkpoints.check")}</button>
    <button type="button" class="danger" onClick=${forget}>${t("checkpoints.forget")}</button>
  </span>`;
  return html`
    <${ErrorText} error=${error} />
    ${data && html`
      <${Section} title=${t("checkpoints.title")} actions=${actions}>
        <p role="status">${state} ${t(data.contradiction ? "checkpoints.badText" : "checkpoints.goodText")}</p>
        ${data.contradiction && html`<${Contradiction} contradiction=${data.contradiction} />`}
        <${Facts} known=${data} user=${user} group=${group} />
        <p class="quiet">${t("checkpoints.about")}</p>
      <//>
      <${Compare} groupId=${group} />
      <${Witnesses} groupId=${group} />`}`;
}

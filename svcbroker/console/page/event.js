// An event: its content, its place in the log, and its proof, verified in this page: the broker that it is of is not believed.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { act, ask, urlOf } from "./api.js";
import { Basket, BasketButton } from "./basket.js";
import { IdentityField } from "./confidential.js";
import { base64Of, bytesOf, closedOf, Content, Erased, FormatField, typeOf } from "./content.js";
import { ErasingLink } from "./holds.js";
import { ActionButton, Badge, BlockLink, Command, ErrorText, EventLink, explain, Facts, linkTo, may, saveFile, Section, Time, useCall } from "./parts.js";
import { formatNumber, formatTime, t, tell } from "./texts.js";

// In the order in which the verifier takes them.
const STEPS = ["genesis", "block", "event", "trusted"];

/** The id of an event: the digits of its topic, its number in it, and the height of its block. */
const EVENT_ID = /^[0-9a-f]{8}-([1-9]\d{0,15})-([1-9]\d{0,15})$/;

/** What the reader trusts, of each group: kept in the browser. */
const keyOf = (group) => `svcbroker-trusted-${group}`;

/**
 * What the broker tells of an event.
 *
 * @returns event: with its content and extensions, of an erased one without; null where it is not
 *   known what they were; topic, which may be undefined; number and height; time: that of its block, or null.
 */
async function askEvent(groupId, eventId, signal) {
  const [, number, height] = EVENT_ID.exec(eventId);
  let event = null, topic;
  try {
    event = await ask("rest/getEvent", { groupId, eventId }, signal);
    topic = event.topic;
  } catch (error) {
    if (!error.erasure) throw error;
    topic = error.erasure.topic;
  }
  const logged = topic === undefined ? undefined : await findLogged(groupId, topic, height, eventId, signal);
  return { eventId, event: logged ?? event, topic, number: Number(number), height: Number(height), time: logged?.timestamp ?? null };
}

/** The event as the log lists it, with the time of its block; undefined where it is far in the block. */
async function findLogged(groupId, topic, height, eventId, signal) {
  const given = { groupId, topic, from: height, limit: 100, erased: "tombstone" };
  const { events } = await ask("rest/events", given, signal);
  return events.find((each) => each.eventId === eventId);
}

/** A proof that leads to what is trusted: from a checkpoint's height, the broker proves up to it. */
async function askProof(groupId, eventId, trusted, signal) {
  const [, height] = /^(\d+):/.exec(trusted) ?? [];
  const own = eventId.split("-").at(-1);
  return ask("rest/proof", { groupId, eventId, checkpoint: height === own ? undefined : height }, signal);
}

/** Why this page cannot verify a proof; undefined where it can. */
function obstacle(proof) {
  if (!globalThis.crypto?.subtle) return t("proof.insecure");
  const kind = proof.block.certificate?.kind ?? proof.checkpoint?.certificate?.kind;
  return kind === "pbft" ? undefined : t("proof.otherKind");
}

/** The proof of an event, with the steps that hold, and the reason where one does not. */
async function prove(groupId, eventId, trusted, signal) {
  const proof = await askProof(groupId, eventId, trusted, signal);
  const steps = [];
  let reason = obstacle(proof) ?? null;
  if (reason === null) {
    const { verify } = await import("./verify.mjs");
    try {
      const data = new TextEncoder().encode(JSON.stringify(proof));
      await verify(data, trusted, (name, shown) => steps.push({ name, shown }));
    } catch (failure) {
      reason = failure.name === "NotSupportedError" ? t("proof.noEd25519") : tell(failure.message);
    }
  }
  return { proof, steps, reason };
}

/** The proved content in Base64; null where the proof has none. */
function provedContent({ content, contentBase64 }) {
  if (contentBase64 !== undefined) return contentBase64;
  if (content === undefined) return null;
  return base64Of(new TextEncoder().encode(content));
}

function describe(name, shown) {
  const values = { ...shown };
  for (const [key, value] of Object.entries(shown)) {
    if (typeof value === "number") values[key] = formatNumber(value);
  }
  const text = t(`proof.step.${name}`, values);
  return name === "event" && shown.hasAuthor ? `${text} ${t("proof.author")}` : text;
}

/** What a step means, by what it has found. */
function meaningOf(name, shown, proof, isOfBroker) {
  if (name === "block" && !shown.signatures) return t("proof.means.unsigned");
  if (name === "event" && provedContent(proof.event) === null) return t("proof.means.erased");
  if (name === "trusted" && isOfBroker) return t("proof.means.ofBroker");
  return t(`proof.means.${name}`);
}

function Steps({ steps, reason, proof, isOfBroker }) {
  const failing = reason === null ? -1 : steps.length;
  return html`<ol class="steps">
    ${STEPS.map((name, index) => {
      const step = steps[index];
      if (index === failing) {
        return html`<li><${Badge} kind="bad">${t("proof.fails")}<//> ${t(`proof.name.${name}`)}: ${reason}</li>`;
      }
      if (!step) return html`<li class="quiet">${t("proof.notReached")} ${t(`proof.name.${name}`)}</li>`;
      return html`<li><${Badge} kind="good">${t("proof.holds")}<//> <strong>${t(`proof.name.${name}`)}</strong>
        <br /><span class="quiet">${meaningOf(name, step.shown, proof, isOfBroker)}</span>
        <details><summary>${t("proof.found")}</summary><p>${describe(name, step.shown)}</p></details></li>`;
    })}
  </ol>`;
}

/** The form that says what the reader trusts, and the result of the proof from it. */
function ProofSection({ groupId, eventId, genesis, trusted, onTrust, proving }) {
  const submit = (event) => {
    event.preventDefault();
    onTrust(event.target.elements.trusted.value.trim());
  };
  const result = proving.data;
  const isOfBroker = genesis.data && trusted === genesis.data.chain;
  const title = !result ? "proof.short" : result.reason === null ? "proof.proved" : "proof.notProved";
  return html`<${Section} title=${t(title)}>
    <p class="quiet">${t("proof.about")}</p>
    <div role="status">
      ${result && html`<${Steps} ...${result} isOfBroker=${isOfBroker} />
        ${result.proof.block.header.timestamp < result.proof.event.timestamp && html`<p class="quiet">${t("proof.earlier")}</p>`}`}
    </div>
    <${ErrorText} error=${genesis.error ?? proving.error} />
    <form onSubmit=${submit}>
      <label>${t("proof.trusted")}
        <input class="code" name="trusted" key=${trusted} defaultValue=${trusted} required spellcheck=${false} aria-describedby="trusted-hint" /></label>
      <p id="trusted-hint" class="hint">${t(isOfBroker ? "proof.ofBroker" : "proof.trustedHint")}</p>
      <button>${t("proof.verify")}</button>
    </form>
    <div class="buttons below">
      ${result && html`<button type="button" onClick=${() =>
        saveFile(`${eventId}.json`, "application/json", JSON.stringify(result.proof))}>${t("proof.download")}</button>`}
      <${BasketButton} groupId=${groupId} eventId=${eventId} />
    </div>
    <${Command} words=${["prove", "--url", urlOf("").href, ...groupOption(groupId), eventId, "--output", `${eventId}.json`]} />
    ${result && html`<details>
      <summary>${t("proof.document")}</summary>
      <pre tabindex="0" class="document">${JSON.stringify(result.proof, null, 2)}</pre>
    </details>`}
  <//>`;
}

const groupOption = (groupId) => (groupId === "1" ? [] : ["--group", groupId]);

/** Whether the author's signature holds, once that is known. */
function Signature({ result }) {
  if (!result) return "…";
  const step = result.steps.find((each) => each.name === "event");
  if (step?.shown.hasAuthor && provedContent(result.proof.event) !== null) {
    return html`<${Badge} kind="good">${t("event.signatureHolds")}<//>`;
  }
  if (step) return html`<${Badge} kind="warn">${t("event.signatureErased")}<//>`;
  return html`<${Badge} kind="warn">${t("event.signatureUnchecked")}<//>`;
}

function EventFacts({ told, result, groupId, user }) {
  const { event, topic, time, number, height } = told;
  const proved = result?.proof.event;
  const extensions = Object.entries(event?.extensions ?? {});
  const author = event?.author ?? proved?.author;
  const signedAt = event?.signedAt ?? proved?.signedAt;
  return html`<${Facts} rows=${[
    topic !== undefined && [t("topic.label"), html`<a class="name" href=${linkTo("topic", { name: topic })}>${topic}</a>`],
    [t("event.number"), formatNumber(number)],
    [t("event.block"), html`<${BlockLink} height=${height} user=${user} group=${groupId} />`],
    time !== null && [t("event.time"), html`<${Time} at=${time} />`],
    proved && [t("event.submitted"), html`<${Time} at=${proved.timestamp} />`],
    author && [t("event.author"), html`<code class="key">${author}</code> <${Signature} result=${result} />`],
    signedAt !== undefined && [t("event.signedAt"), html`<${Time} at=${signedAt} />`],
    proved?.idempotencyKey !== undefined && [t("event.idempotencyKey"), html`<code>${proved.idempotencyKey}</code>`],
    proved?.expectedSequence !== undefined && [t("event.expectedSequence"), formatNumber(proved.expectedSequence)],
    ...extensions.map(([name, value]) => [html`<code>${name}</code>`, html`<span class="value-text">${value}</span>`]),
  ]} />`;
}

/** The content: the one in the proof, once that holds; until then as the broker tells it. */
function ContentSection({ told, result, groupId }) {
  const [format, setFormat] = useState("auto");
  const { event, topic, eventId } = told;
  const isProved = result?.reason === null;
  const proved = isProved ? provedContent(result.proof.event) : null;
  const isErased = event === null || event.erased;
  const content = proved ?? (isErased ? null : event.content);
  const isOther = proved !== null && !isErased && proved !== event.content;
  const badge = isProved && proved !== null
    ? html`<${Badge} kind="good">${t("event.contentProved")}<//>` : html`<span class="quiet">${t("event.contentTold")}</span>`;
  return html`<${Section} title=${t("publish.content")}
      actions=${content !== null && html`<${FormatField} format=${format} onChange=${setFormat} />`}>
    ${content === null
      ? html`<${Erased} groupId=${groupId} topic=${topic} eventId=${eventId} /><p class="hint">${t("proof.erased")}</p>`
      : html`<p>${badge} <span class="quiet">${t("event.size", { size: formatNumber(bytesOf(content).length) })}</span></p>
        ${isOther && html`<p class="error" role="alert">${t("event.contentDiffers")}</p>`}
        <${Content} base64=${content} format=${format} type=${typeOf(event ?? {})} isFolded closed=${closedOf(event)} />
        ${closedOf(event) && html`<${IdentityField} />`}`}
  <//>`;
}

/** A dead letter: the event that it is of, which can be sent to its webhook once more. */
function DeadLetter({ eventId, extensions }) {
  const { "svc-subscription-id": subscriptionId, "svc-original-id": original } = extensions;
  const [state, setState] = useState(null);
  const send = async () => {
    setState(null);
    try {
      setState({ isTaken: await act("rest/replayDeadLetter", { subscriptionId, eventId }) });
    } catch (error) {
      setState({ error });
    }
  };
  return html`<${Section} title=${t("deadLetter.title")}>
    <p>${t("deadLetter.of")} <${EventLink} id=${original} /></p>
    <p role="status">${state?.isTaken !== undefined && html`<${Badge} kind=${state.isTaken ? "good" : "bad"}>
      ${t(state.isTaken ? "deadLetter.taken" : "deadLetter.refused")}<//>`}</p>
    <${ErrorText} error=${state?.error} />
    <${ActionButton} run=${send}>${t("deadLetter.send")}<//>
    <${Command} words=${["webhook", "replay", subscriptionId, eventId]} />
  <//>`;
}

function Shown({ groupId, eventId, user }) {
  const told = useCall((signal) => askEvent(groupId, eventId, signal), [groupId, eventId]);
  const genesis = useCall((signal) => ask("rest/genesis", { groupId }, signal), [groupId]);
  const [kept, setKept] = useState(localStorage.getItem(keyOf(groupId)));
  const trusted = kept ?? genesis.data?.chain ?? "";
  const proving = useCall(
    trusted && told.data ? (signal) => prove(groupId, eventId, trusted, signal) : null, [groupId, eventId, trusted]);
  const trust = (given) => {
    localStorage.setItem(keyOf(groupId), given);
    if (given === trusted) proving.reload();
    else setKept(given);
  };
  if (!told.data) return html`<${ErrorText} error=${told.error} />`;
  return html`<div class="title"><p><code>${eventId}</code></p></div>
    <div class="columns">
      <div>
        <${ContentSection} told=${told.data} result=${proving.data} groupId=${groupId} />
        ${told.data.event && !told.data.event.erased && may(user, groupId, "operate") &&
          html`<${ErasingLink} groupId=${groupId} eventId=${eventId} />`}
        ${told.data.event?.extensions["svc-original-id"] &&
          html`<${DeadLetter} eventId=${eventId} extensions=${told.data.event.extensions} />`}
        <${Section} title=${t("event.place")}>
          <${EventFacts} told=${told.data} result=${proving.data} groupId=${groupId} user=${user} />
        <//>
      </div>
      <${ProofSection} groupId=${groupId} eventId=${eventId} genesis=${genesis} trusted=${trusted} onTrust=${trust} proving=${proving} />
    </div>`;
}

export default function EventPage({ group, parameters, user }) {
  const given = parameters.get("id") ?? "";
  const submit = (event) => {
    event.preventDefault();
    location.hash = linkTo("event", { id: event.target.elements.id.value.trim() });
  };
  return html`
    ${given && (EVENT_ID.test(given) ? html`<${Shown} key=${`${group} ${given}`} groupId=${group} eventId=${given} user=${user} />`
      : html`<p class="error" role="alert">${t("event.noId", { given })}</p>`)}
    <${Section} title=${t("proof.title")}>
      <form class="row" role="search" onSubmit=${submit}>
        <label>${t("block.eventId")}
          <input name="id" required autocapitalize="none" spellcheck=${false} /></label>
        <button class=${given ? "" : "main"}>${t("event.show")}</button>
      </form>
    <//>
    <${Basket} groupId=${group} />`;
}

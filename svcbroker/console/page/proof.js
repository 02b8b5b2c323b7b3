// The proof of an event, verified in this page: the broker that it is of is not believed.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { ask, CallError } from "./api.js";
import { Erased } from "./content.js";
import { Badge, ErrorText, Section, useCall } from "./parts.js";
import { formatNumber, t } from "./texts.js";

// In the order in which the verifier takes them.
const STEPS = ["genesis", "block", "event", "trusted"];

/** What the reader trusts, of each group: kept in the browser. */
const keyOf = (group) => `svcbroker-trusted-${group}`;

/** A proof that leads to what is trusted: from a checkpoint's height, the broker proves up to it. */
async function askProof(groupId, eventId, trusted) {
  const [, height] = /^(\d+):/.exec(trusted) ?? [];
  const own = eventId.split("-").at(-1);
  return ask("rest/proof", { groupId, eventId, checkpoint: height === own ? undefined : height });
}

/** Why this page cannot verify a proof; undefined where it can. */
function obstacle(proof) {
  if (!globalThis.crypto?.subtle) return t("proof.insecure");
  const kind = proof.block.certificate?.kind ?? proof.checkpoint?.certificate?.kind;
  return kind === "pbft" ? undefined : t("proof.otherKind");
}

/** The steps that hold, the reason where one does not, and the proof as a file. */
async function verifyProof(proof, trusted, onStep) {
  const reason = obstacle(proof);
  if (reason) throw new CallError(0, reason);
  const { verify } = await import("./verify.mjs");
  await verify(new TextEncoder().encode(JSON.stringify(proof)), trusted, onStep);
}

function describe(name, shown) {
  const values = { ...shown };
  for (const [key, value] of Object.entries(shown)) {
    if (typeof value === "number") values[key] = formatNumber(value);
  }
  const text = t(`proof.step.${name}`, values);
  return name === "event" && shown.hasAuthor ? `${text} ${t("proof.author")}` : text;
}

/** Of an event without content, what the broker says of its erasure; a proof does not tell. */
function ErasedEvent({ groupId, event }) {
  if (event.content !== undefined || event.contentBase64 !== undefined) return null;
  return html`<${Erased} groupId=${groupId} topic=${event.topicName} eventId=${event.eventId} />
    <p class="hint">${t("proof.erased")}</p>`;
}

function Steps({ steps, reason, proof }) {
  const failing = reason === null ? -1 : steps.length;
  return html`<ol class="steps">
    ${STEPS.map((name, index) => {
      const step = steps[index];
      if (index === failing) {
        return html`<li><${Badge} kind="bad">${t("proof.fails")}<//> ${t(`proof.name.${name}`)}: ${reason}</li>`;
      }
      if (!step) return html`<li class="quiet">${t("proof.notReached")} ${t(`proof.name.${name}`)}</li>`;
      return html`<li><${Badge} kind="good">${t("proof.holds")}<//> ${describe(name, step.shown)}</li>`;
    })}
  </ol>
  <details>
    <summary>${t("proof.document")}</summary>
    <p><a download=${`${proof.event.eventId}.json`} href=${`data:application/json,${encodeURIComponent(JSON.stringify(proof))}`}>
      ${t("proof.download")}</a></p>
    <pre tabindex="0" class="document">${JSON.stringify(proof, null, 2)}</pre>
  </details>`;
}

export default function Proof({ group, parameters }) {
  const groupId = group;
  const genesis = useCall((signal) => ask("rest/genesis", { groupId }, signal), [group]);
  const [trusted, setTrusted] = useState(localStorage.getItem(keyOf(group)) ?? "");
  const [result, setResult] = useState(null);
  const [error, setError] = useState(null);
  const given = parameters.get("event") ?? "";
  useEffect(() => {
    if (genesis.data && !trusted) setTrusted(genesis.data.chain);
  }, [genesis.data]);
  const submit = async (event) => {
    event.preventDefault();
    const eventId = event.target.elements.event.value.trim();
    setError(null);
    setResult(null);
    localStorage.setItem(keyOf(group), trusted);
    let proof;
    try {
      proof = await askProof(groupId, eventId, trusted);
    } catch (failure) {
      setError(failure);
      return;
    }
    const steps = [];
    let reason = null;
    try {
      await verifyProof(proof, trusted.trim(), (name, shown) => steps.push({ name, shown }));
    } catch (failure) {
      reason = failure.name === "NotSupportedError" ? t("proof.noEd25519") : failure.message;
    }
    setResult({ proof, steps, reason });
  };
  const isOfBroker = genesis.data && trusted.trim() === genesis.data.chain;
  return html`
    <${Section} title=${t("proof.title")}>
      <p>${t("proof.about")}</p>
      <form onSubmit=${submit}>
        <label>${t("block.eventId")}
          <input name="event" key=${given} defaultValue=${given} required spellcheck=${false} /></label>
        <label>${t("proof.trusted")}
          <input class="code" value=${trusted} required spellcheck=${false} aria-describedby="trusted-hint"
            onInput=${(event) => setTrusted(event.target.value)} /></label>
        <p id="trusted-hint" class="hint">${t(isOfBroker ? "proof.ofBroker" : "proof.trustedHint")}</p>
        <button class="main">${t("proof.verify")}</button>
      </form>
      <${ErrorText} error=${genesis.error ?? error} />
    <//>
    <div role="status">
      ${result && html`<${Section} title=${t(result.reason === null ? "proof.proved" : "proof.notProved")}>
        <${ErasedEvent} groupId=${groupId} event=${result.proof.event} />
        ${result.proof.block.header.timestamp < result.proof.event.timestamp
          && html`<p class="quiet">${t("proof.earlier")}</p>`}
        <${Steps} ...${result} />
      <//>`}
    </div>`;
}

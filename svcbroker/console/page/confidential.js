// Closed events: contents are closed before they leave this page, and opened by identities that never do.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { Badge } from "./parts.js";
import { formatNumber, t } from "./texts.js";

// Who opens a longer header waits for each of its recipients: as svcbroker/proofs/_age.py.
const MAX_HEADER = 64 * 1024;
const MAX_RECIPIENTS = 256;
const IDENTITY = /^AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}$/i;
const RECIPIENT = /^age1[02-9ac-hj-np-z]{58}$/;

// They are kept while the page is, and nowhere else.
let identities = [];

/** Lines of a file without comments. */
function linesOf(text) {
  return text.split("\n").map((each) => each.trim()).filter((each) => each && !each.startsWith("#"));
}

async function setIdentities(text) {
  const lines = linesOf(text);
  if (!lines.length || !lines.every((each) => IDENTITY.test(each))) throw new Error(t("closed.noIdentity"));
  const { Decrypter } = await import("./vendor/age.js");
  try {
    for (const each of lines) new Decrypter().addIdentity(each.toUpperCase());
  } catch {
    throw new Error(t("closed.noIdentity"));
  }
  identities = lines.map((each) => each.toUpperCase());
  window.dispatchEvent(new Event("identitieschanged"));
}

function forgetIdentities() {
  identities = [];
  window.dispatchEvent(new Event("identitieschanged"));
}

function useIdentities() {
  const [known, setKnown] = useState(identities);
  useEffect(() => {
    const change = () => setKnown(identities);
    addEventListener("identitieschanged", change);
    return () => removeEventListener("identitieschanged", change);
  }, []);
  return known;
}

/** Refuse a header for which opening would take long. */
function checkHeader(bytes) {
  const header = new TextDecoder("latin1").decode(bytes.subarray(0, MAX_HEADER));
  const end = header.indexOf("\n--- ");
  if (end < 0 && bytes.length <= MAX_HEADER) throw new Error(t("closed.damaged"));
  if (end < 0 || header.slice(0, end).split("\n-> ").length > MAX_RECIPIENTS + 1) throw new Error(t("closed.large"));
}

/** The content of a closed event, by the identities. */
async function open(bytes, extensions) {
  if (extensions["svc-encrypted"] !== "age") throw new Error(t("closed.otherKind"));
  checkHeader(bytes);
  const [{ Decrypter }, { unpad }] = await Promise.all([import("./vendor/age.js"), import("./reveal.mjs")]);
  const decrypter = new Decrypter();
  for (const each of identities) decrypter.addIdentity(each);
  let plain;
  try {
    plain = await decrypter.decrypt(bytes);
  } catch (error) {
    throw new Error(t(/no identity matched/.test(error.message) ? "closed.forOthers" : "closed.damaged"));
  }
  try {
    return unpad(plain, extensions);
  } catch {
    throw new Error(t("closed.damaged"));
  }
}

/** A content with the padding that hides its size: Padmé. */
function padded(content) {
  const least = content.length + 1;
  const exponent = Math.floor(Math.log2(least));
  const step = exponent ? 2 ** (exponent - Math.floor(Math.log2(exponent)) - 1) : 1;
  const bytes = new Uint8Array(Math.ceil(least / step) * step).fill(32);
  bytes.set(content);
  bytes[content.length] = 10;
  return bytes;
}

/**
 * Close a text to recipients.
 *
 * @param recipients lines of age1..., each with a name before it or without.
 * @returns the parameters of a publish.
 */
export async function close(text, recipients) {
  const keys = linesOf(recipients).map((each) => each.split(/\s+/).at(-1));
  if (!keys.every((each) => RECIPIENT.test(each))) throw new Error(t("closed.noRecipient"));
  if (keys.length >= MAX_RECIPIENTS) throw new Error(t("closed.tooMany", { most: MAX_RECIPIENTS - 1 }));
  const { Encrypter } = await import("./vendor/age.js");
  const encrypter = new Encrypter();
  try {
    for (const each of new Set(keys)) encrypter.addRecipient(each);
  } catch {
    throw new Error(t("closed.noRecipient"));
  }
  const content = await encrypter.encrypt(padded(new TextEncoder().encode(text)));
  return { "svc-encrypted": "age", "svc-padding": "spaces", content };
}

/** The field for the file with the reader's identities, where closed events are shown. */
export function IdentityField() {
  const known = useIdentities();
  const [error, setError] = useState(null);
  const read = async (event) => {
    setError(null);
    try {
      const [file] = event.target.files;
      if (file) await setIdentities(await file.text());
    } catch (failure) {
      setError(failure);
    }
  };
  return html`<div class="identity">
    <label>${t("closed.identity")}<input type="file" aria-describedby="identity-hint" onChange=${read} /></label>
    ${known.length > 0 && html`<button type="button" onClick=${forgetIdentities}>${t("closed.forget")}</button>`}
    <p id="identity-hint" class="hint">${t("closed.identityHint")}</p>
    ${error && html`<p class="error" role="alert">${error.message}</p>`}
  </div>`;
}

/**
 * A closed content: opened where an identity opens it.
 *
 * @param show makes what is shown of the content in plain.
 * @param fallback what is shown while it is closed.
 */
export function Closed({ bytes, extensions, show, fallback }) {
  const known = useIdentities();
  const [state, setState] = useState({});
  useEffect(() => {
    let isCurrent = true;
    setState({});
    if (known.length) {
      open(bytes, extensions).then((plain) => isCurrent && setState({ plain }), (error) => isCurrent && setState({ error }));
    }
    return () => (isCurrent = false);
  }, [known]);
  const size = formatNumber(bytes.length);
  if (state.plain) return html`<p><${Badge} kind="good">${t("closed.opened")}<//>${" "}
    <span class="quiet">${t("closed.inLog", { size })}</span></p>${show(state.plain)}`;
  return html`<p><${Badge} kind="quiet">${t("event.closed", { size })}<//>
    ${state.error && html` <span class="quiet">${state.error.message}</span>`}</p>${fallback}`;
}

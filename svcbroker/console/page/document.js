// Whether a document is on the log: a file is hashed here, and only its hash is asked for.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { FormatField } from "./content.js";
import { EventList } from "./eventlist.js";
import { ErrorText, Section } from "./parts.js";
import { formatNumber, t } from "./texts.js";

// A browser has the whole file in memory while it hashes it.
const LARGEST = 1 << 28;
const MOST = 100;

/** The SHA-256 of a file, in hexadecimal digits. */
async function hashOf(file) {
  if (!globalThis.crypto?.subtle) throw new Error(t("document.insecure"));
  if (file.size > LARGEST) throw new Error(t("document.large", { most: formatNumber(LARGEST) }));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
  return [...hash].map((each) => each.toString(16).padStart(2, "0")).join("");
}

/** What was found of a file, and up to which block was looked. */
function Result({ result, group, format }) {
  const { name, hash, events, height, chainHeight, atEnd } = result;
  const values = { name, count: formatNumber(events.length), height: formatNumber(height), end: formatNumber(chainHeight) };
  const text = events.length ? (atEnd ? "document.found" : "document.more") : "document.absent";
  return html`<p role="status">${t(text, values)}</p>
    <p class="quiet">SHA-256 <code class="id">${hash}</code></p>
    ${!events.length && html`<p>${t("document.nothing")}</p>`}
    <${EventList} events=${events} groupId=${group} format=${format} label=${t("document.title")} />`;
}

export function DocumentSearch({ group }) {
  const [result, setResult] = useState(null);
  const [error, setError] = useState(null);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [format, setFormat] = useState("auto");
  const look = async (file) => {
    if (!file || isBusy) return;
    setBusy(true);
    setError(null);
    setProblem("");
    setResult(null);
    let hash;
    try {
      hash = await hashOf(file);
    } catch (failure) {
      setProblem(failure.message);
    }
    try {
      if (hash) setResult({ name: file.name, hash, ...(await ask("rest/find", { hash, groupId: group, limit: MOST })) });
    } catch (failure) {
      setError(failure);
    }
    setBusy(false);
  };
  const drop = (event) => {
    event.preventDefault();
    look(event.dataTransfer.files[0]);
  };
  return html`<${Section} title=${t("document.title")}
      actions=${result?.events.length ? html`<${FormatField} format=${format} onChange=${setFormat} />` : null}>
    <p class="quiet">${t("document.about")}</p>
    <div class="drop" onDragOver=${(event) => event.preventDefault()} onDrop=${drop}>
      <label>${t("document.file")}
        <input type="file" disabled=${isBusy} onChange=${(event) => look(event.target.files[0])} /></label>
    </div>
    ${isBusy && html`<progress aria-label=${t("document.busy")}></progress>`}
    ${problem && html`<p class="error" role="alert">${problem}</p>`}
    <${ErrorText} error=${error} />
    ${result && html`<${Result} result=${result} group=${group} format=${format} />`}
  <//>`;
}

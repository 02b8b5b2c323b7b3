// The events that the reader has put together for a bundle: kept in the browser until the window is closed.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { askFile, urlOf } from "./api.js";
import { ActionButton, announce, Command, ErrorText, EventLink, saveFile, Section } from "./parts.js";
import { formatNumber, t } from "./texts.js";

// As many as the broker puts into one.
export const MOST = 50;

const keyOf = (groupId) => `svcbroker-basket-${groupId}`;

function read(groupId) {
  const kept = JSON.parse(sessionStorage.getItem(keyOf(groupId)) ?? "[]");
  return Array.isArray(kept) ? kept : [];
}

function write(groupId, ids) {
  sessionStorage.setItem(keyOf(groupId), JSON.stringify(ids));
  window.dispatchEvent(new Event("basketchanged"));
}

/** The ids in the basket, as they are now. */
function useBasket(groupId) {
  const [ids, setIds] = useState(read(groupId));
  useEffect(() => {
    const change = () => setIds(read(groupId));
    change();
    addEventListener("basketchanged", change);
    return () => removeEventListener("basketchanged", change);
  }, [groupId]);
  return ids;
}

/** Put an event into the basket, or take it out. */
export function BasketButton({ groupId, eventId }) {
  const ids = useBasket(groupId);
  const isIn = ids.includes(eventId);
  const press = () => {
    write(groupId, isIn ? ids.filter((each) => each !== eventId) : [...ids, eventId]);
    announce(t("basket.count", { count: formatNumber(ids.length + (isIn ? -1 : 1)) }));
  };
  return html`<button type="button" disabled=${!isIn && ids.length >= MOST} onClick=${press}>
    ${t(isIn ? "basket.remove" : "basket.add")}</button>`;
}

/** What is in the basket, and the bundle of it. */
export function Basket({ groupId }) {
  const ids = useBasket(groupId);
  const [error, setError] = useState(null);
  const make = async () => {
    setError(null);
    try {
      const file = await askFile("console/bundle", { groupId, events: ids.join(",") });
      saveFile("bundle.zip", "application/zip", file);
      announce(t("done"));
    } catch (failure) {
      setError(failure);
    }
  };
  const actions = ids.length > 0 && html`<span class="buttons">
    <${ActionButton} kind="main" run=${make}>${t("basket.make")}<//>
    <button type="button" onClick=${() => write(groupId, [])}>${t("basket.empty")}</button>
  </span>`;
  return html`<${Section} title=${t("basket.title")} actions=${actions}>
    <p class="quiet">${t("basket.about", { most: formatNumber(MOST) })}</p>
    ${ids.length === 0 ? html`<p class="quiet">${t("basket.none")}</p>` : html`
      <ul class="plain-list">${ids.map((each) => html`<li key=${each}><${EventLink} id=${each} />
        <button type="button" class="plain" aria-label=${`${t("basket.remove")} ${each}`}
          onClick=${() => write(groupId, ids.filter((other) => other !== each))}>${t("basket.remove")}</button></li>`)}
      </ul>
      <${Command} words=${["proof", "bundle", "--url", urlOf("").href,
        ...(groupId === "1" ? [] : ["--group", groupId]), ...ids, "--output", "bundle.zip"]} />`}
    <${ErrorText} error=${error} />
  <//>`;
}

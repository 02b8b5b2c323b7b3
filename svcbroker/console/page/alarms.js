// The alarms of the broker: above every page, and as numbers beside the pages that show more.

import { html, useEffect, useRef } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { announce, Fold, may, Time, Told, useCall } from "./parts.js";
import { alarmTexts, formatNumber, t } from "./texts.js";

const EVERY = 5000;
const NONE = [];

/** What is wrong now, for those who may know. */
export function useAlarms(user) {
  const mayAsk = user.groups.some((group) => may(user, group, "admin"));
  const { data } = useCall(mayAsk ? (signal) => ask("admin/listAlarms", {}, signal) : null, [user], EVERY);
  return data ?? NONE;
}

function Alarm({ alarm }) {
  const { level, groupId, since, text, page } = alarm;
  const [title, meaning, remedy] = alarmTexts(alarm);
  return html`<li><details class=${level === "problem" ? "bad" : "warn"}>
    <summary><strong>${title}</strong>${groupId && ` · ${t("group")} ${groupId}`} · ${t("alarms.since")} <${Time} at=${since} /></summary>
    <p><${Told} text=${text} /></p>
    <p>${meaning}</p>
    <p>${remedy}</p>
    <p><a href=${`#${page}`}>${t(`page.${page}`)}</a></p>
  </details></li>`;
}

export function AlarmList({ alarms }) {
  const known = useRef(new Set());
  useEffect(() => {
    const keys = new Map(alarms.map((each) => [`${each.name} ${each.groupId}`, each]));
    const fresh = [...keys].filter(([key]) => !known.current.has(key)).map(([, each]) => alarmTexts(each)[0]);
    if (fresh.length) announce(fresh.join(". "));
    known.current = new Set(keys.keys());
  }, [alarms]);
  if (!alarms.length) return null;
  const worst = alarms.find(({ level }) => level === "problem") ?? alarms[0];
  const [title] = alarmTexts(worst);
  const label = html`<span class="count">${formatNumber(alarms.length)}<span class="hidden"> ${t("alarms.title")}</span></span>
    <strong>${title}</strong>`;
  return html`<section class="alarms" aria-label=${t("alarms.title")}>
    <${Fold} id="alarms" kind=${worst.level === "problem" ? "bad" : "warn"} label=${label}><ul class="plain-list">
      ${alarms.map((each) => html`<${Alarm} key=${`${each.name} ${each.groupId}`} alarm=${each} />`)}
    </ul><//>
  </section>`;
}

/** How many alarms a page tells more of. */
export function AlarmCount({ alarms, page }) {
  const count = alarms.filter((each) => each.page === page).length;
  return count > 0 && html` <span class="count">${formatNumber(count)}<span class="hidden"> ${t("alarms.title")}</span></span>`;
}

// Legal holds: what may not be erased until its case is closed, and why.

import { html, useState } from "./vendor/preact-htm.js";
import { operate } from "./api.js";
import { ActionButton, Command, ErrorText, linkTo, may, Section, Table, Time, useCall } from "./parts.js";
import { formatNumber, formatTime, t } from "./texts.js";

const PAGE = 100;
// Of so many cases the mark of an event says who holds it and why.
const SHOWN = 5;

/** Whether the user may see what is held. */
export const maySeeHolds = (user, group) => may(user, group, "operate") || (user.hasAccounts && may(user, group, "hold"));

/** The patterns of topics that a hold has, or how many events. */
function What({ hold }) {
  if (!hold.topics.length) return t("holds.events", { count: formatNumber(hold.eventCount) });
  return hold.topics.map((each) => html`<div><code>${each}</code></div>`);
}

/** When and by whom; without a name it was a user of the machine. */
function By({ at, account }) {
  return html`<${Time} at=${at} />${account && html`<br /><span class="name">${account}</span>`}`;
}

const COLUMNS = () => [
  { title: t("holds.case"), cell: (row) => html`<strong class="name">${row.case}</strong>` },
  { title: t("holds.what"), cell: (row) => html`<${What} hold=${row} />` },
  { title: t("holds.since"), cell: (row) => html`<${By} at=${row.timestamp} account=${row.account} />` },
  { title: t("erase.reason"), cell: (row) => html`<span class="value-text">${row.reason}</span>` },
];

const RELEASE = () => ({
  title: t("holds.released"),
  cell: ({ release }) => html`<${By} at=${release.timestamp} account=${release.account} /><br />
    <span class="value-text">${release.reason}</span>`,
});

/** The holds that were released: asked for when somebody wants to see them, page by page. */
function Released({ groupId }) {
  const [holds, setHolds] = useState(null);
  const [next, setNext] = useState(null);
  const [error, setError] = useState(null);
  const read = async () => {
    setError(null);
    try {
      const page = await operate("holds/released", { groupId, after: next ?? undefined, limit: PAGE });
      setHolds([...(holds ?? []), ...page.holds]);
      setNext(page.next);
    } catch (failure) {
      setError(failure);
    }
  };
  return html`
    ${holds && html`<h3>${t("holds.releasedTitle")}</h3>
      <${Table} label=${t("holds.releasedTitle")} rows=${holds} keyOf=${(row) => row.transHash} empty="–"
        columns=${[...COLUMNS(), RELEASE()]} />`}
    <${ErrorText} error=${error} />
    ${(holds === null || next !== null) && html`<${ActionButton} run=${read}>${t(holds ? "holds.more" : "holds.showReleased")}<//>`}`;
}

/** All holds of a group, those in force first. */
export function Holds({ groupId }) {
  const { data, error } = useCall((signal) => operate("holds/list", { groupId, limit: PAGE }, signal), [groupId]);
  return html`<${Section} title=${t("holds.title")}>
    <p class="quiet">${t("holds.about")}</p>
    <${ErrorText} error=${error} />
    ${data && html`<${Table} label=${t("holds.title")} rows=${data.holds} keyOf=${(row) => row.transHash} empty=${t("holds.none")}
      hasMore=${data.total > data.holds.length} columns=${COLUMNS()} />
      <${Released} key=${groupId} groupId=${groupId} />`}
    <${Command} words=${["admin", "hold", "list", ...(groupId === "1" ? [] : ["--group", groupId]), "--released"]} />
  <//>`;
}

/** The holds of an event, of which the first ones say who has asked for them and why. */
async function holdsOf(groupId, eventId, signal) {
  const { holds } = await operate("erase/preview", { groupId, events: [eventId] }, signal);
  const named = holds.slice(0, SHOWN).map(({ case: name }) => operate("holds/list", { groupId, case: name }, signal));
  const found = (await Promise.all(named)).flatMap((each) => each.holds);
  return { found, hasMore: holds.length > SHOWN };
}

/** Why an event cannot be erased, or the way to erase it. It is for operators. */
export function ErasingLink({ groupId, eventId }) {
  const { data, error } = useCall((signal) => holdsOf(groupId, eventId, signal), [groupId, eventId]);
  if (error) return html`<${ErrorText} error=${error} />`;
  if (!data) return null;
  if (!data.found.length) return html`<p><a href=${linkTo("operations", { events: eventId })}>${t("erase.link")}</a></p>`;
  return html`<p><strong>${t("holds.held")}</strong></p>
    <ul>${data.found.map((each) => html`<li key=${each.case}><strong class="name">${each.case}</strong>: ${each.reason}
      <br /><span class="quiet">${t("holds.from", { time: formatTime(each.timestamp), account: each.account })}</span></li>`)}</ul>
    ${data.hasMore && html`<p class="quiet">${t("table.more", { count: formatNumber(SHOWN) })}</p>`}
    <p><a href="#operations">${t("holds.all")}</a></p>`;
}

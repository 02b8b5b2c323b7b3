// A list of events: of each its id, time, topic, author, extensions and content.

import { html } from "./vendor/preact-htm.js";
import { IdentityField } from "./confidential.js";
import { closedOf, Content, Erased, isClosed, typeOf } from "./content.js";
import { EventLink, linkTo, Time } from "./parts.js";
import { t } from "./texts.js";

function EventItem({ event, groupId, format, isAlone }) {
  const extensions = Object.entries(event.extensions);
  return html`<li class="event">
    <div class="event-head">
      <${EventLink} id=${event.eventId} />
      <${Time} at=${event.timestamp} />
      ${!isAlone && html`<a class="name" href=${linkTo("topic", { name: event.topic })}>${event.topic}</a>`}
      ${event.author && html`<span>${t("event.author")} <code title=${event.author}>${event.author.slice(0, 12)}…</code></span>`}
      ${extensions.map(([key, value]) => html`<span class="extension"><code>${key}</code> ${value}</span>`)}
    </div>
    ${event.erased ? html`<${Erased} groupId=${groupId} topic=${event.topic} eventId=${event.eventId} />`
      : html`<${Content} base64=${event.content} format=${format} type=${typeOf(event)} closed=${closedOf(event)} />`}
  </li>`;
}

export function EventList({ events, groupId, format, isAlone, label }) {
  const isAnyClosed = events.some((each) => !each.erased && isClosed(each));
  return html`${isAnyClosed && html`<${IdentityField} />`}
  <ol class="events" aria-label=${label}>
    ${events.map((each) => html`<${EventItem} key=${each.eventId} event=${each}
      groupId=${groupId} format=${format} isAlone=${isAlone} />`)}
  </ol>`;
}

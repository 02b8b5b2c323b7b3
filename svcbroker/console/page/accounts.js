// The accounts: what is granted to them and why, their limits, and what they use.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { Badge, ErrorText, Section, Table, useCall } from "./parts.js";
import { formatNumber, t } from "./texts.js";

const EVERY = 10000;
const MOST = 1000;
const ACTIONS = ["publish", "subscribe", "open", "close", "admin", "operate", "metrics"];
const OF_GROUPS = ["admin", "operate", "metrics"];

/** May this account do that, and why? */
function Question({ groupId, accounts }) {
  const [action, setAction] = useState("publish");
  const [answer, setAnswer] = useState(null);
  const [error, setError] = useState(null);
  const hasTopic = !OF_GROUPS.includes(action);
  const names = accounts.map((each) => each.account).filter(Boolean);
  const submit = async (event) => {
    event.preventDefault();
    const { account, topic, clientId } = event.target.elements;
    setError(null);
    try {
      setAnswer(await ask("rest/explainAccess", {
        groupId, action, account: account?.value, topic: topic?.value, clientId: clientId.value.trim(),
      }));
    } catch (failure) {
      setAnswer(null);
      setError(failure);
    }
  };
  return html`<${Section} title=${t("accounts.question")}>
    <form class="row" onSubmit=${submit}>
      ${names.length > 1 && html`<label>${t("login.name")}
        <input name="account" list="account-names" autocapitalize="none" spellcheck=${false} required />
        <datalist id="account-names">${names.map((each) => html`<option value=${each}></option>`)}</datalist></label>`}
      <label>${t("accounts.action")}
        <select value=${action} onChange=${(event) => setAction(event.target.value)}>
          ${ACTIONS.map((each) => html`<option value=${each}>${t(`accounts.action.${each}`)}</option>`)}
        </select></label>
      ${hasTopic && html`<label>${t("topic.label")}
        <input name="topic" required autocapitalize="none" spellcheck=${false} /></label>`}
      <label>${t("accounts.clientId")}
        <input name="clientId" autocapitalize="none" spellcheck=${false} /></label>
      <button class="main">${t("accounts.ask")}</button>
    </form>
    <div role="status">${answer && html`<${Answer} answer=${answer} />`}</div>
    <${ErrorText} error=${error} />
  <//>`;
}

function Answer({ answer }) {
  const { granted, account, action, topic, reason, role } = answer;
  return html`<p>
    ${granted ? html`<${Badge} kind="good">${t("accounts.yes")}<//>` : html`<${Badge} kind="bad">${t("accounts.no")}<//>`}
    ${" "}${account && html`<strong>${account}:</strong> `}${t(`accounts.action.${action}`)} ${topic && html`<code>${topic}</code>`}
  </p>
  <p>${t("accounts.because")} <code lang="en">${reason}</code> ${role && t("accounts.ofRole", { role })}</p>`;
}

/** The grants of an account, below the roles that have them. */
function Grants({ grants }) {
  if (!grants.length) return html`<span class="quiet">${t("accounts.nothing")}</span>`;
  const roles = [...new Set(grants.map((each) => each.role))];
  return roles.map((role) => html`<div>
    ${role && html`<span class="quiet">${t("accounts.role", { role })}</span>`}
    ${grants.filter((each) => each.role === role).map((each) => html`<code class="key">${each.line}</code>`)}
  </div>`);
}

function Limits({ limits }) {
  const set = Object.entries(limits).filter(([, value]) => value !== null);
  if (!set.length) return html`<span class="quiet">${t("accounts.unlimited")}</span>`;
  return set.map(([name, value]) => html`<div>${t(`accounts.limit.${name}`, { value: formatNumber(value, 1) })}</div>`);
}

function nameOf(account, user) {
  if (!account) return html`<em>${t("accounts.anonymous")}</em>`;
  return html`<span class="name">${account}${account === user.account
    && html` <span class="quiet">${t("accounts.own")}</span>`}</span>`;
}

export default function Accounts({ group, user }) {
  const groupId = group;
  const accounts = useCall((signal) => ask("rest/listAccounts", { groupId, limit: MOST }, signal), [group, user], EVERY);
  if (!user.hasAccounts) return html`<p>${t("accounts.none")}</p>`;
  const rows = accounts.data?.accounts ?? [];
  return html`
    <${ErrorText} error=${accounts.error} />
    ${accounts.data && html`
      <${Question} groupId=${groupId} accounts=${rows} />
      <${Section} title=${t("page.accounts")}>
        <${Table} label=${t("page.accounts")} rows=${rows} keyOf=${(row) => row.account} empty=${t("accounts.noneSeen")}
          hasMore=${Boolean(accounts.data.next)} columns=${[
            { title: t("login.name"), cell: (row) => nameOf(row.account, user) },
            { title: t("accounts.grants"), cell: (row) => html`<${Grants} grants=${row.grants} />` },
            { title: t("accounts.limits"), cell: (row) => html`<${Limits} limits=${row.limits} />` },
            { title: t("accounts.connections"), isNumber: true, cell: (row) => formatNumber(row.connections) },
            { title: t("accounts.subscriptions"), isNumber: true, cell: (row) => formatNumber(row.subscriptions) },
          ]} />
      <//>`}`;
}

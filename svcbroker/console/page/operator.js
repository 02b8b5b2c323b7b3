// Operator calls: who may make them, and the log-in of those who may where there are no accounts.

import { html, useRef, useState } from "./vendor/preact-htm.js";
import { NOT_AUTHENTICATED, operate, session } from "./api.js";
import { ActionButton, announce, Badge, Command, ErrorText, explain, may, Section, Time, useCall } from "./parts.js";
import { t } from "./texts.js";

/** The configuration in force, which is asked for by operators only. */
export function useConfiguration(user, group, every = 0) {
  const call = may(user, group, "operate") ? (signal) => operate("configuration", {}, signal) : null;
  return useCall(call, [user, group], every);
}

/** The data directory, of a configuration. */
export const dataDirOf = (configuration) => configuration.settings.find((each) => each.name === "data-dir").values[0];

const listOf = (values) => values.filter(Boolean).join(", ") || t("configuration.empty");

/** What a reload would change, each in a line. */
function Difference({ found }) {
  const { settings, accounts, certificates, problems } = found;
  if (!settings.length && !accounts.length && !certificates.length && !problems.length) {
    return html`<p>${t("reload.nothing")}</p>`;
  }
  return html`
    ${problems.length > 0 && html`<ul class="error">${problems.map((each) => html`<li lang="en">${each}</li>`)}</ul>`}
    <ul>
      ${settings.map((each) => html`<li><code>${each.name}</code>: <code>${listOf(each.before)}</code> → <code>${listOf(each.after)}</code>
        ${each.needsRestart && html` <${Badge} kind="warn">${t("reload.restart")}<//>`}</li>`)}
      ${accounts.map((each) => html`<li>${each.account ? html`${t("login.name")} <strong class="name">${each.account}</strong>` : t("reload.limits")}:
        ${t(`reload.${each.kind}`)}${each.parts.length > 0 && ` (${each.parts.map((part) => t(`reload.part.${part}`)).join(", ")})`}</li>`)}
      ${certificates.map((each) => html`<li>${t("reload.certificate", { port: each.port })} <${Time} at=${each.validUntil} /></li>`)}
    </ul>`;
}

/** Read files again, after a look at what that would change; and what could not be used. */
export function Reload({ dataDir, onDone }) {
  const [found, setFound] = useState(null);
  const [problems, setProblems] = useState([]);
  const [error, setError] = useState(null);
  const call = async (name, take) => {
    setError(null);
    setFound(null);
    setProblems([]);
    try {
      take(await operate(name));
    } catch (failure) {
      setError(failure);
    }
  };
  const run = async () => {
    await call("reload", (answer) => {
      setProblems(answer.problems);
      if (!answer.problems.length) announce(t("configuration.reloaded"));
    });
    onDone();
  };
  return html`
    <div class="buttons">
      <${ActionButton} run=${() => call("reload/preview", setFound)}>${t("reload.preview")}<//>
      <${ActionButton} run=${run}>${t("configuration.reload")}<//>
    </div>
    <p class="quiet">${t("configuration.reloadHint")}</p>
    <div role="status">${found && html`<${Difference} found=${found} />`}</div>
    <${ErrorText} error=${error} />
    ${problems.length > 0 && html`<ul class="error" role="alert">${problems.map((each) => html`<li lang="en">${each}</li>`)}</ul>`}
    <${Command} words=${["admin", "reload", dataDir]} />`;
}

/** How to become an operator: by the token of operator.json, or by another account. */
export function OperatorNotice({ user, onLogIn }) {
  const [error, setError] = useState(null);
  const field = useRef(null);
  if (user.hasAccounts) return html`<p class="quiet">${t("operator.account")}</p>`;
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    try {
      onLogIn(await session.logIn("", field.current.value.trim()));
      announce(t("operator.loggedIn"));
    } catch (failure) {
      setError(failure);
      field.current.select();
    }
  };
  return html`<${Section} title=${t("operator.title")}>
    <form onSubmit=${submit}>
      <p id="operator-hint">${t("operator.hint")}</p>
      <label>${t("operator.token")}
        <input type="password" autocomplete="off" required ref=${field} aria-describedby="operator-hint" /></label>
      ${error && html`<p class="error" role="alert">
        ${error.code === NOT_AUTHENTICATED ? t("operator.wrong") : explain(error)}</p>`}
      <button class="main">${t("login.submit")}</button>
    </form>
  <//>`;
}

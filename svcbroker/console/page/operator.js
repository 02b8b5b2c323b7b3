// Operator calls: who may make them, and the log-in of those who may where there are no accounts.

import { html, useRef, useState } from "./vendor/preact-htm.js";
import { NOT_AUTHENTICATED, operate, session } from "./api.js";
import { announce, ErrorText, explain, may, Section, useCall } from "./parts.js";
import { t } from "./texts.js";

/** The configuration in force, which is asked for by operators only. */
export function useConfiguration(user, group, every = 0) {
  const call = may(user, group, "operate") ? (signal) => operate("configuration", {}, signal) : null;
  return useCall(call, [user, group], every);
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

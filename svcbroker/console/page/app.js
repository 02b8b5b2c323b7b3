// The frame of the console: log-in, navigation, and the page that the address names.

import { html, render, useEffect, useLayoutEffect, useRef, useState } from "./vendor/preact-htm.js";
import { AlarmCount, AlarmList, useAlarms } from "./alarms.js";
import { session } from "./api.js";
import { ErrorText, explain, Fold, may } from "./parts.js";
import { language, setLanguage, t } from "./texts.js";

// In the order of the navigation. A page is loaded when it is first shown.
const PAGES = {
  overview: () => import("./overview.js"),
  topics: () => import("./topics.js"),
  topic: () => import("./topic.js"),
  search: () => import("./search.js"),
  blocks: () => import("./blocks.js"),
  block: () => import("./block.js"),
  replicas: () => import("./replicas.js"),
  subscriptions: () => import("./subscriptions.js"),
  accounts: () => import("./accounts.js"),
  event: () => import("./event.js"),
  checkpoints: () => import("./checkpoints.js"),
  operations: () => import("./operations.js"),
  configuration: () => import("./configuration.js"),
};
// Pages that are reached from another one, and that one.
const BELOW = { topic: "topics", block: "blocks" };
// Pages that show nothing without a grant, and that grant.
const NEEDS = { blocks: "admin", block: "admin", replicas: "admin", operations: "operate", configuration: "operate" };

/** The page and the parameters in the address. */
function readAddress() {
  const [name, query] = location.hash.slice(1).split("?");
  return { name: Object.hasOwn(PAGES, name) ? name : "overview", parameters: new URLSearchParams(query) };
}

// Both are needed for the first page: neither waits for the other.
let asked = session.show();
asked.catch(() => {});
PAGES[readAddress().name]().catch(() => {});

function useAddress() {
  const [address, setAddress] = useState(readAddress);
  useEffect(() => {
    const change = () => setAddress(readAddress());
    addEventListener("hashchange", change);
    // It may have changed between the first look and now.
    change();
    return () => removeEventListener("hashchange", change);
  }, []);
  return address;
}

function LanguageButton({ onChange }) {
  const other = language === "en" ? "zh" : "en";
  const name = { en: "English", zh: "中文" }[other];
  const press = async () => {
    await setLanguage(other);
    onChange(other);
  };
  return html`<button type="button" class="plain" lang=${other === "zh" ? "zh-CN" : "en"} onClick=${press}>${name}</button>`;
}

function Login({ onDone, language }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const first = useRef(null);
  useEffect(() => first.current.focus(), []);
  const submit = async (event) => {
    event.preventDefault();
    const { name, password } = event.target.elements;
    setBusy(true);
    setError(null);
    try {
      onDone(await session.logIn(name.value.trim(), password.value));
    } catch (failure) {
      setError(failure);
      setBusy(false);
      password.focus();
      password.select();
    }
  };
  return html`<main class="login">
    <form class="panel" onSubmit=${submit}>
      <h1>${t("login.title")}</h1>
      <label>${t("login.name")}
        <input name="name" autocomplete="username" autocapitalize="none" spellcheck=${false} ref=${first}
          aria-describedby="login-hint" />
      </label>
      <p id="login-hint" class="hint">${t("login.hint")}</p>
      <label>${t("login.password")}
        <input name="password" type="password" autocomplete="current-password" required />
      </label>
      ${error && html`<p class="error" role="alert">${error.code === 101015 ? t("login.wrong") : explain(error)}</p>`}
      <button class="main" disabled=${isBusy}>${t("login.submit")}</button>
    </form>
  </main>`;
}

/**
 * The page that the address names, once it is loaded.
 *
 * @param given is for the page: the group, the user, and onLogIn, which is told of another user.
 */
function Page({ address, ...given }) {
  const [loaded, setLoaded] = useState(null);
  const [error, setError] = useState(null);
  // Before the browser paints: the first calls of the page are made a frame earlier.
  useLayoutEffect(() => {
    let isCurrent = true;
    setError(null);
    PAGES[address.name]().then(
      (module) => isCurrent && setLoaded({ name: address.name, Show: module.default }),
      (failure) => isCurrent && setError(failure),
    );
    return () => (isCurrent = false);
  }, [address.name]);
  const heading = useRef(null);
  const isFirst = useRef(true);
  const title = t(`page.${address.name}`);
  useEffect(() => {
    document.title = `${title} · svcbroker`;
    // A reader who has followed a link goes on at the beginning of the new page.
    if (!isFirst.current) heading.current.focus();
    isFirst.current = false;
  }, [address.name]);
  // Not asked at all: each refusal is an event of the audit trail.
  const isRefused = NEEDS[address.name] === "admin" && !may(given.user, given.group, "admin");
  const isReady = loaded?.name === address.name && !isRefused;
  return html`<main id="main">
    <h1 ref=${heading} tabindex="-1">${title}</h1>
    ${error && html`<p class="error" role="alert">${t("error.noAnswer", { reason: error.message })}</p>`}
    ${isRefused && html`<p class="quiet">${t("frame.notAdmin")}</p>`}
    ${isReady && html`<${loaded.Show} key=${given.group} parameters=${address.parameters} ...${given} />`}
  </main>`;
}

function GroupField({ groups, group, onChange }) {
  if (groups.length < 2) return null;
  return html`<label class="inline">${t("group")}
    <select value=${group} onChange=${(event) => onChange(event.target.value)}>
      ${groups.map((each) => html`<option value=${each}>${each}</option>`)}
    </select>
  </label>`;
}

/** Whether a page has something for the user: operators of this machine may log in on theirs. */
function hasUse(name, user, group) {
  const needed = NEEDS[name];
  if (!needed || may(user, group, needed) || (needed === "operate" && !user.hasAccounts)) return true;
  // Who holds events sees there what is held.
  return name === "operations" && may(user, group, "hold");
}

/** What concerns every page: so far, that the broker does not answer. */
function Notices() {
  const [isAway, setAway] = useState(false);
  useEffect(() => {
    const change = ({ detail }) => setAway(detail);
    addEventListener("brokeraway", change);
    return () => removeEventListener("brokeraway", change);
  }, []);
  return html`<div class="notices" role="status">${isAway && html`<p>${t("frame.away")}</p>`}</div>`;
}

/** How the navigation marks a page. */
function currentOf(name, shown) {
  if (name === shown) return "page";
  return BELOW[shown] === name ? "true" : undefined;
}

function Frame({ user, onLogIn, onLogOut, onLanguage }) {
  const address = useAddress();
  const alarms = useAlarms(user);
  const { groups } = user;
  const [chosen, setChosen] = useState(null);
  const group = groups.includes(chosen) ? chosen : groups[0];
  const skip = (event) => {
    event.preventDefault();
    document.getElementById("main").querySelector("h1").focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${skip}>${t("skip")}</a>
    <header>
      <div class="bar">
        <strong class="brand">svcbroker</strong>
        <${GroupField} groups=${groups} group=${group} onChange=${setChosen} />
        <span class="account">
          ${(user.account || user.hasSession) && html`<span>${user.account || t("operator.name")}</span>`}
          ${user.hasSession && html`<button type="button" class="plain" onClick=${onLogOut}>${t("logout")}</button>`}
          ${user.hasAccounts && !user.hasSession &&
            html`<button type="button" class="plain" onClick=${onLogOut}>${t("login.submit")}</button>`}
          <${LanguageButton} onChange=${onLanguage} />
        </span>
      </div>
      <nav aria-label=${t("navigation")}>
        <${Fold} key=${address.name} id="menu" label=${html`<span aria-hidden="true">☰ </span>${t(`page.${address.name}`)}`}>
          ${Object.keys(PAGES).filter((name) => !(name in BELOW) && hasUse(name, user, group)).map((name) => html`
            <a href=${`#${name}`} aria-current=${currentOf(name, address.name)}>${t(`page.${name}`)}<${AlarmCount} alarms=${alarms} page=${name} /></a>`)}
        <//>
      </nav>
      <${Notices} />
      <${AlarmList} alarms=${alarms} />
    </header>
    ${group === undefined
      ? html`<main id="main"><h1 tabindex="-1">${t(`page.${address.name}`)}</h1><p>${t("frame.nothing")}</p></main>`
      : html`<${Page} address=${address} group=${group} user=${user} onLogIn=${onLogIn} />`}`;
}

function App() {
  const [user, setUser] = useState(null);
  const [isLoggingIn, setLoggingIn] = useState(false);
  const [chosen, setChosen] = useState(language);
  const [error, setError] = useState(null);
  const show = (answer = session.show()) => answer.then((each) => (setUser(each), setError(null)), setError);
  useEffect(() => {
    show(asked);
    asked = undefined;
    // The session has ended, by time or with its account.
    const end = () => setUser((before) => before && { ...before, account: null, hasSession: false });
    // The grants have changed, or the session of an operator has ended; a restart ends all.
    const look = ({ detail: away }) => !away && session.show().then(
      (each) => setUser((before) => (JSON.stringify(each) === JSON.stringify(before) ? before : each)), () => {});
    addEventListener("loginneeded", end);
    addEventListener("callrefused", look);
    addEventListener("brokeraway", look);
    return () => {
      removeEventListener("loginneeded", end);
      removeEventListener("callrefused", look);
      removeEventListener("brokeraway", look);
    };
  }, []);
  const logOut = async () => {
    if (user.hasSession) await session.logOut().catch(() => {});
    setLoggingIn(user.hasAccounts);
    await show();
  };
  const logIn = (each) => {
    setLoggingIn(false);
    setUser(each);
  };
  let body = null;
  if (error && !user) {
    body = html`<main><h1>svcbroker</h1><${ErrorText} error=${error} /></main>`;
  } else if (user && (user.account === null || isLoggingIn)) {
    body = html`<header><div class="bar"><strong class="brand">svcbroker</strong>
      <span class="account"><${LanguageButton} onChange=${setChosen} /></span></div></header>
      <${Login} onDone=${logIn} />`;
  } else if (user) {
    body = html`<${Frame} user=${user} onLogIn=${logIn} onLogOut=${logOut} onLanguage=${setChosen} />`;
  }
  return html`<div key=${chosen}>${body}</div>
    <div id="announcements" class="hidden" role="status" aria-live="polite"></div>`;
}

render(html`<${App} />`, document.getElementById("app"));

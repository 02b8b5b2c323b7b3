// The calls of the broker: REST, the admin queries, and the session of the page.

// The base path of the broker, with a slash at its end.
const BASE = new URL("..", import.meta.url);

export const NOT_AUTHENTICATED = 101015;
export const NOT_AUTHORIZED = 101016;

/** The codes of errors after which the same call may succeed: overloaded, no ledger, behind others. */
export const TRANSIENT = new Set([200101, 200214, 200216]);

/** A call that the broker has refused, or that has not reached it. */
export class CallError extends Error {
  /**
   * @param {number} code of the error table; 0 where there was no answer.
   * @param erasure of an event whose content was erased: when, by whom and why.
   */
  constructor(code, message, erasure) {
    super(message);
    this.code = code;
    this.erasure = erasure;
  }
}

/** The address of a call; parameters that are undefined are left out. */
export function urlOf(path, parameters = {}) {
  const url = new URL(path, BASE);
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url;
}

let isAway = false;

/** Tell the frame, once, that the broker does not answer, or does again. */
function setAway(away) {
  if (away !== isAway) window.dispatchEvent(new CustomEvent("brokeraway", { detail: (isAway = away) }));
}

async function send(url, options) {
  let response, answer;
  try {
    response = await fetch(url, { cache: "no-store", ...options });
    answer = response.status === 204 ? null : await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    // Also a proxy that answers in the place of the broker, with a page of its own.
    setAway(true);
    throw new CallError(0, error.message);
  }
  setAway(false);
  // The published interface answers failures with status 200.
  if (answer !== null && typeof answer === "object" && answer.code) {
    if (answer.code === NOT_AUTHENTICATED && response.status === 401) {
      window.dispatchEvent(new Event("loginneeded"));
    }
    if (answer.code === NOT_AUTHORIZED) window.dispatchEvent(new Event("callrefused"));
    throw new CallError(answer.code, answer.message, answer.erased);
  }
  if (!response.ok) {
    setAway(true);
    throw new CallError(0, `HTTP ${response.status}`);
  }
  return answer;
}

// Calls that may name an event which the node must have executed first. Behind a load balancer, the
// next node may not have what this page has shown.
const AFTER = new Set(["exist", "state", "list", "getEvent", "events", "find", "proof", "topicProof", "checkpoint", "consistency"]
  .map((name) => `rest/${name}`));
const HEIGHT_UNKNOWN = 100304;
const DEFAULT_GROUP = "1";

// The newest event that was seen, by group.
const seen = new Map();

const heightOf = (eventId) => Number(eventId.slice(eventId.lastIndexOf("-") + 1));

/** The broker has told of an event. */
export function saw(groupId, eventId) {
  const group = groupId || DEFAULT_GROUP;
  if (!seen.has(group) || heightOf(eventId) > heightOf(seen.get(group))) seen.set(group, eventId);
}

/** A call that changes nothing; of admin queries the data alone. */
export async function ask(path, parameters, signal) {
  const group = parameters?.groupId || DEFAULT_GROUP;
  const after = AFTER.has(path) ? seen.get(group) : undefined;
  let answer;
  try {
    answer = await send(urlOf(path, { ...parameters, after }), { signal });
  } catch (error) {
    if (after === undefined || error.code !== HEIGHT_UNKNOWN) throw error;
    // The log was put back from a backup, or there is no such event.
    seen.delete(group);
    answer = await send(urlOf(path, parameters), { signal });
  }
  if (path === "rest/events") for (const { eventId } of answer.events) saw(group, eventId);
  return path.startsWith("admin/") ? answer.data : answer;
}

/** A file that the broker makes. */
export async function askFile(path, parameters) {
  let response;
  try {
    response = await fetch(urlOf(path, parameters), { cache: "no-store" });
    if (response.ok) return await response.blob();
  } catch (error) {
    throw new CallError(0, error.message);
  }
  const { code, message } = await response.json().catch(() => ({}));
  throw new CallError(code ?? 0, message ?? `HTTP ${response.status}`);
}

/** Parameters as the body of a form. Bytes that are no text are percent-encoded one by one. */
function formOf(path, parameters) {
  const all = Object.entries(parameters);
  const texts = Object.fromEntries(all.filter(([, value]) => !(value instanceof Uint8Array)));
  const form = urlOf(path, texts).searchParams;
  const bytes = all.filter(([, value]) => value instanceof Uint8Array).map(([name, value]) =>
    `${name}=${Array.from(value, (each) => `%${each.toString(16).padStart(2, "0")}`).join("")}`);
  return [form.toString(), ...bytes].filter(Boolean).join("&");
}

/** A call that changes something. Its parameters are in the body: no proxy logs them. */
export async function act(path, parameters) {
  const headers = { "Content-Type": "application/x-www-form-urlencoded;charset=UTF-8" };
  const answer = await send(urlOf(path), { method: "POST", headers, body: formOf(path, parameters ?? {}) });
  if (answer?.eventId) saw(parameters?.groupId, answer.eventId);
  return answer;
}

/** An operator call; the data of its answer. */
export async function operate(call, parameters = {}, signal) {
  const answer = await send(urlOf(`admin/operator/${call}`), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(parameters),
    signal,
  });
  return answer.data;
}

/** Whether the user may do something with a topic. Asking for what is not granted would be recorded. */
export async function isGranted(groupId, action, topic, signal) {
  return (await ask("rest/explainAccess", { groupId, action, topic }, signal)).granted;
}

export const session = {
  show: () => send(urlOf("console/session")),
  logIn: (name, password) =>
    send(urlOf("console/session"), {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ name, password }),
    }),
  logOut: () => send(urlOf("console/session"), { method: "DELETE" }),
};

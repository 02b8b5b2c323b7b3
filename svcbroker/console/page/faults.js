// Faults on purpose: replicas that stop, a network that is cut, slow or loses messages, and a load.

import { html, useEffect, useState } from "./vendor/preact-htm.js";
import { act, operate } from "./api.js";
import { ActionButton, announce, Badge, ErrorText, explain, Facts, Section } from "./parts.js";
import { formatNumber, t } from "./texts.js";

const ISLANDS = ["A", "B", "C", "D"];
// How often the load publishes, in milliseconds.
const PACE = 500;

/** Have a fault made, and tell of it. */
function useFault(groupId, onChange) {
  const [error, setError] = useState(null);
  const make = async (call, parameters = {}) => {
    setError(null);
    try {
      await operate(`faults/${call}`, { groupId, ...parameters });
      announce(t("done"));
    } catch (failure) {
      setError(failure);
    }
    onChange();
  };
  return [error, make];
}

/** Stop a replica, or start it. */
export function NodeButton({ groupId, row, onChange }) {
  const [error, make] = useFault(groupId, onChange);
  const call = row.isRunning ? "stop" : "start";
  return html`<${ActionButton} kind=${row.isRunning ? "danger" : ""} label=${t(`faults.${call}Label`, { node: row.index })}
      run=${() => make(call, { node: row.index })}>${t(`faults.${call}`)}<//>
    ${error && html`<br /><span class="bad">${explain(error)}</span>`}`;
}

/** Whether nothing passes between two replicas, in words. */
function cutText(cut) {
  if (!cut.length) return t("faults.nothingCut");
  return cut.map(([from, to]) => `${from}→${to}`).join(" ");
}

function CutForm({ nodes, cut, make }) {
  const [islands, setIslands] = useState({});
  const choose = (node, island) => setIslands({ ...islands, [node]: island });
  const submit = (event) => {
    event.preventDefault();
    const named = ISLANDS.map((island) =>
      nodes.filter(({ index }) => (islands[index] ?? "A") === island).map(({ index }) => index));
    const wanted = named.filter((each) => each.length);
    return make("network", { islands: wanted.length > 1 ? wanted : [] });
  };
  return html`<form onSubmit=${submit}>
    <fieldset>
      <legend>${t("faults.islands")}</legend>
      <div class="row">${nodes.map(({ index }) => html`<label class="inline">${t("replicas.node", { node: index })}
        <select value=${islands[index] ?? "A"} onChange=${(event) => choose(index, event.target.value)}>
          ${ISLANDS.map((each) => html`<option value=${each}>${each}</option>`)}
        </select></label>`)}
      </div>
    </fieldset>
    <button>${t("faults.cut")}</button>
    <p class="quiet">${t("faults.cutNow")} ${cutText(cut)}</p>
  </form>`;
}

function NetworkForm({ report, make }) {
  const [shortest, longest] = report.delay;
  const submit = (event) => {
    event.preventDefault();
    const number = (name) => Number(event.target.elements[name].value);
    return make("network", { delay: [number("shortest"), number("longest")], loss: number("loss") / 100 });
  };
  const field = (name, value, most) => html`<label>${t(`faults.${name}`)}
    <input name=${name} type="number" min="0" max=${most} step="any" defaultValue=${value} required /></label>`;
  return html`<form class="row" onSubmit=${submit}>
    ${field("shortest", shortest, 60)}
    ${field("longest", longest, 60)}
    ${field("loss", Number((report.loss * 100).toPrecision(12)), 100)}
    <button>${t("faults.apply")}</button>
  </form>`;
}

/** Publishes twice a second, so that there is something to decide. */
function Load({ groupId }) {
  const [topic, setTopic] = useState("test/faults");
  const [isOn, setOn] = useState(false);
  const [counts, setCounts] = useState({ done: 0, failed: 0, latest: null, longest: 0 });
  const [error, setError] = useState(null);
  useEffect(() => {
    if (!isOn) return undefined;
    let isCurrent = true;
    const publish = async () => {
      const began = performance.now();
      try {
        const answer = await act("rest/publish", { topic, groupId, content: new Date().toISOString() });
        if (!isCurrent) return;
        const took = performance.now() - began;
        const isDone = answer.status === "SUCCESS";
        setCounts(({ done, failed, longest }) => ({
          done: done + isDone, failed: failed + !isDone, latest: took, longest: Math.max(longest, took) }));
      } catch (failure) {
        if (isCurrent) {
          setError(failure);
          setCounts((old) => ({ ...old, failed: old.failed + 1 }));
        }
      }
    };
    const timer = setInterval(publish, PACE);
    return () => {
      isCurrent = false;
      clearInterval(timer);
    };
  }, [isOn, topic, groupId]);
  const submit = async (event) => {
    event.preventDefault();
    setError(null);
    if (isOn) return setOn(false);
    setCounts({ done: 0, failed: 0, latest: null, longest: 0 });
    try {
      await act("rest/open", { topic, groupId });
    } catch (failure) {
      return setError(failure);
    }
    return setOn(true);
  };
  const milliseconds = (value) => (value === null ? "–" : `${formatNumber(value)} ms`);
  const figures = [
    [t("publish.final"), formatNumber(counts.done)],
    [t("faults.failed"), formatNumber(counts.failed)],
    [t("faults.latestTook"), milliseconds(counts.latest)],
    [t("faults.longestTook"), milliseconds(counts.longest || null)],
  ];
  return html`<${Section} title=${t("faults.load")}>
    <p class="quiet">${t("faults.loadHint")}</p>
    <form class="row" onSubmit=${submit}>
      <label>${t("topic.label")}<input value=${topic} disabled=${isOn} required spellcheck=${false}
        onInput=${(event) => setTopic(event.target.value)} /></label>
      <button class=${isOn ? "" : "main"}>${t(isOn ? "faults.loadStop" : "faults.loadStart")}</button>
    </form>
    <${Facts} rows=${figures} />
    <${ErrorText} error=${error} />
  <//>`;
}

export function Faults({ groupId, report, onChange }) {
  const [error, make] = useFault(groupId, onChange);
  const { nodes, evidence } = report;
  const running = nodes.filter((each) => each.running).length;
  const heal = html`<${ActionButton} kind="main" run=${() => make("heal")}>${t("faults.heal")}<//>`;
  // A change from elsewhere makes the form anew.
  const key = JSON.stringify([report.delay, report.loss]);
  return html`<div class="columns">
    <${Section} title=${t("faults.title")} actions=${heal}>
      <p>${t("faults.quorum", { running, nodes: nodes.length, quorum: report.quorum })}
        ${running < report.quorum && html` <${Badge} kind="bad">${t("faults.noQuorum")}<//>`}</p>
      <${CutForm} nodes=${nodes} cut=${report.cut} make=${make} />
      <h3 class="below">${t("faults.network")}</h3>
      <${NetworkForm} key=${key} report=${report} make=${make} />
      ${evidence.length > 0 && html`<h3>${t("faults.evidence")}</h3>
        <ul>${evidence.map((each) => html`<li>${t("faults.contradicted",
          { node: each.node, height: formatNumber(each.blockNumber), round: each.round })}</li>`)}</ul>`}
      <${ErrorText} error=${error} />
    <//>
    <${Load} groupId=${groupId} />
  </div>`;
}

// The configuration that is in force.

import { html, useState } from "./vendor/preact-htm.js";
import { ask } from "./api.js";
import { dataDirOf, OperatorNotice, Reload, useConfiguration } from "./operator.js";
import { Badge, ErrorText, Facts, may, Section, Table, Time, useCall } from "./parts.js";
import { formatBytes, t } from "./texts.js";

const EVERY = 10000;

/** The value of a setting, and what has given it. */
function Value({ row }) {
  const values = row.values.filter(Boolean);
  const isDefault = row.source === "default";
  return html`
    ${values.length ? values.map((each) => html`<code class="key">${each}</code>`) : html`<span>${t("configuration.empty")}</span>`}
    <div class="quiet">${t(`configuration.source.${row.source}`)}
      ${!isDefault && html`; ${t("configuration.default")} <code lang="en">${row.default}</code>`}</div>
    ${row.needsRestart && html`<${Badge} kind="warn">${t("configuration.needsRestart")}<//>`}`;
}

function Settings({ settings }) {
  const [search, setSearch] = useState("");
  const [isShort, setShort] = useState(false);
  const wanted = search.trim().toLowerCase();
  const rows = settings.filter((each) =>
    (!isShort || each.source !== "default") && `${each.name} ${each.help}`.toLowerCase().includes(wanted));
  return html`<${Section} title=${t("configuration.settings")}>
    <form class="row" role="search" onSubmit=${(event) => event.preventDefault()}>
      <label>${t("topics.search")}
        <input type="search" value=${search} spellcheck=${false} onInput=${(event) => setSearch(event.target.value)} /></label>
      <label class="inline"><input type="checkbox" checked=${isShort}
        onChange=${(event) => setShort(event.target.checked)} />${t("configuration.changed")}</label>
    </form>
    <p class="quiet" role="status">${t("configuration.found", { found: rows.length, total: settings.length })}</p>
    <${Table} label=${t("configuration.settings")} rows=${rows} keyOf=${(row) => row.name}
      empty=${t("configuration.none")} columns=${[
        { title: t("configuration.name"), cell: (row) =>
          html`<code>${row.name}</code><br /><span class="quiet" lang="en">${row.help}</span>` },
        { title: t("configuration.value"), cell: (row) => html`<${Value} row=${row} />` },
      ]} />
  <//>`;
}

/** How much memory each kind may take. */
function Memory({ bounds, memory }) {
  const total = bounds.filter((each) => !each.each).reduce((sum, each) => sum + each.bytes, 0);
  return html`<${Section} title=${t("configuration.memory")}>
    <p>${t("configuration.memorySum", { total: formatBytes(total), memory: formatBytes(memory) })}
      ${total > memory && html` <${Badge} kind="warn">${t("configuration.memoryOver")}<//>`}</p>
    <${Table} label=${t("configuration.memory")} rows=${bounds} keyOf=${(row) => `${row.name} ${row.how}`}
      empty=${t("configuration.none")} columns=${[
        { title: t("configuration.bound"), cell: (row) =>
          html`<span lang="en">${row.name}</span><br /><span class="quiet" lang="en">${row.how}</span>` },
        { title: t("configuration.atMost"), cell: (row) =>
          html`${formatBytes(row.bytes)}${row.each && html` <span class="quiet">${t("configuration.each")}</span>`}` },
      ]} />
  <//>`;
}

export default function Configuration({ group, user, onLogIn }) {
  const configuration = useConfiguration(user, group, EVERY);
  const isAdmin = may(user, group, "admin");
  const version = useCall(isAdmin ? (signal) => ask("admin/getVersion", {}, signal) : null, [user]);
  const { data, error } = configuration;
  if (!may(user, group, "operate")) return html`<${OperatorNotice} user=${user} onLogIn=${onLogIn} />`;
  if (!data) return html`<${ErrorText} error=${error} />`;
  const facts = [
    [t("configuration.version"), version.data ? `svcbroker ${version.data.svcVersion}` : "…"],
    [t("configuration.file"), data.file ? html`<code>${data.file}</code>` : t("configuration.noFile")],
    [t("configuration.started"), html`<${Time} at=${data.startedAt} />`],
    [t("configuration.reloadedAt"), data.reloadedAt ? html`<${Time} at=${data.reloadedAt} />` : t("configuration.never")],
  ];
  return html`
    <${ErrorText} error=${error} />
    <${Section} title=${t("configuration.broker")}>
      <${Facts} rows=${facts} />
      <div class="below"><${Reload} dataDir=${dataDirOf(data)} onDone=${configuration.reload} /></div>
    <//>
    <${Settings} settings=${data.settings} />
    ${data.bounds.length > 0 && html`<${Memory} bounds=${data.bounds} memory=${data.memory} />`}`;
}

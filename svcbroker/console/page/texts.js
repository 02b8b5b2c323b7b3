// The texts of the page in the language of its reader, and how numbers and times are written in it.

// One of them is loaded at a time.
const TABLES = { en: () => import("./texts.en.js"), zh: () => import("./texts.zh.js") };
const KEY = "svcbroker-language";

function preferred() {
  const kept = localStorage.getItem(KEY);
  if (Object.hasOwn(TABLES, kept)) return kept;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export let language;
let table;
let alarms;
let sentences;

async function use(chosen) {
  let told;
  ({ default: table, alarms = {}, told = {} } = await TABLES[chosen]());
  sentences = Object.entries(told).map(([english, words]) => [patternOf(english), words]);
  language = chosen;
  document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
}

/** What matches a sentence whatever values it has. */
function patternOf(sentence) {
  const parts = sentence.split(/\{(\w+)\}/).map((part, index) =>
    (index % 2 ? `(?<${part}>${part === "number" ? "[\\d.,]+" : ".+?"})` : part.replace(/[^\w ]/g, "\\$&")));
  return new RegExp(`^${parts.join("")}$`, "s");
}

await use(preferred());

/** Have all texts in a language, from when this is done. */
export async function setLanguage(chosen) {
  await use(chosen);
  localStorage.setItem(KEY, chosen);
}

/** A text, with each {name} in it replaced by the value of that name. */
export function t(key, values = {}) {
  return table[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
}

/** What an alarm is, means and asks for; in English the broker itself says it. */
export function alarmTexts({ name, title, meaning, remedy }) {
  return alarms[name] ?? [title, meaning, remedy];
}

/**
 * What the broker has written, in the language of the reader. Whole sentences are looked up first, then what is
 * between semicolons, then what is before and after a colon. What is not known stays: it may be of another system.
 */
export function tell(text) {
  for (const [pattern, words] of sentences) {
    const found = pattern.exec(text);
    if (found) return words.replace(/\{(\w+)\}/g, (_, name) => tell(found.groups[name]));
  }
  for (const [mark, chosen] of [["; ", "；"], [": ", "："]]) {
    const at = text.indexOf(mark);
    if (at < 0) continue;
    const parts = [text.slice(0, at), text.slice(at + mark.length)];
    const told = parts.map(tell);
    return told.every((each, index) => each === parts[index]) ? text : told.join(chosen);
  }
  return text;
}

/** The lines of the doctor: alarms in the language of the reader, other findings as the command prints them. */
export function tellFindings(lines) {
  if (!sentences.length) return lines;
  let alarm;
  return lines.map((line) => {
    const [, level, subject, text] = /^(problem|warning) +([^:]+): (.*)$/.exec(line) ?? [];
    if (!level) return alarm && line.startsWith(" ") ? `  ${alarm[line.includes(" -> ") ? 2 : 1]}` : tell(line);
    alarm = subject.startsWith("alarm ") ? alarms[subject.slice(6)] : undefined;
    return `${tell(level)}  ${alarm?.[0] ?? subject}: ${tell(text)}`;
  });
}

// To make one takes longer than all else that a cell of a table does.
const formats = new Map();

/** The format of numbers with some options, in the language of the reader. */
function formatOf(options) {
  const key = `${language} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(language, options));
  return formats.get(key);
}

export function formatNumber(value, digits = 0) {
  return formatOf({ maximumFractionDigits: digits }).format(value);
}

const digits = (number) => String(number).padStart(2, "0");

/** A time in milliseconds since the epoch, in the reader's zone, which it names: the same in each language. */
export function formatTime(milliseconds) {
  const time = new Date(milliseconds);
  const date = [time.getFullYear(), time.getMonth() + 1, time.getDate()].map(digits).join("-");
  const clock = [time.getHours(), time.getMinutes(), time.getSeconds()].map(digits).join(":");
  return `${date} ${clock} ${formatZone(milliseconds)}`;
}

/** A number of bytes, by a unit that fits. */
export function formatBytes(bytes) {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  // The short form of the unit itself has no plural.
  const unitDisplay = power ? "short" : "long";
  return formatOf({ style: "unit", unit: units[power], unitDisplay, maximumFractionDigits: 1 }).format(bytes / 1000 ** power);
}

/** Seconds that are less than one, mostly. */
export function formatMilliseconds(seconds) {
  return formatOf({ style: "unit", unit: "millisecond", maximumSignificantDigits: 2 }).format(seconds * 1000);
}

/** The time of day of seconds since the epoch, as formatTime has it. */
export function formatClock(seconds) {
  const time = new Date(seconds * 1000);
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(digits).join(":");
}

/** The zone of the reader at a time in milliseconds since the epoch. */
export function formatZone(milliseconds) {
  const ahead = -new Date(milliseconds).getTimezoneOffset();
  const size = Math.abs(ahead);
  return ahead ? `${ahead < 0 ? "-" : "+"}${digits(Math.floor(size / 60))}:${digits(size % 60)}` : "UTC";
}

/** A duration, by its largest unit. */
export function formatSeconds(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const [unit, size] = units.find(([, each]) => seconds >= each) ?? units.at(-1);
  return formatOf({ style: "unit", unit, maximumFractionDigits: 0 }).format(Math.floor(seconds / size));
}

/** Milliseconds of a time as admin queries write it: UTC. */
export function parseUtc(text) {
  return Date.parse(`${text.replace(" ", "T")}Z`);
}

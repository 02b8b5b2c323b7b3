// The page of a bundle: verifies the proofs that are in it, and other bundles.

import { H, join, need, parse, toHex, unhex } from "./verify.mjs";
import { decode, parsePolicy, verifyLogProof } from "./verify-log.mjs";
import { contentBytes, isClosed, openContent } from "./reveal.mjs";
import { covers, placeOf, readReceipt, RECEIPT } from "./receipts.mjs";

const FORMAT = "svcbroker/bundle/1";
const MANIFEST = "manifest.json";
const POLICY = "policy.txt";
const PROOFS = "proofs/";
const PROOF_SUFFIX = ".tlog-proof";
const STAMPS = "timestamps/";
const ERASURES = "erasures.json"; // what the broker has said of erased events
const REVEALS = "reveals.json"; // the keys of closed contents
const OTHERS = [POLICY, ERASURES, REVEALS, "README.txt", "verify.html"];
const MAX_SIZE = 256 * 1024 * 1024;
const MAX_FILES = 65535;
const TIME = [0, 0, 33, 0]; // 1 January 1980

function fromBase64(value) {
  return Uint8Array.from(atob(value), (each) => each.charCodeAt(0));
}

// Archives: ZIP without compression, of which every byte follows from the files

const CRC = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function crcOf(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = CRC[(value ^ byte) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

function little(size, ...values) {
  const bytes = new Uint8Array(size * values.length);
  values.forEach((value, at) => {
    for (let each = 0; each < size; each += 1) bytes[at * size + each] = (value >>> (8 * each)) & 255;
  });
  return bytes;
}

const two = (...values) => little(2, ...values);
const four = (...values) => little(4, ...values);

async function encodeArchive(files) {
  const names = Object.keys(files).sort();
  const hashes = {};
  for (const name of names) hashes[name] = toHex(await H(files[name]));
  const manifest = `${JSON.stringify({ files: hashes, format: FORMAT }, null, 1)}\n`;
  const all = { ...files, [MANIFEST]: join(manifest) };
  const local = [];
  const central = [];
  let at = 0;
  for (const name of Object.keys(all).sort()) {
    const data = all[name];
    const shared = join(two(20, 0, 0), Uint8Array.from(TIME), four(crcOf(data), data.length, data.length),
      two(name.length, 0));
    const head = join("PK\x03\x04", shared, name);
    central.push(join("PK\x01\x02", Uint8Array.from([20, 3]), shared, two(0, 0, 0),
      four((0o100644 << 16) >>> 0, at), name));
    local.push(head, data);
    at += head.length + data.length;
  }
  const directory = join(...central);
  const count = central.length;
  return join(...local, directory, "PK\x05\x06", two(0, 0, count, count), four(directory.length, at), two(0));
}

async function decodeArchive(bytes) {
  need(bytes.length <= MAX_SIZE, "the archive is too large");
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const files = {};
  let at = 0;
  while (at + 30 <= bytes.length && view.getUint32(at, true) === 0x04034b50) {
    const size = view.getUint32(at + 18, true);
    const start = at + 30 + view.getUint16(at + 26, true);
    const name = String.fromCharCode(...bytes.slice(at + 30, start));
    need(start + size <= bytes.length && !Object.hasOwn(files, name), "the archive is not one");
    files[name] = bytes.slice(start, start + size);
    at = start + size;
  }
  const manifest = new TextDecoder().decode(files[MANIFEST] ?? new Uint8Array());
  const format = /"format": "(svcbroker\/bundle\/[0-9]{1,4})"\n}\n$/.exec(manifest)?.[1];
  need(!format || format === FORMAT, `this page does not read ${format}: use that of a newer svcbroker`);
  delete files[MANIFEST];
  need(Object.keys(files).length < MAX_FILES, "the archive has too many files");
  const again = await encodeArchive(files);
  need(again.length === bytes.length && again.every((each, place) => each === bytes[place]),
    "a byte of the archive is not what was written");
  return files;
}

// Verification

// What the broker has said of erased events, by their ids.
function readErasures(bytes) {
  const said = parse(bytes);
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const isNote = (note) => isObject(note) && Object.keys(note).length === 4
    && Number.isSafeInteger(note.timestamp)
    && [note.account, note.reason, note.transHash].every(
      (each) => typeof each === "string" && !/\p{Surrogate}/u.test(each));
  need(isObject(said) && Object.values(said).every(isNote), `${ERASURES} is not one`);
  return said;
}

// The keys of closed contents, by the ids of their events.
function readReveals(bytes) {
  const keys = parse(bytes);
  need(keys !== null && typeof keys === "object" && !Array.isArray(keys)
    && Object.values(keys).every((each) => typeof each === "string"), `${REVEALS} is not one`);
  return keys;
}

// What a closed event says; undefined where its key is not here.
async function openedBy(event, key) {
  if (key === undefined) return undefined;
  need(!("commitment" in event) && isClosed(event.extensions), "there is a key, and the event is not closed");
  return openContent(contentBytes(event), event.extensions, unhex(key, 16));
}

// A bundle has what it has to have, and nothing else.
function checkFiles(files) {
  for (const name of Object.keys(files)) {
    const isProof = name.startsWith(PROOFS) && name.endsWith(PROOF_SUFFIX);
    need(isProof || name.startsWith(STAMPS) || OTHERS.includes(name),
      `the file ${name.slice(0, 80)} is not known`);
  }
  need(Object.hasOwn(files, POLICY), "the archive has no policy");
  decode(files[POLICY]);
}

async function verifyFiles(files, policyText) {
  const policy = await parsePolicy(policyText);
  const said = Object.hasOwn(files, ERASURES) ? readErasures(files[ERASURES]) : {};
  const keys = Object.hasOwn(files, REVEALS) ? readReveals(files[REVEALS]) : {};
  const results = [];
  for (const name of Object.keys(files).filter((each) => each.startsWith(PROOFS)).sort()) {
    const id = name.slice(PROOFS.length, -PROOF_SUFFIX.length);
    try {
      const result = await verifyLogProof(files[name], policy);
      need(result.event.eventId === id, "the proof is of another event");
      const opened = await openedBy(result.event, Object.hasOwn(keys, id) ? keys[id] : undefined);
      results.push({ id, ...result, opened, erasure: Object.hasOwn(said, id) ? said[id] : null });
    } catch (error) {
      const isOld = error.name === "NotSupportedError";
      results.push({ id, error: isOld ? "this browser cannot verify Ed25519 signatures" : error.message });
    }
  }
  need(results.length, "there are no proofs");
  need(Object.keys(keys).every((each) => results.some(({ id }) => id === each)),
    "there is a key of an event that is not here");
  return results;
}

async function verifyBundle(bytes, policyText) {
  const files = await decodeArchive(bytes);
  checkFiles(files);
  const results = await verifyFiles(files, policyText ?? decode(files[POLICY]));
  const bad = results.find((each) => each.error);
  need(!bad, `${bad?.id}: ${bad?.error}`);
  return results;
}

// Receipts

const EXPECTED = "svcbroker/recipients/1";
const EXPECTED_TOPICS = "recipients/";
const SILENCE = "Silence proves nothing: who has signed no receipt may have received all the same.";

function asReceipt({ event }) {
  if (isBare({ event }) || event.content === undefined || event.content.length > 4096) return undefined;
  try {
    const said = JSON.parse(event.content);
    return said?.format === RECEIPT ? said : undefined;
  } catch {
    return undefined;
  }
}

function receiptText({ event, receipt }) {
  const done = receipt.means === "processed" ? "had processed" : "had received";
  return `key ${event.author} signed at ${timeText(event.signedAt)} that it ${done} all events of `
    + `${JSON.stringify(receipt.topic)} up to number ${receipt.number} (${receipt.eventId})`;
}

function silentFor(event, covering, expected) {
  const names = Object.hasOwn(expected, event.topicName) ? expected[event.topicName].names : [];
  return names.map((name) => `receipts/${name}`).sort()
    .filter((topic) => covering.every((each) => each.event.topicName !== topic))
    .map((topic) => `${topic} has signed nothing that is here`);
}

// The recipients that are expected for topics, by the newest events that say so.
function expectedOf(results) {
  const found = {};
  for (const { event, chain, block } of [...results].sort((one, other) => one.block.height - other.block.height)) {
    if (!event.topicName.startsWith(EXPECTED_TOPICS) || typeof event.content !== "string") continue;
    const topic = event.topicName.slice(EXPECTED_TOPICS.length);
    try {
      const said = parse(join(event.content));
      need(said.format === EXPECTED && said.chain === chain && said.topic === topic, "it is another list");
      need(said.recipients.every((each) => typeof each === "string"), "a name is none");
      found[topic] = { id: event.eventId, names: said.recipients, height: block.height };
    } catch {
      continue; // it is shown as any other event
    }
  }
  return found;
}

// Both sides, a sentence for each event that is no receipt; nothing where there are no receipts.
async function sidesOf(results) {
  const good = results.filter((each) => !each.error);
  const found = good.filter(asReceipt);
  const expected = expectedOf(good);
  const lists = Object.values(expected).map(({ id }) => id);
  if (!found.length && !lists.length) return [];
  const texts = [];
  const receipts = [];
  for (const each of found) {
    try {
      receipts.push({ ...each, receipt: await readReceipt(each) });
    } catch (error) {
      texts.push(`${each.id} is no receipt that can be believed: ${error.message}`);
    }
  }
  for (const { event, chain, block } of good.filter((each) => !asReceipt(each) && !lists.includes(each.id))) {
    const covering = receipts.filter((each) => each.chain === chain && covers(each.receipt, event));
    const said = "author" in event ? `said by key ${event.author} at ${timeText(event.signedAt)}`
      : `said by nobody who has signed it, in block ${block.height}`;
    texts.push(`${event.eventId}: ${said}, number ${placeOf(event.eventId).number} of ${
      JSON.stringify(event.topicName)}; ${
      [...covering.map(receiptText), ...silentFor(event, covering, expected)].join("; ") || "nobody has signed a receipt for it here"}`);
  }
  return [...texts, SILENCE];
}

// The page

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function timeText(milliseconds) {
  const time = new Date(milliseconds);
  return Number.isNaN(time.getTime()) ? `${milliseconds} milliseconds after 1970` : time.toISOString();
}

// Whether the proof does not have what the event said.
const isBare = ({ event }) => "commitment" in event;

function shownContent(event) {
  const bytes = event.content === undefined ? fromBase64(event.contentBase64) : join(event.content);
  if (!bytes.length) return "empty: 0 bytes";
  if (event.content !== undefined) return event.content;
  return `${bytes.length} bytes that are no text:\n${toHex(bytes)}`;
}

// The content of a closed event, as an event that is not closed has it.
function asOpen(opened) {
  try {
    return { content: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(opened) };
  } catch {
    return { contentBase64: btoa(Array.from(opened, (each) => String.fromCharCode(each)).join("")) };
  }
}

function contentLines({ event, erasure, opened }) {
  if (!isBare({ event }) && isClosed(event.extensions)) {
    const size = `${contentBytes(event).length} bytes`;
    if (!opened) return [["Content", `closed: ${size} that only its recipients can read, and that are proved`]];
    return [
      ["Content", element("pre", { tabIndex: 0, textContent: shownContent(asOpen(opened)) })],
      ["Opened", `it was closed, in ${size}; the key that opens it was added to these proofs, and is the right one`],
    ];
  }
  if (!isBare({ event })) {
    return [["Content", element("pre", { tabIndex: 0, textContent: shownContent(event) })]];
  }
  const still = "that there was such an event: its topic, number, block and public extensions";
  const proved = ["Still proved", `${still}${"author" in event ? ", and the key of its author" : ""}`];
  if (!erasure) {
    const kind = isClosed(event.extensions) ? "withheld, or erased: what was closed is not in this proof"
      : "withheld, or erased: it is not in this proof";
    return [["Content", kind], proved];
  }
  const by = erasure.account ? `the account "${erasure.account}"` : "a user of the broker's machine";
  return [
    ["Content", `erased at ${timeText(erasure.timestamp)} by ${by}`],
    ["Reason", erasure.reason],
    ["Not proved", "when, by whom and why it was erased: the broker said so"],
    proved,
  ];
}

function authorText(event) {
  if (!("author" in event)) return "nobody: no author has signed this event";
  const signed = `key ${event.author}, at ${timeText(event.signedAt)} by the author's clock`;
  return isBare({ event })
    ? `${signed}; the signature was removed with the content, and is not checked here` : signed;
}

// The number that the topic had to have, and whether the author's statement has it, too.
function expectedLines(event) {
  if (!("author" in event) || !("expectedSequence" in event || "statement" in event)) return [];
  const by = "statement" in event ? "in what the author has signed"
    : "given by the sender: it is not in what the author has signed";
  return [["Expected number", `${event.expectedSequence ?? "none"}, ${by}`]];
}

function lines(pairs) {
  const list = element("dl");
  for (const [term, value] of pairs) {
    list.append(element("dt", { textContent: term }), element("dd", {}, value));
  }
  return list;
}

// Who has executed what was cosigned, as the names of the keys of witnesses say.
function executedText({ witnesses }) {
  const names = witnesses.filter(({ key }) => key.split("+")[0].endsWith("/executed")).map(({ name }) => name);
  return names.length ? names.join(", ")
    : "nobody: these witnesses have seen that the log grows, and none of them has executed it";
}

function article({ id, error, event, erasure, opened, block, checkpoint }) {
  if (error) {
    return element("article", { className: "bad" }, element("h3", { textContent: id }),
      element("p", { textContent: `NOT PROVED: ${error}` }));
  }
  // Witnesses count whole seconds.
  const times = checkpoint.witnesses.map(({ name, time }) =>
    `${name}: not later than ${timeText((time + 1) * 1000)}`);
  const extensions = Object.entries(event.extensions ?? {}).map(([name, value]) => `${name}: ${value}`);
  return element("article", {}, element("h3", { textContent: event.topicName }), lines([
    ["Event", event.eventId],
    ...contentLines({ event, erasure, opened }),
    ...(extensions.length ? [["Extensions", extensions.join(", ")]] : []),
    ["author" in event && isBare({ event }) ? "Author named" : "Signed by", authorText(event)],
    ...expectedLines(event),
    ["Seen by witnesses", times.length ? element("span", {}, ...times.flatMap((each, at) =>
      (at ? [element("br"), each] : [each]))) : "none: the policy needs no witness"],
    ...(times.length ? [["Executed by", executedText(checkpoint)]] : []),
    ["Block", `${block.height}, of ${timeText(block.timestamp)} by the broker's clock`],
    ["Log", checkpoint.origin],
  ]));
}

function sidesArticle(texts) {
  return element("article", {}, element("h3", { textContent: "Who said what, and who has received it" }),
    ...texts.map((each) => element("p", { textContent: each })));
}

function show(verdict, isGood, results = [], sides = []) {
  const place = document.getElementById("verdict");
  place.textContent = verdict;
  place.className = isGood ? "good" : "bad";
  document.getElementById("events").replaceChildren(
    ...(sides.length ? [sidesArticle(sides)] : []), ...results.map(article));
}

// What is said of proofs that all hold.
function verdictOf(results) {
  const { length } = results;
  const bare = results.filter(isBare).length;
  const unseen = results.filter(({ checkpoint }) => !checkpoint.witnesses.length).length;
  const some = (count) => (length === 1 ? "it" : count === length ? "any of them" : `${count} of them`);
  const proved = length === 1 ? "The event is proved" : `All ${length} events are proved`;
  const without = length === 1 ? ", without its content"
    : `, ${bare === length ? "all" : bare} of them without content`;
  return `${proved}${bare ? without : ""}, if the keys below are the right ones.${
    unseen ? ` No witness has seen ${some(unseen)}: this rests on the log's own key alone.` : ""}`;
}

async function showResults(results) {
  const sides = await sidesOf(results);
  const bad = results.filter((each) => each.error).length;
  show(bad ? `NOT PROVED: ${bad} of ${results.length}` : verdictOf(results), !bad, results, sides);
}

async function trying(work) {
  try {
    await showResults(await work());
  } catch (error) {
    show(`NOT PROVED: ${error.message}`, false);
  }
}

function startPage() {
  const encoded = JSON.parse(document.getElementById("data").textContent);
  let files = Object.fromEntries(
    Object.entries(encoded).map(([name, value]) => [name, fromBase64(value)]));
  const policy = document.getElementById("policy");
  const said = document.getElementById("origin");
  const verifyThese = () => {
    const stamped = Object.keys(files).some((each) => each.startsWith(STAMPS));
    document.getElementById("stamps").hidden = !stamped;
    return trying(() => verifyFiles(files, policy.value));
  };
  if (Object.hasOwn(files, POLICY)) {
    policy.value = new TextDecoder().decode(files[POLICY]);
    const those = /^\s*witness\s/m.test(policy.value) ? "the log and its witnesses publish" : "the log publishes";
    said.textContent = `These keys came with the proofs. Compare them with those that ${those}, `
      + "or paste a policy of your own.";
    verifyThese();
  } else {
    said.textContent = "Paste the policy that you trust.";
    show("Choose a bundle below.", true);
  }
  document.getElementById("again").addEventListener("click", verifyThese);
  document.getElementById("file").addEventListener("change", async (event) => {
    try {
      files = await decodeArchive(new Uint8Array(await event.target.files[0].arrayBuffer()));
      checkFiles(files);
    } catch (error) {
      show(`NOT PROVED: ${error.message}`, false);
      return;
    }
    if (!policy.value) policy.value = new TextDecoder().decode(files[POLICY]);
    verifyThese();
  });
}

if (globalThis.document) startPage();
// For those who verify by program.
globalThis.svcbroker = { verifyBundle };

// Verify an event proof or a topic proof of svcbroker with nothing but Node, from docs/proofs.rst:
//
//     node verify.mjs PROOF.json TRUSTED
//
// TRUSTED is what you trust: the hash of a genesis, or a checkpoint, HEIGHT:HASH. The console of the
// broker serves this very file: browsers that have Ed25519 run it as it is. Consistency proofs are
// for programs: see verifyConsistency.

const { subtle } = globalThis.crypto;

const HEADER = [
  ["chain", 0], ["height", 64], ["parent", 0], ["history", 0], ["view", 64], ["proposer", 16],
  ["timestamp", 64], ["transactionRoot", 0], ["receiptRoot", 0], ["stateRoot", 0],
  ["validators", 0], ["nextValidators", 0], ["transactionCount", 32], ["transactionTotal", 64],
];
// Keys must be canonical, and not of low order: these are the y coordinates of such points.
const P = 2n ** 255n - 19n;
const EIGHTH = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
const LOW_ORDER = [0n, 1n, P - 1n, EIGHTH, P - EIGHTH];

export function need(condition, why) {
  if (!condition) throw new Error(why);
}

// Bytes

const encoder = new TextEncoder();

// Bytes and texts one after the other.
export function join(...parts) {
  const bytes = parts.map((part) => (typeof part === "string" ? encoder.encode(part) : part));
  const all = new Uint8Array(bytes.reduce((sum, each) => sum + each.length, 0));
  bytes.reduce((at, each) => (all.set(each, at), at + each.length), 0);
  return all;
}

export function toHex(bytes) {
  return Array.from(bytes, (each) => each.toString(16).padStart(2, "0")).join("");
}

// Which of two stands first: negative, 0, positive.
function compare(one, other) {
  const at = one.findIndex((each, index) => each !== other[index]);
  return at < 0 || at >= other.length ? one.length - other.length : one[at] - other[at];
}

export async function H(...parts) {
  return new Uint8Array(await subtle.digest("SHA-256", join(...parts)));
}

// An object has these members, perhaps those, and no others.
function members(value, names, optional = []) {
  need(value !== null && typeof value === "object" && !Array.isArray(value), "no object");
  for (const name of names) need(Object.hasOwn(value, name), `${name} is missing`);
  for (const name of Object.keys(value)) {
    need(names.includes(name) || optional.includes(name), `${name} is not known`);
  }
  return value;
}

function number(value, bits = 64) {
  // Above 2^53 JSON.parse has rounded already. No broker counts as far.
  need(Number.isSafeInteger(value) && value >= 0 && value < 2 ** bits, "a number is not one");
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigUint64(0, BigInt(value));
  return new Uint8Array(bytes.buffer, 8 - bits / 8);
}

function text(value) {
  need(typeof value === "string", "a text is missing");
  const bytes = encoder.encode(value);
  need(new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes) === value,
    "a text has half of a surrogate pair");
  return bytes;
}

function items(value) {
  need(Array.isArray(value), "a list is missing");
  return value;
}

export function unhex(value, size) {
  need(typeof value === "string" && /^[0-9a-f]*$/.test(value), "no hexadecimal digits");
  need(value.length === 2 * size, "a field has another size");
  return Uint8Array.from({ length: size }, (_, at) => parseInt(value.slice(2 * at, 2 * at + 2), 16));
}

// Where a path leads: RFC 6962, 2.1.1.
export async function rootOf(leaf, index, size, path) {
  need(Number.isSafeInteger(index) && index >= 0 && index < size, "there is no such leaf");
  const siblings = items(path).map((each) => unhex(each, 32));
  let node = leaf;
  for (let last = size - 1; last > 0; last = Math.floor(last / 2)) {
    if (index % 2 || index < last) {
      need(siblings.length, "a path is too short");
      const sibling = siblings.shift();
      node = await (index % 2 ? H("\x01", sibling, node) : H("\x01", node, sibling));
    }
    index = Math.floor(index / 2);
  }
  need(!siblings.length, "a path is too long");
  return toHex(node);
}

// The hash of a set of nodes.
async function validators(generation, keys) {
  const distinct = new Set(keys.map(toHex));
  need(keys.length >= 1 && keys.length <= 256 && distinct.size === keys.length, "no set of nodes");
  return toHex(
    await H("svcbroker/validators\0", number(generation), number(keys.length, 16), ...keys));
}

export async function isSigned(key, message, signature) {
  const y = BigInt.asUintN(255, BigInt(`0x${toHex(key.toReversed())}`));
  if (y >= P || LOW_ORDER.includes(y)) return false;
  const publicKey = await subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  return subtle.verify("Ed25519", publicKey, signature, message);
}

// The hash of a header of this chain.
export async function headerHash(header, chain) {
  members(header, HEADER.map(([name]) => name), ["version"]);
  need(!("version" in header) || header.version === 3 || header.version === 4,
    "the format of a header is not known");
  const encoded = HEADER.map(([name, bits]) =>
    bits ? number(header[name], bits) : unhex(header[name], 32));
  need(header.chain === toHex(chain) && header.height, "a header is of another chain");
  return H("svcbroker/header", number(header.version ?? 2, 8), ...encoded);
}

// Check that a header is signed by the nodes whose turn it was; its hash.
async function checkFinal({ header, certificate }, { chain, sets }) {
  const hash = await headerHash(header, chain);
  members(certificate, ["kind", "round", "signatures"]);
  need(certificate.kind === "pbft", "certificates of this kind are not known");
  const deciding = sets.filter(({ since }) => since < header.height).at(-1);
  need(deciding, "a header has the height of genesis");
  const { generation, keys } = deciding;
  need(header.validators === await validators(generation, keys), "other nodes decided");
  const vote = join(
    "svcbroker/vote\x03", chain, number(header.height), number(certificate.round), hash);
  let before = -1;
  for (const each of items(certificate.signatures)) {
    const { node, signature } = members(each, ["node", "signature"]);
    need(Number.isSafeInteger(node) && node > before && node < keys.length, "signers not in order");
    need(await isSigned(keys[node], vote, unhex(signature, 64)), "a signature does not hold");
    before = node;
  }
  const quorum = keys.length - Math.floor((keys.length - 1) / 3);
  need(certificate.signatures.length >= quorum, "there are too few signatures");
  return hash;
}

// An event's content.
function contentOf(event) {
  need(("content" in event) !== ("contentBase64" in event), "an event has one content");
  if ("content" in event) return text(event.content);
  text(event.contentBase64);
  need(/^[A-Za-z0-9+/]*={0,2}$/.test(event.contentBase64) && event.contentBase64.length % 4 === 0,
    "no Base64");
  const characters = atob(event.contentBase64);
  need(btoa(characters) === event.contentBase64, "no canonical Base64");
  return Uint8Array.from(characters, (each) => each.charCodeAt(0));
}

// Extensions as the chain encodes them.
function encodePairs(pairs) {
  return join(number(pairs.length, 16), ...pairs.flatMap(([key, value]) =>
    [number(key.length, 16), number(value.length, 16), key, value]));
}

// The members that an event must have, from those that it may have.
function eventMembers(event, isVersioned) {
  const names = ["eventId", "topicName", "extensions", "sender", "nonce", "timestamp"];
  if (!isVersioned) return names;
  names.push("version");
  const isErased = "commitment" in event;
  if (isErased) names.push("commitment");
  if (event.version === 1) return names;
  const hasAuthor = "author" in event;
  if (!isErased) names.push("salt");
  if (hasAuthor) names.push("author", "signedAt", ...(isErased ? [] : ["signature"]));
  if (hasAuthor && event.version === 3 && "statement" in event) {
    names.push("statement");
    need(event.statement === 2, "the version of a statement is not known");
  }
  if ("idempotencyKey" in event) names.push("idempotencyKey", ...(hasAuthor ? [] : ["owner"]));
  if ("expectedSequence" in event) names.push("expectedSequence");
  if (isErased && "hasPrivateExtensions" in event) {
    names.push("hasPrivateExtensions");
    need(event.hasPrivateExtensions === true, "hasPrivateExtensions is true or absent");
  }
  return names;
}

// The hash of the transaction that published an event. Its author has signed it.
async function transactionHash(event, isVersioned, chain) {
  members(event, [], Object.keys(event ?? {}));
  const isErased = isVersioned && "commitment" in event;
  const hasAuthor = "author" in event;
  const version = isVersioned ? event.version : 1;
  need(version === 1 || version === 2 || version === 3, "the version is not known");
  const isSealed = version !== 1;
  members(event, eventMembers(event, isVersioned), isErased ? [] : ["content", "contentBase64"]);
  const { extensions } = event;
  members(extensions, [], Object.keys(extensions ?? {}));
  const pairs = Object.entries(extensions).map(([key, value]) => [text(key), text(value)]);
  pairs.sort(([one], [other]) => compare(one, other));
  const isPrivate = ([key]) =>
    isSealed && new TextDecoder().decode(key).startsWith("svc-private-");
  const hidden = pairs.filter(isPrivate);
  need(!(isErased && hidden.length), "a private extension is not erased");
  const content = isErased ? new Uint8Array() : contentOf(event);
  const topic = text(event.topicName);

  // What versions 2 and 3 add to the head, and what stands before the content
  const key = text(event.idempotencyKey ?? "");
  const claims = [];
  if (hasAuthor) claims.push(unhex(event.author, 32), number(event.signedAt));
  if ("idempotencyKey" in event) {
    need(key.length < 256, "an idempotency key is too long");
    claims.push(...(hasAuthor ? [] : [unhex(event.owner, 20)]), number(key.length, 8), key);
  }
  if ("expectedSequence" in event) claims.push(number(event.expectedSequence));
  const options = ["author", "idempotencyKey", "expectedSequence"].reduce(
    (sum, name, index) => sum + (name in event ? 2 ** index : 0),
    (hidden.length || "hasPrivateExtensions" in event ? 8 : 0) + ("statement" in event ? 16 : 0),
  );
  let commitment = await H(content);
  if (isErased) {
    need(isSealed || event.commitment !== toHex(await H()), "there is a content: none");
    commitment = unhex(event.commitment, 32);
  } else if (isSealed) {
    commitment = await H("svcbroker/content", unhex(event.salt, 32),
      hasAuthor ? unhex(event.signature, 64) : "", hidden.length ? encodePairs(hidden) : "", content);
  }
  if (hasAuthor && !isErased) {
    const lines = [
      `svcbroker/statement/${event.statement ?? 1}`, `chain=${toHex(chain)}`, `topic=${event.topicName}`,
      `content=${toHex(await H(content))}`, `time=${event.signedAt}`, `key=${event.idempotencyKey ?? ""}`,
      ...("statement" in event ? [`expected=${event.expectedSequence ?? ""}`] : []),
      ...pairs.map(([name, value]) =>
        `extension=${toHex(name)}:${toHex(value)}`),
    ];
    const statement = encoder.encode(lines.map((line) => `${line}\n`).join(""));
    need(await isSigned(unhex(event.author, 32), statement, unhex(event.signature, 64)),
      "the author's signature does not hold");
  }
  return H("\0", number(version, 8), "\x03", unhex(event.sender, 20), number(event.nonce),
    number(event.timestamp), commitment, number(topic.length, 16), topic,
    ...(isSealed ? [number(options, 8), ...claims] : []),
    encodePairs(pairs.filter((pair) => !isPrivate(pair))));
}

// The nodes of each height, from the genesis and the changes of a proof.
async function begin({ genesis, ...proof }) {
  members(genesis, ["group", "created", "nodes", "chain"], ["topics"]);
  const isUtf8 = Object.hasOwn(genesis, "topics");
  need(!isUtf8 || genesis.topics === "utf8", "the genesis has another rule of topics");
  let keys = items(genesis.nodes).map((key) => unhex(key, 32));
  const group = text(genesis.group);
  const chain = await H("svcbroker/genesis", isUtf8 ? "\x02" : "\x01", number(group.length, 16),
    group, number(genesis.created), number(keys.length, 16), ...keys, isUtf8 ? "\x01" : "");
  need(genesis.chain === toHex(chain), "the genesis names another chain");
  await validators(0, keys);
  const sets = [{ since: 0, generation: 0, keys }];
  for (const change of items("changes" in proof ? proof.changes : [])) {
    members(change, ["header", "certificate", "nodes"]);
    await checkFinal(change, { chain, sets });
    const { since, generation } = sets.at(-1);
    keys = items(change.nodes).map((key) => unhex(key, 32));
    need(change.header.height > since, "changes are not in order");
    need(change.header.nextValidators === await validators(generation + 1, keys), "other nodes");
    sets.push({ since: change.header.height, generation: generation + 1, keys });
  }
  return { chain, sets };
}

// Check that the proof leads to what is trusted.
async function end({ chain, sets }, last, trusted, isSigned, blocks) {
  need(sets.at(-1).since < last.height, "there are more changes than it takes");
  const named = await Promise.all(blocks.map(async (header) =>
    `${header.height}:${toHex(await headerHash(header, chain))}`));
  const byChain = isSigned && trusted === toHex(chain);
  need(byChain || named.includes(trusted), "it does not lead to what is trusted");
}

// The authors of a topic as the chain encodes them.
function authorSet(set) {
  members(set, ["generation", "authors", "admins"]);
  const some = (value, most) => {
    const keys = items(value).map((key) => unhex(key, 32));
    const rises = keys.every((key, at) => !at || compare(keys[at - 1], key) < 0);
    need(keys.length <= most && rises, "authors are not in order");
    return [number(keys.length, 8), ...keys];
  };
  need(items(set.authors).length, "there are no authors");
  return [number(set.generation), ...some(set.authors, 64), ...some(set.admins, 16)];
}

async function verifyTopic(proof, trusted) {
  members(proof, ["format", "topic", "index", "topicPath", "topicCount", "accountRoot",
    "accountCount", "block", "genesis"], ["changes"]);
  const known = await begin(proof);
  const { header } = members(proof.block, ["header", "certificate"]);
  await checkFinal(proof.block, known);
  const topic = members(proof.topic,
    ["topicName", "address", "sender", "created", "isOpen", "sequence", "height"], ["authors"]);
  need(typeof topic.isOpen === "boolean", "a topic is open or not");
  const name = text(topic.topicName);
  const leaf = await H("\0", number(name.length, 16), name, unhex(topic.address, 20),
    unhex(topic.sender, 20), number(topic.created), topic.isOpen ? "\x01" : "\0",
    number(topic.sequence), number(topic.height),
    ...("authors" in topic ? authorSet(topic.authors) : []));
  const topics = number(proof.topicCount);
  const root = unhex(await rootOf(leaf, proof.index, proof.topicCount, proof.topicPath), 32);
  const state = await H("svcbroker/state\x01", topics, root, number(proof.accountCount),
    unhex(proof.accountRoot, 32));
  need(toHex(state) === header.stateRoot, "the topic is not in the state");
  await end(known, header, trusted, true, [header]);
  return proof;
}

async function verifyEvent(proof, trusted, report) {
  members(proof, ["format", "event", "index", "transactionPath", "receiptPath", "block", "genesis"],
    ["changes", "checkpoint"]);
  const format = /^svcbroker\/event-proof\/([123])$/.exec(proof.format)?.[1];
  need(typeof proof.format === "string" && format, "the format is not known");

  // 1. Genesis, and changes of the nodes
  const known = await begin(proof);
  report("genesis", { chain: toHex(known.chain), changes: known.sets.length - 1 });

  // 2. The event's block
  const { header, certificate } = members(proof.block, ["header"], ["certificate"]);
  const isWhole = format === "1" || (format === "3" && (certificate ?? null) !== null);
  need(isWhole || (certificate ?? null) === null, "a certificate is there");
  const hash = await (isWhole ? checkFinal(proof.block, known) : headerHash(header, known.chain));
  report("block", {
    height: header.height, hash: toHex(hash), signatures: isWhole ? certificate.signatures.length : 0,
  });

  // 3. The event
  const leaf = await transactionHash(proof.event, format === "3", known.chain);
  const { eventId } = proof.event;
  text(eventId);
  const named = /^([0-9a-f]{8})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})$/.exec(eventId);
  need(named, "the event's id is not one");
  const topic = toHex(await H(text(proof.event.topicName)));
  need(named[1] === topic.slice(0, 8), "the event's id is of another topic");
  need(named[3] === String(header.height), "the event's id is of another block");
  const size = header.transactionCount;
  need(await rootOf(leaf, proof.index, size, proof.transactionPath) === header.transactionRoot,
    "the event is not in its block");
  const receipt = await H("\0", leaf, "\0", number(Number(named[2])));
  need(await rootOf(receipt, proof.index, size, proof.receiptPath) === header.receiptRoot,
    "the event was not published as this one");
  report("event", { eventId, transaction: toHex(leaf), hasAuthor: "author" in proof.event });

  // 4. The checkpoint, if there is one
  let last = header;
  let isSigned = isWhole;
  if (proof.checkpoint !== undefined && proof.checkpoint !== null) {
    const later = members(proof.checkpoint, ["header", "path"], ["certificate"]);
    last = later.header;
    if (isWhole || (later.certificate !== undefined && later.certificate !== null)) {
      await checkFinal(later, known);
      isSigned = true;
    } else {
      await headerHash(last, known.chain);
    }
    need(await rootOf(await H("\0", hash), header.height, last.height, later.path) === last.history,
      "the block is not in the checkpoint's history");
  }
  need(isSigned || known.sets.length === 1, "there are changes, and nothing is signed");
  await end(known, last, trusted, isSigned, [header, last]);
  report("trusted", { trusted });
  return proof;
}

// JSON.parse takes 1.0 and 1e0 for 1, and the last of two members with one name. Other readers do not.
function checkSource(source) {
  const NUMBER = /[-+.0-9eE]+/y;
  const COLON = /[ \t\r\n]*:/y;
  const open = [];
  for (let at = 0; at < source.length; at += 1) {
    const each = source[at];
    if (each === "{") open.push(new Set());
    else if (each === "}") open.pop();
    else if (each === '"') {
      const start = at;
      for (at += 1; source[at] !== '"'; at += 1) if (source[at] === "\\") at += 1;
      COLON.lastIndex = at + 1;
      if (!COLON.test(source)) continue;
      const name = JSON.parse(source.slice(start, at + 1));
      need(!open.at(-1).has(name), "a member is there twice");
      open.at(-1).add(name);
    } else if (/[-0-9]/.test(each)) {
      NUMBER.lastIndex = at;
      const [digits] = NUMBER.exec(source);
      need(/^-?[0-9]+$/.test(digits), "a number is not one");
      at += digits.length - 1;
    }
  }
}

// A document of a proof's kind: bare, as REST answers it, or in the response of JSON-RPC.
export function parse(data) {
  const source = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  const value = JSON.parse(source);
  checkSource(source);
  const isResponse = value !== null && typeof value === "object" && Object.hasOwn(value, "jsonrpc");
  return isResponse ? value.result : value;
}

/**
 * Check that the log up to one checkpoint is the beginning of the log up to another; the chain, if
 * it is. Both checkpoints are trusted already: there are no signatures.
 */
export async function verifyConsistency(data, older, newer) {
  const proof = members(parse(data), ["format", "older", "newer", "path"]);
  need(proof.format === "svcbroker/consistency-proof/1", "the format is not known");
  const header = proof.newer;
  const hash = await headerHash(header, unhex(header?.chain, 32));
  need(proof.older === older && `${header.height}:${toHex(hash)}` === newer,
    "it is about other checkpoints");
  const checkpoint = /^(0|[1-9][0-9]{0,15}):([0-9a-f]{64})$/.exec(older);
  need(checkpoint, "this is no checkpoint");
  const leaf = await H("\0", unhex(checkpoint[2], 32));
  need(await rootOf(leaf, Number(checkpoint[1]), header.height, proof.path) === header.history,
    "the older log is not the beginning of the newer one");
  return header.chain;
}

/**
 * Check a proof from what is trusted, a chain or a checkpoint; the proof, if it holds.
 *
 * @param report is called after each step of an event proof, with its name and what it has shown.
 */
export async function verify(data, trusted, report = () => {}) {
  const proof = parse(data);
  return proof?.format === "svcbroker/topic-proof/1" ? verifyTopic(proof, trusted)
    : verifyEvent(proof, trusted, report);
}

const program = globalThis.process?.argv[1];
if (program && import.meta.url.split("/").at(-1) === program.split("/").at(-1)) {
  const { readFileSync } = await import("node:fs");
  if (process.argv.length !== 4) {
    console.error("verify.mjs PROOF.json TRUSTED");
    process.exit(2);
  }
  try {
    const proof = await verify(readFileSync(process.argv[2]), process.argv[3]);
    console.log(`PROVED: ${JSON.stringify(proof.event ?? proof.topic)}`);
  } catch (error) {
    console.log(`NOT PROVED: ${error.message}`);
    process.exitCode = 1;
  }
}

// Verify an event proof or a topic proof of svcbroker with nothing but Node, from docs/proofs.rst:
//
//     node verify.mjs PROOF.json TRUSTED
//
// TRUSTED is what you trust: the hash of a genesis, or a checkpoint, HEIGHT:HASH.

import { createHash, createPublicKey, verify as verifySignature } from "node:crypto";
import { readFileSync } from "node:fs";

const HEADER = [
  ["chain", 0], ["height", 64], ["parent", 0], ["history", 0], ["view", 64], ["proposer", 16],
  ["timestamp", 64], ["transactionRoot", 0], ["receiptRoot", 0], ["stateRoot", 0],
  ["validators", 0], ["nextValidators", 0], ["transactionCount", 32], ["transactionTotal", 64],
];
// What stands before the 32 bytes of an Ed25519 key in DER.
const KEY_PREFIX = Buffer.from("302a300506032b6570032100", "hex");
// Keys must be canonical, and not of low order: these are the y coordinates of such points.
const P = 2n ** 255n - 19n;
const EIGHTH = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
const LOW_ORDER = [0n, 1n, P - 1n, EIGHTH, P - EIGHTH];

function need(condition, why) {
  if (!condition) throw new Error(why);
}

function H(...parts) {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return hash.digest();
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
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(value));
  return bytes.subarray(8 - bits / 8);
}

function text(value) {
  need(typeof value === "string", "a text is missing");
  const bytes = Buffer.from(value, "utf8");
  need(bytes.toString("utf8") === value, "a text has half of a surrogate pair");
  return bytes;
}

function items(value) {
  need(Array.isArray(value), "a list is missing");
  return value;
}

function unhex(value, size) {
  need(typeof value === "string" && /^[0-9a-f]*$/.test(value), "no hexadecimal digits");
  need(value.length === 2 * size, "a field has another size");
  return Buffer.from(value, "hex");
}

// Where a path leads: RFC 6962, 2.1.1.
function rootOf(leaf, index, size, path) {
  need(Number.isSafeInteger(index) && index >= 0 && index < size, "there is no such leaf");
  const siblings = items(path).map((each) => unhex(each, 32));
  let node = leaf;
  for (let last = size - 1; last > 0; last = Math.floor(last / 2)) {
    if (index % 2 || index < last) {
      need(siblings.length, "a path is too short");
      const sibling = siblings.shift();
      node = index % 2 ? H("\x01", sibling, node) : H("\x01", node, sibling);
    }
    index = Math.floor(index / 2);
  }
  need(!siblings.length, "a path is too long");
  return node.toString("hex");
}

// The hash of a set of nodes.
function validators(generation, keys) {
  const distinct = new Set(keys.map((key) => key.toString("hex")));
  need(keys.length >= 1 && keys.length <= 256 && distinct.size === keys.length, "no set of nodes");
  return H("svcbroker/validators\0", number(generation), number(keys.length, 16), ...keys)
    .toString("hex");
}

function isSigned(key, message, signature) {
  const y = BigInt.asUintN(255, BigInt(`0x${Buffer.from(key).reverse().toString("hex")}`));
  if (y >= P || LOW_ORDER.includes(y)) return false;
  const publicKey = createPublicKey({
    key: Buffer.concat([KEY_PREFIX, key]), format: "der", type: "spki",
  });
  return verifySignature(null, message, publicKey, signature);
}

// The hash of a header of this chain.
function headerHash(header, chain) {
  members(header, HEADER.map(([name]) => name), ["version"]);
  need(!("version" in header) || header.version === 3, "the format of a header is not known");
  const encoded = HEADER.map(([name, bits]) =>
    bits ? number(header[name], bits) : unhex(header[name], 32));
  need(header.chain === chain.toString("hex") && header.height, "a header is of another chain");
  return H("svcbroker/header", number(header.version ?? 2, 8), ...encoded);
}

// Check that a header is signed by the nodes whose turn it was; its hash.
function checkFinal({ header, certificate }, { chain, sets }) {
  const hash = headerHash(header, chain);
  members(certificate, ["kind", "round", "signatures"]);
  need(certificate.kind === "pbft", "certificates of this kind are not known");
  const deciding = sets.filter(({ since }) => since < header.height).at(-1);
  need(deciding, "a header has the height of genesis");
  const { generation, keys } = deciding;
  need(header.validators === validators(generation, keys), "other nodes decided");
  const vote = Buffer.concat([
    Buffer.from("svcbroker/vote\x03"), chain, number(header.height), number(certificate.round), hash,
  ]);
  let before = -1;
  for (const each of items(certificate.signatures)) {
    const { node, signature } = members(each, ["node", "signature"]);
    need(Number.isSafeInteger(node) && node > before && node < keys.length, "signers not in order");
    need(isSigned(keys[node], vote, unhex(signature, 64)), "a signature does not hold");
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
  const content = Buffer.from(text(event.contentBase64).toString(), "base64");
  need(content.toString("base64") === event.contentBase64, "no canonical Base64");
  return content;
}

// Extensions as the chain encodes them.
function encodePairs(pairs) {
  return Buffer.concat([number(pairs.length, 16), ...pairs.flatMap(([key, value]) =>
    [number(key.length, 16), number(value.length, 16), key, value])]);
}

// The members that an event must have, from those that it may have.
function eventMembers(event, isVersioned) {
  const names = ["eventId", "topicName", "extensions", "sender", "nonce", "timestamp"];
  if (!isVersioned) return names;
  names.push("version");
  const isErased = "commitment" in event;
  if (isErased) names.push("commitment");
  if (event.version !== 2) return names;
  const hasAuthor = "author" in event;
  if (!isErased) names.push("salt");
  if (hasAuthor) names.push("author", "signedAt", ...(isErased ? [] : ["signature"]));
  if ("idempotencyKey" in event) names.push("idempotencyKey", ...(hasAuthor ? [] : ["owner"]));
  if ("expectedSequence" in event) names.push("expectedSequence");
  if (isErased && "hasPrivateExtensions" in event) {
    names.push("hasPrivateExtensions");
    need(event.hasPrivateExtensions === true, "hasPrivateExtensions is true or absent");
  }
  return names;
}

// The hash of the transaction that published an event. Its author has signed it.
function transactionHash(event, isVersioned, chain) {
  members(event, [], Object.keys(event ?? {}));
  const isErased = isVersioned && "commitment" in event;
  const hasAuthor = "author" in event;
  members(event, eventMembers(event, isVersioned), isErased ? [] : ["content", "contentBase64"]);
  const version = isVersioned ? event.version : 1;
  need(version === 1 || version === 2, "the version is not known");
  const { extensions } = event;
  members(extensions, [], Object.keys(extensions ?? {}));
  const pairs = Object.entries(extensions).map(([key, value]) => [text(key), text(value)]);
  pairs.sort(([one], [other]) => Buffer.compare(one, other));
  const isPrivate = ([key]) => version === 2 && key.toString().startsWith("svc-private-");
  const hidden = pairs.filter(isPrivate);
  need(!(isErased && hidden.length), "a private extension is not erased");
  const content = isErased ? Buffer.alloc(0) : contentOf(event);
  const topic = text(event.topicName);

  // What version 2 adds to the head, and what stands before the content
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
    hidden.length || "hasPrivateExtensions" in event ? 8 : 0,
  );
  let commitment = H(content);
  if (isErased) {
    need(version === 2 || event.commitment !== H().toString("hex"), "there is a content: none");
    commitment = unhex(event.commitment, 32);
  } else if (version === 2) {
    commitment = H("svcbroker/content", unhex(event.salt, 32),
      hasAuthor ? unhex(event.signature, 64) : "", hidden.length ? encodePairs(hidden) : "", content);
  }
  if (hasAuthor && !isErased) {
    const lines = [
      "svcbroker/statement/1", `chain=${chain.toString("hex")}`, `topic=${event.topicName}`,
      `content=${H(content).toString("hex")}`, `time=${event.signedAt}`, `key=${key}`,
      ...pairs.map(([name, value]) =>
        `extension=${name.toString("hex")}:${value.toString("hex")}`),
    ];
    const statement = Buffer.from(lines.map((line) => `${line}\n`).join(""));
    need(isSigned(unhex(event.author, 32), statement, unhex(event.signature, 64)),
      "the author's signature does not hold");
  }
  return H("\0", number(version, 8), "\x03", unhex(event.sender, 20), number(event.nonce),
    number(event.timestamp), commitment, number(topic.length, 16), topic,
    ...(version === 2 ? [number(options, 8), ...claims] : []),
    encodePairs(pairs.filter((pair) => !isPrivate(pair))));
}

// The nodes of each height, from the genesis and the changes of a proof.
function begin({ genesis, ...proof }) {
  members(genesis, ["group", "created", "nodes", "chain"]);
  let keys = items(genesis.nodes).map((key) => unhex(key, 32));
  const group = text(genesis.group);
  const chain = H("svcbroker/genesis\x01", number(group.length, 16), group,
    number(genesis.created), number(keys.length, 16), ...keys);
  need(genesis.chain === chain.toString("hex"), "the genesis names another chain");
  validators(0, keys);
  const sets = [{ since: 0, generation: 0, keys }];
  for (const change of items("changes" in proof ? proof.changes : [])) {
    members(change, ["header", "certificate", "nodes"]);
    checkFinal(change, { chain, sets });
    const { since, generation } = sets.at(-1);
    keys = items(change.nodes).map((key) => unhex(key, 32));
    need(change.header.height > since, "changes are not in order");
    need(change.header.nextValidators === validators(generation + 1, keys), "other nodes");
    sets.push({ since: change.header.height, generation: generation + 1, keys });
  }
  return { chain, sets };
}

// Check that the proof leads to what is trusted.
function end({ chain, sets }, last, trusted, isSigned, blocks) {
  need(sets.at(-1).since < last.height, "there are more changes than it takes");
  const named = blocks.map((header) => `${header.height}:${headerHash(header, chain).toString("hex")}`);
  const byChain = isSigned && trusted === chain.toString("hex");
  need(byChain || named.includes(trusted), "it does not lead to what is trusted");
}

// The authors of a topic as the chain encodes them.
function authorSet(set) {
  members(set, ["generation", "authors", "admins"]);
  const some = (value, most) => {
    const keys = items(value).map((key) => unhex(key, 32));
    const rises = keys.every((key, at) => !at || Buffer.compare(keys[at - 1], key) < 0);
    need(keys.length <= most && rises, "authors are not in order");
    return [number(keys.length, 8), ...keys];
  };
  need(items(set.authors).length, "there are no authors");
  return [number(set.generation), ...some(set.authors, 64), ...some(set.admins, 16)];
}

function verifyTopic(proof, trusted) {
  members(proof, ["format", "topic", "index", "topicPath", "topicCount", "accountRoot",
    "accountCount", "block", "genesis"], ["changes"]);
  const known = begin(proof);
  const { header } = members(proof.block, ["header", "certificate"]);
  checkFinal(proof.block, known);
  const topic = members(proof.topic,
    ["topicName", "address", "sender", "created", "isOpen", "sequence", "height"], ["authors"]);
  need(typeof topic.isOpen === "boolean", "a topic is open or not");
  const name = text(topic.topicName);
  const leaf = H("\0", number(name.length, 16), name, unhex(topic.address, 20),
    unhex(topic.sender, 20), number(topic.created), topic.isOpen ? "\x01" : "\0",
    number(topic.sequence), number(topic.height),
    ...("authors" in topic ? authorSet(topic.authors) : []));
  const topics = number(proof.topicCount);
  const root = Buffer.from(rootOf(leaf, proof.index, proof.topicCount, proof.topicPath), "hex");
  const state = H("svcbroker/state\x01", topics, root, number(proof.accountCount),
    unhex(proof.accountRoot, 32));
  need(state.toString("hex") === header.stateRoot, "the topic is not in the state");
  end(known, header, trusted, true, [header]);
  return proof;
}

function verifyEvent(proof, trusted) {
  members(proof, ["format", "event", "index", "transactionPath", "receiptPath", "block", "genesis"],
    ["changes", "checkpoint"]);
  const format = /^svcbroker\/event-proof\/([123])$/.exec(proof.format)?.[1];
  need(typeof proof.format === "string" && format, "the format is not known");

  // 1. Genesis, and changes of the nodes
  const known = begin(proof);

  // 2. The event's block
  const { header, certificate } = members(proof.block, ["header"], ["certificate"]);
  const isWhole = format === "1" || (format === "3" && (certificate ?? null) !== null);
  need(isWhole || (certificate ?? null) === null, "a certificate is there");
  const hash = isWhole ? checkFinal(proof.block, known) : headerHash(header, known.chain);

  // 3. The event
  const leaf = transactionHash(proof.event, format === "3", known.chain);
  const eventId = text(proof.event.eventId).toString();
  const named = /^([0-9a-f]{8})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})$/.exec(eventId);
  need(named, "the event's id is not one");
  const topic = H(text(proof.event.topicName)).toString("hex");
  need(named[1] === topic.slice(0, 8), "the event's id is of another topic");
  need(named[3] === String(header.height), "the event's id is of another block");
  const size = header.transactionCount;
  need(rootOf(leaf, proof.index, size, proof.transactionPath) === header.transactionRoot,
    "the event is not in its block");
  const receipt = H("\0", leaf, "\0", number(Number(named[2])));
  need(rootOf(receipt, proof.index, size, proof.receiptPath) === header.receiptRoot,
    "the event was not published as this one");

  // 4. The checkpoint, if there is one
  let last = header;
  let isSigned = isWhole;
  if (proof.checkpoint !== undefined && proof.checkpoint !== null) {
    const later = members(proof.checkpoint, ["header", "path"], ["certificate"]);
    last = later.header;
    if (isWhole || (later.certificate !== undefined && later.certificate !== null)) {
      checkFinal(later, known);
      isSigned = true;
    } else {
      headerHash(last, known.chain);
    }
    need(rootOf(H("\0", hash), header.height, last.height, later.path) === last.history,
      "the block is not in the checkpoint's history");
  }
  need(isSigned || known.sets.length === 1, "there are changes, and nothing is signed");
  end(known, last, trusted, isSigned, [header, last]);
  return proof;
}

/** Check a proof from what is trusted, a chain or a checkpoint; the proof, if it holds. */
export function verify(data, trusted) {
  const proof = JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data));
  return proof?.format === "svcbroker/topic-proof/1" ? verifyTopic(proof, trusted)
    : verifyEvent(proof, trusted);
}

if (process.argv[2] !== undefined) {
  try {
    const proof = verify(readFileSync(process.argv[2]), process.argv[3] ?? "");
    console.log(`PROVED: ${JSON.stringify(proof.event ?? proof.topic)}`);
  } catch (error) {
    console.log(`NOT PROVED: ${error.message}`);
    process.exitCode = 1;
  }
}

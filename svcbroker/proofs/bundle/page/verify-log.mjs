// Verify a proof that an event is in a log that witnesses have seen, with nothing but Node, from
// docs/transparency.rst and the specifications of c2sp.org:
//
//     node verify-log.mjs PROOF.tlog-proof POLICY
//
// POLICY is whom you trust: a file with the keys of logs and witnesses, and the quorum.

import { H, headerHash, isSigned, join, need, parse, rootOf, toHex, unhex, verify } from "./verify.mjs";

const LOG_KEY = 1;
const WITNESS_KEY = 4;
// Web Cryptography has no ML-DSA: these cosignatures are not counted.
const ML_DSA_KEY = 6;
const ML_DSA_SIZE = 1312;
const MAX_SIGNATURES = 64;
const MAX_NOTE = 64 * 1024;
const MAX_LINES = 1000;

function unbase64(value) {
  need(/^[A-Za-z0-9+/]*={0,2}$/.test(value), "no base64");
  const characters = atob(value);
  need(btoa(characters) === value, "not the only base64 of its bytes");
  return Uint8Array.from(characters, (each) => each.charCodeAt(0));
}

function decimal(value) {
  need(/^(0|[1-9][0-9]{0,15})$/.test(value), "no number");
  return Number(value);
}

// A text of UTF-8, of which every byte counts.
export function decode(bytes) {
  return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
}

// Keys: NAME+ID+BASE64
async function parseKey(value) {
  const match = /^([^\s+\p{C}\p{Z}]+)\+([0-9a-f]{8})\+(.+)$/u.exec(value);
  need(match, "a key is not NAME+ID+BASE64");
  const [, name, id, encoded] = match;
  const data = unbase64(encoded);
  const key = data.slice(1);
  need([LOG_KEY, WITNESS_KEY, ML_DSA_KEY].includes(data[0]), "a key of this type is not supported");
  need(key.length === (data[0] === ML_DSA_KEY ? ML_DSA_SIZE : 32), "a key has another size");
  need(toHex((await H(name, "\n", data)).slice(0, 4)) === id, "the id of a key is another one");
  return { name, id, type: data[0], key, text: value };
}

// Policies: c2sp.org/tlog-policy
export async function parsePolicy(source) {
  const policy = { logs: [], witnesses: new Map(), groups: new Map(), quorum: null };
  const members = new Set();
  const keys = new Set();
  const isDefined = (name) => policy.witnesses.has(name) || policy.groups.has(name);
  const keyOf = async (value, type) => {
    const key = await parseKey(value);
    need((key.type === LOG_KEY) === (type === LOG_KEY), "a key is of the other type");
    const known = `${type} ${toHex(key.key)}`;
    need(!keys.has(known), "a key is there twice");
    keys.add(known);
    return key;
  };
  const define = (name) => {
    need(name !== "none" && !isDefined(name), "a name is taken");
    return name;
  };
  need(source.split("\n").length <= MAX_LINES, "the policy has too many lines");
  need(!/[\x00-\x08\x0b-\x1f\x7f]/.test(source), "the policy has control characters");
  for (const line of source.split("\n")) {
    const [word, ...rest] = line.split(/[ \t]+/).filter(Boolean);
    if (word === undefined || word.startsWith("#")) continue;
    if (word === "log" && (rest.length === 1 || rest.length === 2)) {
      policy.logs.push(await keyOf(rest[0], LOG_KEY));
    } else if (word === "witness" && (rest.length === 2 || rest.length === 3)) {
      policy.witnesses.set(define(rest[0]), await keyOf(rest[1], WITNESS_KEY));
    } else if (word === "group" && rest.length >= 3) {
      const [name, count, ...those] = rest;
      define(name);
      for (const each of those) {
        need(isDefined(each) && !members.has(each), "a group has a member that is not one");
        members.add(each);
      }
      const most = those.length;
      const needed = { all: most, any: 1 }[count] ?? decimal(count);
      need(needed >= 1 && needed <= most, "a group needs another number of members");
      policy.groups.set(name, { needed, members: those });
    } else if (word === "quorum" && rest.length === 1) {
      need(policy.quorum === null, "there are two quorums");
      need(rest[0] === "none" || isDefined(rest[0]), "the quorum is not defined");
      policy.quorum = rest[0];
    } else {
      need(false, "a line of the policy is not known");
    }
  }
  need(policy.quorum !== null, "the policy has no quorum");
  return policy;
}

function isQuorum(policy, seen) {
  const met = new Set(["none", ...seen]);
  // Each group comes after its members.
  for (const [name, { needed, members }] of policy.groups) {
    if (members.filter((each) => met.has(each)).length >= needed) met.add(name);
  }
  return met.has(policy.quorum);
}

// Checkpoints: c2sp.org/signed-note, tlog-checkpoint and tlog-cosignature
async function verifyCheckpoint(note, policy) {
  need(join(note).length <= MAX_NOTE, "the note is too long");
  const at = note.lastIndexOf("\n\n");
  need(at >= 0 && note.endsWith("\n") && !/[\x00-\x09\x0b-\x1f]/.test(note), "no signed note");
  const text = note.slice(0, at + 1);
  const lines = note.slice(at + 2, -1).split("\n");
  need(lines.length <= MAX_SIGNATURES, "there are too many signatures");
  const [origin, size, root, ...more] = text.slice(0, -1).split("\n");
  need(origin && root !== undefined && more.every(Boolean), "no checkpoint");
  const head = { origin, size: decimal(size), root: unbase64(root) };
  need(head.root.length === 32, "a root has another size");
  const seen = new Map();
  let log = null;
  for (const line of lines) {
    const match = /^\u2014 ([^\s+]+) (\S+)$/u.exec(line);
    need(match, "a line is not one of a signature");
    const data = unbase64(match[2]);
    need(data.length > 4, "there is no signature");
    const isOf = (key) => key.name === match[1] && key.id === toHex(data.slice(0, 4));
    const signature = data.slice(4);
    const byLog = policy.logs.find((key) => key.name === origin && isOf(key));
    if (byLog) {
      need(signature.length === 64 && (await isSigned(byLog.key, join(text), signature)),
        `the signature of ${byLog.name} is not valid`);
      log = byLog;
    }
    for (const [name, key] of policy.witnesses) {
      if (!isOf(key) || key.type === ML_DSA_KEY) continue;
      need(signature.length === 72, `the cosignature of ${name} is not one`);
      const time = new DataView(signature.buffer, signature.byteOffset).getBigUint64(0);
      need(await isSigned(key.key, join(`cosignature/v1\ntime ${time}\n`, text), signature.slice(8)),
        `the cosignature of ${name} is not valid`);
      seen.set(name, Math.min(Number(time), seen.get(name) ?? Infinity));
    }
  }
  need(log, "no log of the policy has signed the checkpoint");
  const isMlDsa = [...policy.witnesses.values()].some((key) => key.type === ML_DSA_KEY);
  need(isQuorum(policy, seen.keys()), "too few witnesses have signed the checkpoint" +
    (isMlDsa ? " (those of ML-DSA cannot be checked here: use svcbroker verify)" : ""));
  const witnesses = [...seen].map(([name, time]) => ({ name, time, key: policy.witnesses.get(name).text }));
  witnesses.sort((one, other) => one.time - other.time);
  return { ...head, log: log.text, witnesses };
}

/**
 * Check a proof, c2sp.org/tlog-proof, whose extra data is an event proof.
 *
 * @param policy is what parsePolicy() has read.
 * @param report is called after each step of the event proof, and as "log" with the checkpoint.
 * @return the event, the checkpoint with the witnesses and their times, and the block.
 */
export async function verifyLogProof(data, policy, report = () => {}) {
  const source = decode(data);
  const at = source.indexOf("\n\n");
  const [first, extra, index, ...path] = source.slice(0, Math.max(at, 0)).split("\n");
  need(first === "c2sp.org/tlog-proof@v1", "no proof of c2sp.org/tlog-proof");
  need(extra?.startsWith("extra ") && index?.startsWith("index "), "a line is missing");
  const checkpoint = await verifyCheckpoint(source.slice(at + 2), policy);
  const proof = unbase64(extra.slice(6));
  const { block, genesis } = parse(proof);
  const hash = await headerHash(block.header, unhex(genesis.chain, 32));
  const { height } = block.header;
  need(decimal(index.slice(6)) === height, "the proof is of another block");
  need(path.length <= 63, "the path is too long");
  const siblings = path.map((each) => toHex(unbase64(each)));
  const root = await rootOf(await H("\0", hash), height, checkpoint.size, siblings);
  need(root === toHex(checkpoint.root), "the block is not in the log");
  report("log", checkpoint);
  const { event } = await verify(proof, `${height}:${toHex(hash)}`, report);
  return { event, chain: genesis.chain, checkpoint, block: { height, hash: toHex(hash), timestamp: block.header.timestamp } };
}

const logProgram = globalThis.process?.argv[1];
if (logProgram && import.meta.url.split("/").at(-1) === logProgram.split("/").at(-1)) {
  const { readFileSync } = await import("node:fs");
  if (process.argv.length !== 4) {
    console.error("verify-log.mjs PROOF POLICY");
    process.exit(2);
  }
  try {
    const policy = await parsePolicy(decode(readFileSync(process.argv[3])));
    const { event, checkpoint } = await verifyLogProof(readFileSync(process.argv[2]), policy);
    for (const { name, time } of checkpoint.witnesses) {
      // Witnesses count whole seconds.
      console.log(`seen by ${name} not later than ${new Date((time + 1) * 1000).toISOString()}`);
    }
    console.log(`PROVED: ${JSON.stringify(event)}`);
  } catch (error) {
    console.log(`NOT PROVED: ${error.message}`);
    process.exitCode = 1;
  }
}

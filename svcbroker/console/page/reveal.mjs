// Open closed events, and verify reveals, with nothing but Node or a browser, from
// docs/confidential.rst:
//
//     node reveal.mjs REVEAL.json TRUSTED
//
// TRUSTED is as for verify.mjs. A closed content is an age file (c2sp.org/age) with X25519 recipients.

import { join, need, parse, unhex, verify } from "./verify.mjs";

const MAX_HEADER = 64 * 1024;
const MAX_RECIPIENTS = 256;
const CHUNK = 64 * 1024 + 16;
const TOO_LARGE = `its header has more than ${MAX_RECIPIENTS} recipients or ${MAX_HEADER} bytes`;

// Keys

async function derive(secret, salt, info) {
  const key = await globalThis.crypto.subtle.importKey("raw", secret, "HKDF", false, ["deriveBits"]);
  const how = { name: "HKDF", hash: "SHA-256", salt, info: join(info) };
  return new Uint8Array(await globalThis.crypto.subtle.deriveBits(how, key, 256));
}

// The 32 bytes of a text in Bech32 with a prefix.
function bech32(text, prefix) {
  const low = text.toLowerCase();
  const values = Array.from(low.slice(prefix.length + 1), (each) =>
    "qpzry9x8gf2tvdw0s3jn54khce6mua7l".indexOf(each));
  const isOneCase = text === low || text === text.toUpperCase();
  need(isOneCase && low.startsWith(`${prefix}1`) && values.length === 58 && Math.min(...values) >= 0,
    "it is no key of age");
  const codes = Array.from(prefix, (each) => each.charCodeAt(0));
  let check = 1;
  for (const value of [...codes.map((each) => each >> 5), 0, ...codes.map((each) => each & 31), ...values]) {
    const top = check >>> 25;
    check = ((check & 0x1ffffff) << 5) ^ value;
    [0x3b6a57b2, 0x26508e6d, 0x1ea119fa, 0x3d4233dd, 0x2a1462b3].forEach((each, at) => {
      if ((top >> at) & 1) check ^= each;
    });
  }
  const number = values.slice(0, 52).reduce((sum, each) => sum * 32n + BigInt(each), 0n);
  need(check === 1 && !(number & 15n), "the check digits of a key do not hold");
  return unhex((number >> 4n).toString(16).padStart(64, "0"), 32);
}

// The secrets of a text with identities, one a line.
function secretsOf(identities) {
  const lines = identities.split("\n").map((each) => each.trim());
  return lines.filter((each) => each && !each.startsWith("#")).map((each) => bech32(each, "age-secret-key-"));
}

// ChaCha20-Poly1305 (RFC 8439), which browsers do not have

function chachaBlock(key, counter, nonce) {
  const words = new Uint32Array(16);
  const view = new DataView(join("expand 32-byte k", key, new Uint8Array(4), nonce).buffer);
  for (let at = 0; at < 16; at += 1) words[at] = view.getUint32(4 * at, true);
  words[12] = counter;
  const state = words.slice();
  const turn = (word, bits) => (word << bits) | (word >>> (32 - bits));
  const quarter = (a, b, c, d) => {
    for (const [one, two, three, bits] of [[a, b, d, 16], [c, d, b, 12], [a, b, d, 8], [c, d, b, 7]]) {
      state[one] += state[two];
      state[three] = turn(state[three] ^ state[one], bits);
    }
  };
  for (let round = 0; round < 10; round += 1) {
    for (let at = 0; at < 4; at += 1) quarter(at, at + 4, at + 8, at + 12);
    for (let at = 0; at < 4; at += 1) {
      quarter(at, 4 + ((at + 1) % 4), 8 + ((at + 2) % 4), 12 + ((at + 3) % 4));
    }
  }
  const block = new DataView(new ArrayBuffer(64));
  state.forEach((each, at) => block.setUint32(4 * at, each + words[at], true));
  return new Uint8Array(block.buffer);
}

const numberOf = (bytes) => bytes.reduceRight((sum, each) => sum * 256n + BigInt(each), 0n);

function poly1305(key, message) {
  const r = numberOf(key.slice(0, 16)) & 0x0ffffffc0ffffffc0ffffffc0fffffffn;
  let sum = 0n;
  for (let at = 0; at < message.length; at += 16) {
    sum = ((sum + numberOf(join(message.slice(at, at + 16), new Uint8Array([1])))) * r) % (2n ** 130n - 5n);
  }
  return (sum + numberOf(key.slice(16, 32))) % 2n ** 128n;
}

// What was sealed; undefined where the tag does not hold.
function unseal(key, nonce, sealed) {
  if (sealed.length < 16) return undefined;
  const text = sealed.slice(0, -16);
  const sizes = new DataView(new ArrayBuffer(16));
  sizes.setUint32(8, text.length, true);
  const message = join(text, new Uint8Array(-text.length & 15), new Uint8Array(sizes.buffer));
  if (poly1305(chachaBlock(key, 0, nonce), message) !== numberOf(sealed.slice(-16))) return undefined;
  for (let at = 0; at < text.length; at += 64) {
    const block = chachaBlock(key, 1 + at / 64, nonce);
    for (let each = at; each < Math.min(at + 64, text.length); each += 1) text[each] ^= block[each - at];
  }
  return text;
}

// Files of age

function headerBytes(text) {
  need(/^[A-Za-z0-9+/]*$/.test(text) && text.length % 4 !== 1, "its header is not in canonical base64");
  const characters = atob(text);
  need(btoa(characters).replace(/=+$/, "") === text, "its header is not in canonical base64");
  return Uint8Array.from(characters, (each) => each.charCodeAt(0));
}

function parseFile(bytes) {
  const start = String.fromCharCode(...bytes.slice(0, 22));
  need(start === "age-encryption.org/v1\n", start.startsWith("age-encryption.org/v")
    ? "age has another version there" : "it is no file of age");
  const source = new TextDecoder("latin1").decode(bytes.slice(0, MAX_HEADER));
  const end = source.indexOf("\n--- ");
  need(end >= 0, bytes.length > MAX_HEADER ? TOO_LARGE : "its header is cut");
  need(bytes[end + 48] === 10, "its header is cut");
  const mac = headerBytes(source.slice(end + 5, end + 48));
  const lines = source.slice(0, end).split("\n").slice(1);
  const wrapped = [];
  let count = 0;
  while (lines.length) {
    const found = /^-> ([!-~]+(?: [!-~]+)*)$/.exec(lines.shift());
    need(found, "a line of its header is malformed");
    let body = "";
    let line;
    do {
      line = lines.shift();
      need(line !== undefined && line.length <= 64, "a line of its header is malformed");
      body += line;
    } while (line.length === 64);
    count += 1;
    need(count <= MAX_RECIPIENTS, TOO_LARGE);
    const [kind, ...rest] = found[1].split(" ");
    need(kind !== "scrypt", "it is closed with a passphrase, and not to recipients");
    const key = headerBytes(body);
    if (kind !== "X25519") continue;
    const share = rest.length === 1 ? headerBytes(rest[0]) : "";
    need(share.length === 32 && key.length === 32, "a recipient of its header is malformed");
    wrapped.push({ share, key });
  }
  return { header: bytes.slice(0, end + 4), mac, wrapped, payload: bytes.slice(end + 49) };
}

// What was closed, with its padding.
async function openFile({ header, mac, payload }, fileKey) {
  const how = { name: "HMAC", hash: "SHA-256" };
  const key = await globalThis.crypto.subtle.importKey("raw", await derive(fileKey, new Uint8Array(), "header"), how, false, ["verify"]);
  need(await globalThis.crypto.subtle.verify("HMAC", key, mac, header), "the MAC of its header does not hold");
  const payloadKey = await derive(fileKey, payload.slice(0, 16), "payload");
  const pieces = [];
  for (let at = 16, number = 0; number === 0 || at < payload.length; at += CHUNK, number += 1) {
    const nonce = new DataView(new ArrayBuffer(12));
    nonce.setUint32(7, number);
    nonce.setUint8(11, at + CHUNK >= payload.length ? 1 : 0);
    const piece = unseal(payloadKey, new Uint8Array(nonce.buffer), payload.slice(at, at + CHUNK));
    need(piece, "its content was changed, or is cut");
    need(!number || piece.length, "its content ends with an empty piece");
    pieces.push(piece);
  }
  return join(...pieces);
}

// The key of one file, by identities; undefined where none opens it.
async function fileKeyOf(file, identities) {
  for (const secret of secretsOf(identities)) {
    // PKCS #8 (RFC 8410), since browsers import no bare secret.
    const pkcs8 = join(unhex("302e020100300506032b656e04220420", 16), secret);
    const own = await globalThis.crypto.subtle.importKey("pkcs8", pkcs8, "X25519", true, ["deriveBits"]);
    const { x } = await globalThis.crypto.subtle.exportKey("jwk", own);
    const recipient = headerBytes(x.replaceAll("-", "+").replaceAll("_", "/"));
    for (const { share, key } of file.wrapped) {
      const theirs = await globalThis.crypto.subtle.importKey("raw", share, "X25519", false, []);
      const shared = await globalThis.crypto.subtle.deriveBits({ name: "X25519", public: theirs }, own, 256);
      const wrapping = await derive(shared, join(share, recipient), "age-encryption.org/v1/X25519");
      const found = unseal(wrapping, new Uint8Array(12), key);
      if (found) return found;
    }
  }
  return undefined;
}

/** What was closed, without the padding that its event tells of. */
export function unpad(plain, extensions) {
  if (!("svc-padding" in extensions)) return plain;
  need(extensions["svc-padding"] === "spaces", "its padding is of an unknown kind");
  let size = plain.length;
  while (plain[size - 1] === 32) size -= 1;
  need(plain[size - 1] === 10, "its padding is malformed");
  return plain.slice(0, size - 1);
}

export const isClosed = (extensions) => "svc-encrypted" in (extensions ?? {});

/** The content of a closed event, opened by the key of its file. */
export async function openContent(content, extensions, fileKey) {
  need(extensions["svc-encrypted"] === "age", "it is closed by something else than age");
  return unpad(await openFile(parseFile(content), fileKey), extensions);
}

/** The key of a closed content, by a text with identities; undefined where none of them opens it. */
export async function findKey(content, identities) {
  return fileKeyOf(parseFile(content), identities);
}

/** The bytes of an event's content in a proof that was verified. */
export function contentBytes(event) {
  if (event.content !== undefined) return join(event.content);
  return Uint8Array.from(atob(event.contentBase64), (each) => each.charCodeAt(0));
}

/** Check a reveal from what is trusted; its event, and the content in plain. */
export async function verifyReveal(data, trusted) {
  const reveal = parse(data);
  need(reveal?.format === "svcbroker/reveal/1", "the format is not known");
  const known = ["fileKey", "format", "proof"];
  need(Object.keys(reveal).every((each) => known.includes(each)), "a member is not known");
  need(/^svcbroker\/event-proof\//.test(reveal.proof?.format), "there is no proof of an event");
  const { event } = await verify(join(JSON.stringify(reveal.proof)), trusted);
  need(!("commitment" in event), "the reveal does not have the content");
  const content = contentBytes(event);
  need(isClosed(event.extensions) === "fileKey" in reveal,
    "a reveal has a key if its event is closed, and else none");
  if (!("fileKey" in reveal)) return { event, content };
  return { event, content: await openContent(content, event.extensions, unhex(reveal.fileKey, 16)) };
}

const revealProgram = globalThis.process?.argv[1];
if (revealProgram && import.meta.url.split("/").at(-1) === revealProgram.split("/").at(-1)) {
  const { readFileSync } = await import("node:fs");
  if (process.argv.length !== 4) {
    console.error("reveal.mjs REVEAL.json TRUSTED");
    process.exit(2);
  }
  try {
    const { event, content } = await verifyReveal(readFileSync(process.argv[2]), process.argv[3]);
    console.log(`PROVED: ${event.eventId}: ${JSON.stringify(new TextDecoder().decode(content))}`);
  } catch (error) {
    console.log(`NOT PROVED: ${error.message}`);
    process.exitCode = 1;
  }
}

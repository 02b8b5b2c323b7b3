// Receipts: recipients sign up to where they have received a topic.

import { H, join, need, parse, toHex } from "./verify.mjs";

// The format of receipts.
export const RECEIPT = "svcbroker/receipt/1";

export function matches(filter, topic) {
  const levels = topic.split("/");
  const wanted = filter.split("/");
  if (topic.startsWith("$") && "+#".includes(wanted[0])) return false;
  for (const [at, each] of wanted.entries()) {
    if (each === "#") return levels.length >= at;
    if (at >= levels.length || (each !== "+" && each !== levels[at])) return false;
  }
  return levels.length === wanted.length;
}

export function placeOf(id) {
  const found = /^([0-9a-f]{8})-([1-9][0-9]*)-([1-9][0-9]*)$/.exec(id);
  need(found, "an id of an event is none");
  return { prefix: found[1], number: Number(found[2]), height: Number(found[3]) };
}

// What a receipt says, as svcbroker reads it: refused where it cannot be true.
export async function readReceipt({ event, chain, block }) {
  const said = parse(join(event.content));
  const names = ["format", "chain", "topic", "number", "eventId", "checkpoint", "means"];
  need(names.every((each) => Object.hasOwn(said, each)), "a member is missing");
  need(Object.keys(said).every((each) => names.includes(each) || each === "previous"), "a member is not known");
  need("author" in event, "nobody has signed it");
  need(said.chain === chain, "it is for another chain");
  need(["processed", "received"].includes(said.means), "it says neither processed nor received");
  need([said.topic, said.eventId, said.checkpoint].every((each) => typeof each === "string"), "a text is missing");
  const last = placeOf(said.eventId);
  need(said.number === last.number, "it names a number that is not that of its event");
  const isPattern = /[+#]/.test(said.topic);
  need(isPattern || toHex(await H(said.topic)).startsWith(last.prefix), "it names an event of another topic");
  const height = /^([0-9]+):[0-9a-f]{64}$/.exec(said.checkpoint)?.[1];
  need(height !== undefined && last.height <= Number(height), "it names an event that is not yet there");
  need(Number(height) < block.height, "it names a checkpoint that was not there when it came");
  return { ...said, last };
}

export function covers(receipt, event) {
  const place = placeOf(event.eventId);
  if (!matches(receipt.topic, event.topicName)) return false;
  return receipt.last.prefix === place.prefix ? place.number <= receipt.last.number
    : place.height < receipt.last.height;
}

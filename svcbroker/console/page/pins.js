// Checkpoints that this browser keeps: the newest one that it has checked, of each group of a broker.

import { ask, urlOf } from "./api.js";
import { verifyConsistency } from "./verify.mjs";

const keyOf = (group) => `svcbroker-checkpoint ${urlOf("").pathname} ${group}`;

/** What is kept of a group: the chain, the first and the newest checkpoint; null for nothing. */
export function readPin(group) {
  try {
    return JSON.parse(localStorage.getItem(keyOf(group)));
  } catch {
    return null;
  }
}

export function forgetPin(group) {
  localStorage.removeItem(keyOf(group));
}

function keep(group, pin) {
  localStorage.setItem(keyOf(group), JSON.stringify(pin));
  return pin;
}

export const heightOf = (checkpoint) => Number(checkpoint.split(":")[0]);

/** Whether browsers compute hashes on this page. */
export const canVerify = Boolean(globalThis.crypto?.subtle);

/**
 * Check that two checkpoints are of one log, whichever is older. The broker makes the proof, and is
 * not believed.
 *
 * @returns null, or why they are not, with the proof that does not hold, if there is one.
 */
async function compare(groupId, one, other, chain, signal) {
  const [older, newer] = heightOf(one) <= heightOf(other) ? [one, other] : [other, one];
  if (older === newer) return null;
  if (heightOf(older) === heightOf(newer)) return { reason: "sameHeight", proof: null };
  const given = { groupId, older: heightOf(older), newer: heightOf(newer) };
  const proof = await ask("rest/consistency", given, signal);
  try {
    const data = new TextEncoder().encode(JSON.stringify(proof));
    if ((await verifyConsistency(data, older, newer)) === chain) return null;
    return { reason: "otherChain", proof };
  } catch (error) {
    return { reason: "notProved", detail: error.message, proof };
  }
}

/**
 * Compare the latest checkpoint of a broker with the one that is kept, and keep it if it holds.
 *
 * @returns the chain, the latest checkpoint, the pin, and a contradiction or null: its reason, and
 *   what the pin was and what the broker says.
 */
export async function checkPin(groupId, signal) {
  const { chain } = await ask("rest/genesis", { groupId }, signal);
  const { checkpoint: latest } = await ask("rest/checkpoint", { groupId }, signal);
  const at = Date.now();
  const pin = readPin(groupId);
  const known = { chain, latest, at };
  if (!pin) {
    const first = { chain, first: latest, firstAt: at, checkpoint: latest, at };
    return { ...known, pin: keep(groupId, first), contradiction: null };
  }
  const found = (contradiction) => ({
    ...known, pin, contradiction: { ...contradiction, pinned: pin.checkpoint, latest },
  });
  if (pin.chain !== chain) return found({ reason: "otherChain" });
  // A checkpoint that the broker no longer has. Another broker of the network may be behind.
  if (heightOf(latest) < heightOf(pin.checkpoint)) return found({ reason: "shorter" });
  const contradiction = await compare(groupId, pin.checkpoint, latest, chain, signal);
  if (contradiction) return found(contradiction);
  return { ...known, pin: keep(groupId, { ...pin, checkpoint: latest, at }), contradiction: null };
}

/** Compare a checkpoint from elsewhere with the latest one of the broker. */
export async function checkOther(groupId, checkpoint) {
  const { chain } = await ask("rest/genesis", { groupId });
  const { checkpoint: latest } = await ask("rest/checkpoint", { groupId });
  if (heightOf(checkpoint) > heightOf(latest)) return { latest, contradiction: { reason: "shorter" } };
  return { latest, contradiction: await compare(groupId, checkpoint, latest, chain) };
}

// What a user of @stomp/stompjs does, over WebSocket, in one go; prints one JSON line.
//
// node stompjs.js MODULES URL VERSION

"use strict";

const path = require("path");
const [modules, url, version] = process.argv.slice(2);
const { Client } = require(path.join(modules, "@stomp/stompjs"));
// Node has a WebSocket of its own from version 22 on.
globalThis.WebSocket ??= require(path.join(modules, "ws"));

const found = { version: null, receipt: null, messages: [], error: null };
const client = new Client({
  brokerURL: url,
  stompVersions: new (require(path.join(modules, "@stomp/stompjs")).Versions)([version]),
  reconnectDelay: 0,
  heartbeatIncoming: 1000,
  heartbeatOutgoing: 1000,
});

function end() {
  console.log(JSON.stringify(found));
  process.exit(0);
}

client.onConnect = (frame) => {
  found.version = frame.headers.version;
  client.watchForReceipt("subscribed", () => {
    client.watchForReceipt("sent", (receipt) => {
      found.receipt = receipt.headers;
    });
    client.publish({
      destination: "js/topic",
      body: "häl:lo\n",
      headers: { "svc-tag": "a:b", receipt: "sent" },
    });
    client.publish({
      destination: "js/topic",
      binaryBody: new Uint8Array([0, 255, 10, 0]),
      headers: { "content-type": "application/octet-stream" },
    });
    const transaction = client.begin();
    client.publish({
      destination: "js/topic",
      body: "in a transaction",
      headers: { transaction: transaction.id },
    });
    transaction.commit();
  });
  client.subscribe(
    "js/#",
    (message) => {
      found.messages.push({
        body: Buffer.from(message.binaryBody).toString("base64"),
        headers: message.headers,
      });
      message.ack();
      if (found.messages.length === 3) {
        client.publish({ destination: "js/none", body: "x", headers: { receipt: "bad" } });
      }
    },
    { ack: "client-individual", receipt: "subscribed" },
  );
};
client.onStompError = (frame) => {
  found.error = frame.headers;
  end();
};
client.activate();

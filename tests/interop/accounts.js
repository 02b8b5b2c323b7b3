// Logs in with @stomp/stompjs and with mqtt.js over WebSocket, publishes to a topic and takes the
// message; prints what came of it as one JSON line.
//
// node accounts.js MODULES stomp|mqtt URL NAME PASSWORD TOPIC

"use strict";

const path = require("path");
const [modules, protocol, url, name, password, topic] = process.argv.slice(2);

function end(outcome) {
  console.log(JSON.stringify(outcome));
  process.exit(0);
}

function overStomp() {
  const { Client } = require(path.join(modules, "@stomp/stompjs"));
  // Node's own WebSocket, from version 22 on, cannot be given a certificate's authority.
  globalThis.WebSocket = require(path.join(modules, "ws"));
  const client = new Client({
    brokerURL: url,
    connectHeaders: { login: name, passcode: password },
    reconnectDelay: 0,
  });
  client.onStompError = (frame) => end({ error: frame.headers });
  client.onConnect = () => {
    client.watchForReceipt("subscribed", () => client.publish({ destination: topic, body: "x" }));
    client.subscribe(topic, (message) => end({ body: message.body }), { receipt: "subscribed" });
  };
  client.activate();
}

function overMqtt() {
  const mqtt = require(path.join(modules, "mqtt"));
  const options = { username: name, password, protocolVersion: 5, reconnectPeriod: 0 };
  const client = mqtt.connect(url, options);
  client.on("error", (error) => end({ error: { code: error.code } }));
  client.on("message", (_, payload) => end({ body: payload.toString() }));
  client.on("connect", async () => {
    try {
      await client.subscribeAsync(topic, { qos: 1 });
      await client.publishAsync(topic, "x", { qos: 1 });
    } catch (error) {
      end({ error: { code: error.code || error.message } });
    }
  });
}

({ stomp: overStomp, mqtt: overMqtt })[protocol]();

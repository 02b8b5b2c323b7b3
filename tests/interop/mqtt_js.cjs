// Publishes and takes three messages with mqtt.js, and prints them as JSON lines.
// Usage: node mqtt_js.cjs URL PROTOCOL-VERSION TOPIC
const mqtt = require("mqtt");

const [url, version, topic] = process.argv.slice(2);
const client = mqtt.connect(url, { protocolVersion: Number(version), reconnectPeriod: 0 });
let left = 3;

client.on("error", (error) => {
  console.error(String(error));
  process.exit(1);
});
client.on("message", (name, payload, packet) => {
  const properties = packet.properties || {};
  console.log(
    JSON.stringify({
      topic: name,
      payload: payload.toString(),
      qos: packet.qos,
      eventId: (properties.userProperties || {})["svc-eventId"] || null,
      contentType: properties.contentType || null,
    })
  );
  left -= 1;
  if (left === 0) client.end(false, () => process.exit(0));
});
client.on("connect", async () => {
  await client.subscribeAsync(topic, { qos: 2 });
  for (const qos of [0, 1, 2]) {
    const properties = version === "5" ? { contentType: "text/plain" } : undefined;
    await client.publishAsync(topic, "from js " + qos, { qos, properties });
  }
});

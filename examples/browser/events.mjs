// Publish and follow, in a browser or on Node: MQTT over WebSocket, with mqtt.js given as `mqtt`.

export function publish(mqtt, url, topic, contents) {
  const client = mqtt.connect(url, { protocolVersion: 5 });
  return Promise.all(contents.map((content) => client.publishAsync(topic, content, { qos: 1 })))
    .then(() => client.endAsync());
}

// Calls onEvent(id, topic, content) for each event, from the first one after `position` on, in
// order, also over lost connections. Keep the last id: given as `position` it goes on from there.
// The answer ends it.
export function follow(mqtt, url, pattern, position, onEvent) {
  const client = mqtt.connect(url, {
    protocolVersion: 5,
    resubscribe: false, // we do, from where we are
    properties: { receiveMaximum: 1 },
  });
  client.on("connect", () => {
    const userProperties = { "svc-offset": position ?? "OFFSET_FIRST" };
    client.subscribe(pattern, { qos: 1, properties: { userProperties } });
  });
  client.on("message", (topic, payload, packet) => {
    position = packet.properties.userProperties["svc-eventId"];
    onEvent(position, topic, payload.toString());
  });
  return () => client.end();
}

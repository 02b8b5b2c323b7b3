"""
Print the events of a topic or pattern: python follow.py HOST:PORT PATTERN STATE-FILE [COUNT]

The id of the last event that was handled is kept in STATE-FILE. The next run goes on strictly
after it; the first run begins at the first event there ever was. With COUNT it ends after so many.
"""

import sys
from pathlib import Path

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def main(address: str, pattern: str, file: str, count: str = "0") -> None:
    host, port = address.rsplit(":", 1)
    state = Path(file)
    left = int(count)

    def onConnect(client, userdata, flags, reason, properties):
        # Also after the connection was lost: what came meanwhile is not missed.
        position = state.read_text() if state.exists() else "OFFSET_FIRST"
        offset = Properties(PacketTypes.SUBSCRIBE)
        offset.UserProperty = ("svc-offset", position)
        client.subscribe(pattern, qos=1, properties=offset)

    def onMessage(client, userdata, message):
        nonlocal left
        eventId = dict(message.properties.UserProperty)["svc-eventId"]
        print(eventId, message.topic, message.payload.decode(), flush=True)
        # The event has been handled: only now is it the position to go on from.
        new = state.with_suffix(".new")
        new.write_text(eventId)
        new.replace(state)
        left -= 1
        if left == 0:
            client.disconnect()

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    # One event at a time: none arrives behind the one that ends the program.
    session = Properties(PacketTypes.CONNECT)
    session.ReceiveMaximum = 1
    client.on_connect, client.on_message = onConnect, onMessage
    client.connect(host, int(port), properties=session)
    client.loop_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""
Publish each line of standard input as an event: python publish.py HOST:PORT TOPIC

A line has been published when it is printed with OK: by then it is final and on disk.
"""

import sys

import paho.mqtt.client as mqtt


def main(address: str, topic: str) -> None:
    host, port = address.rsplit(":", 1)
    refused = {}

    def onPublish(client, userdata, number, reason, properties):
        if reason.is_failure:
            refused[number] = reason

    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.on_publish = onPublish
    client.connect(host, int(port))
    client.loop_start()
    for line in sys.stdin:
        content = line.rstrip("\n")
        published = client.publish(topic, content, qos=1)
        published.wait_for_publish()
        if published.mid in refused:
            sys.exit(f"{content}: {refused[published.mid]}")
        print("OK", content, flush=True)
    client.disconnect()
    client.loop_stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

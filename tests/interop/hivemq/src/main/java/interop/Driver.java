package interop;

import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt3.Mqtt3BlockingClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5BlockingClient;
import java.nio.charset.StandardCharsets;

/** Subscribes, publishes with each QoS in both versions, and prints what comes. */
public final class Driver {
    public static void main(String[] args) throws Exception {
        String host = args[0];
        int port = Integer.parseInt(args[1]);
        String topic = args[2];
        version3(host, port, topic + "/3");
        version5(host, port, topic + "/5");
    }

    private static void version3(String host, int port, String topic) throws Exception {
        Mqtt3BlockingClient client =
                MqttClient.builder().useMqttVersion3().serverHost(host).serverPort(port).buildBlocking();
        client.connect();
        try (Mqtt3BlockingClient.Mqtt3Publishes arriving = client.publishes(MqttGlobalPublishFilter.ALL)) {
            client.subscribeWith().topicFilter(topic).qos(MqttQos.EXACTLY_ONCE).send();
            for (MqttQos qos : MqttQos.values()) {
                client.publishWith().topic(topic).qos(qos).payload(text(qos)).send();
            }
            for (MqttQos ignored : MqttQos.values()) {
                var message = arriving.receive();
                print("3", message.getPayloadAsBytes(), message.getQos());
            }
        }
        client.disconnect();
    }

    private static void version5(String host, int port, String topic) throws Exception {
        Mqtt5BlockingClient client =
                MqttClient.builder().useMqttVersion5().serverHost(host).serverPort(port).buildBlocking();
        client.connect();
        try (Mqtt5BlockingClient.Mqtt5Publishes arriving = client.publishes(MqttGlobalPublishFilter.ALL)) {
            client.subscribeWith().topicFilter(topic).qos(MqttQos.EXACTLY_ONCE).send();
            for (MqttQos qos : MqttQos.values()) {
                client.publishWith().topic(topic).qos(qos).payload(text(qos)).send();
            }
            for (MqttQos ignored : MqttQos.values()) {
                var message = arriving.receive();
                print("5", message.getPayloadAsBytes(), message.getQos());
            }
        }
        client.disconnect();
    }

    private static byte[] text(MqttQos qos) {
        return ("with " + qos.getCode()).getBytes(StandardCharsets.UTF_8);
    }

    private static void print(String version, byte[] payload, MqttQos qos) {
        System.out.println(version + " " + new String(payload, StandardCharsets.UTF_8) + " " + qos.getCode());
    }
}

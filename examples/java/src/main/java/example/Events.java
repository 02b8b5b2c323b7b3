package example;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.eclipse.paho.mqttv5.client.IMqttToken;
import org.eclipse.paho.mqttv5.client.MqttAsyncClient;
import org.eclipse.paho.mqttv5.client.MqttCallback;
import org.eclipse.paho.mqttv5.client.MqttConnectionOptions;
import org.eclipse.paho.mqttv5.client.MqttDisconnectResponse;
import org.eclipse.paho.mqttv5.client.persist.MemoryPersistence;
import org.eclipse.paho.mqttv5.common.MqttException;
import org.eclipse.paho.mqttv5.common.MqttMessage;
import org.eclipse.paho.mqttv5.common.MqttSubscription;
import org.eclipse.paho.mqttv5.common.packet.MqttProperties;
import org.eclipse.paho.mqttv5.common.packet.UserProperty;

/**
 * Publish and follow events with Java.
 *
 * <pre>
 * java -cp 'target/events.jar:target/lib/*' example.Events publish tcp://HOST:PORT TOPIC
 * java -cp 'target/events.jar:target/lib/*' example.Events follow tcp://HOST:PORT PATTERN STATE [COUNT]
 * </pre>
 *
 * The first reads events from standard input, one a line. The second prints them from the first
 * one on; it keeps the id of the last one that was handled in the file STATE and goes on from there.
 */
public final class Events {
  public static void main(String[] words) {
    int status = 0;
    try {
      if (words[0].equals("publish")) {
        publish(words[1], words[2]);
      } else {
        int count = words.length > 4 ? Integer.parseInt(words[4]) : 0;
        follow(words[1], words[2], Path.of(words[3]), count);
      }
    } catch (Exception failure) {
      failure.printStackTrace();
      status = 1;
    }
    System.exit(status); // the client's threads may linger
  }

  private static MqttAsyncClient client(String url) throws MqttException {
    return new MqttAsyncClient(url, "", new MemoryPersistence());
  }

  private static void publish(String url, String topic) throws Exception {
    MqttAsyncClient client = client(url);
    client.connect().waitForCompletion();
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      // Completes once the event is final and on disk.
      IMqttToken published =
          client.publish(topic, line.getBytes(StandardCharsets.UTF_8), 1, false);
      published.waitForCompletion();
      int reason = published.getReasonCodes()[0];
      if (reason >= 0x80) {
        throw new IllegalStateException(line + ": refused for reason " + reason);
      }
      System.out.println("OK " + line);
    }
    client.disconnect().waitForCompletion();
  }

  private static void follow(String url, String pattern, Path state, int count) throws Exception {
    CountDownLatch done = new CountDownLatch(count > 0 ? count : Integer.MAX_VALUE);
    MqttAsyncClient client = client(url);
    client.setCallback(
        new MqttCallback() {
          @Override
          public void messageArrived(String topic, MqttMessage message) throws Exception {
            if (done.getCount() == 0) {
              return;
            }
            String id = "";
            for (UserProperty property : message.getProperties().getUserProperties()) {
              if (property.getKey().equals("svc-eventId")) {
                id = property.getValue();
              }
            }
            System.out.println(
                id + " " + topic + " " + new String(message.getPayload(), StandardCharsets.UTF_8));
            // The event has been handled: only now is it the position to go on from.
            Path made = Path.of(state + ".new");
            Files.writeString(made, id);
            Files.move(made, state, StandardCopyOption.ATOMIC_MOVE);
            done.countDown();
          }

          @Override
          public void disconnected(MqttDisconnectResponse response) {
            System.err.println("disconnected: " + response.getReasonString());
            System.exit(1); // start again to go on from the kept position
          }

          @Override
          public void mqttErrorOccurred(MqttException error) {
            System.err.println(error);
          }

          @Override
          public void deliveryComplete(IMqttToken token) {}

          @Override
          public void connectComplete(boolean isAgain, String server) {}

          @Override
          public void authPacketArrived(int reason, MqttProperties properties) {}
        });
    MqttConnectionOptions options = new MqttConnectionOptions();
    options.setReceiveMaximum(1);
    client.connect(options).waitForCompletion();
    String position = Files.exists(state) ? Files.readString(state) : "OFFSET_FIRST";
    MqttProperties properties = new MqttProperties();
    properties.setUserProperties(List.of(new UserProperty("svc-offset", position)));
    MqttSubscription[] subscriptions = {new MqttSubscription(pattern, 1)};
    client.subscribe(subscriptions, null, null, properties).waitForCompletion();
    done.await();
    client.disconnectForcibly(0, 1000, true);
  }
}

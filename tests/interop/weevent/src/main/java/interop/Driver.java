package interop;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.webank.weevent.sdk.BrokerException;
import com.webank.weevent.sdk.IWeEventClient;
import com.webank.weevent.sdk.SendResult;
import com.webank.weevent.sdk.WeEvent;
import com.webank.weevent.sdk.jms.WebSocketTransport;
import com.webank.weevent.sdk.jms.WeEventTopic;
import com.webank.weevent.sdk.jms.WeEventTopicConnection;
import com.webank.weevent.sdk.jms.WeEventTopicSubscriber;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import javax.jms.BytesMessage;
import javax.jms.JMSException;
import javax.jms.Session;
import javax.jms.TopicSession;
import org.springframework.messaging.Message;
import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompDecoder;
import org.springframework.messaging.simp.stomp.StompEncoder;
import org.springframework.messaging.simp.stomp.StompHeaderAccessor;
import org.springframework.messaging.support.MessageBuilder;

/**
 * Drives the client of WeEvent: reads commands, a line each, and prints a line for each answer and
 * each event.
 */
public final class Driver {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    /**
     * The WebSocket of the client. The client that Maven Central has is 1.0, where the body of a
     * MESSAGE is the event as JSON; in 1.1 the event is in the headers and the body.
     */
    private static final class Transport extends WebSocketTransport {
        private volatile Message<byte[]> answer;

        Transport(URI server) {
            super(server);
        }

        /** 1.0 wakes the thread that waits for an answer before it stores the answer. */
        @Override
        public Message<?> stompRequest(String frame, Long number) throws JMSException {
            answer = null;
            try {
                return super.stompRequest(frame, number);
            } catch (JMSException error) {
                if (answer == null) {
                    throw error;
                }
                return answer;
            }
        }

        @Override
        public void onMessage(String text) {
            ByteBuffer bytes = ByteBuffer.wrap(text.getBytes(StandardCharsets.UTF_8));
            for (Message<byte[]> frame : new StompDecoder().decode(bytes)) {
                if (StompHeaderAccessor.wrap(frame).getCommand() != StompCommand.MESSAGE) {
                    answer = frame;
                }
                super.onMessage(encode(adapt(frame)));
            }
        }

        private static Message<byte[]> adapt(Message<byte[]> frame) {
            StompHeaderAccessor headers = StompHeaderAccessor.wrap(frame);
            if (headers.getCommand() != StompCommand.MESSAGE) {
                return frame;
            }
            Map<String, String> extensions = new HashMap<>();
            for (Map.Entry<String, List<String>> each : headers.toNativeHeaderMap().entrySet()) {
                if (each.getKey().startsWith("weevent-")) {
                    extensions.put(each.getKey(), each.getValue().get(0));
                }
            }
            WeEvent event = new WeEvent(headers.getDestination(), frame.getPayload(), extensions);
            event.setEventId(headers.getFirstNativeHeader("eventId"));
            try {
                byte[] body = MAPPER.writeValueAsBytes(event);
                headers.setContentLength(body.length);
                return MessageBuilder.createMessage(body, headers.getMessageHeaders());
            } catch (java.io.IOException error) {
                throw new IllegalStateException(error);
            }
        }

        private static String encode(Message<byte[]> frame) {
            return new String(new StompEncoder().encode(frame), StandardCharsets.UTF_8);
        }
    }

    private final IWeEventClient client;
    private final WeEventTopicConnection connection;
    private final Map<String, TopicSession> sessions = new HashMap<>();

    private Driver(String url) throws Exception {
        client = build(url);
        Transport transport = new Transport(new URI(url.replace("http:", "ws:") + "/stomp"));
        transport.setConnectionLostTimeout(30);
        transport.setTimeout(10);
        transport.connectBlocking();
        connection = new WeEventTopicConnection(transport);
        connection.start();
    }

    /** The time-out of 1.0 has a race: see {@link Transport#stompRequest}. */
    private static IWeEventClient build(String url) throws BrokerException {
        for (int attempt = 1; ; attempt++) {
            try {
                return IWeEventClient.build(url);
            } catch (BrokerException error) {
                if (attempt == 50) {
                    throw error;
                }
            }
        }
    }

    private static synchronized void print(String... words) {
        System.out.println(String.join("\t", words));
    }

    private static void received(String subscriptionId, BytesMessage message) {
        try {
            byte[] body = new byte[(int) message.getBodyLength()];
            message.readBytes(body);
            WeEvent event = MAPPER.readValue(body, WeEvent.class);
            String content = new String(event.getContent(), StandardCharsets.UTF_8);
            String extensions = new TreeMap<>(event.getExtensions()).toString();
            print("event", event.getTopic(), event.getEventId(), content, extensions);
        } catch (Exception error) {
            print("failed", error.toString());
        }
    }

    private String subscribe(String filter, String offset) throws Exception {
        TopicSession session = connection.createTopicSession(false, Session.AUTO_ACKNOWLEDGE);
        WeEventTopic topic = (WeEventTopic) session.createTopic(filter);
        topic.setOffset(offset);
        topic.setGroupId("1");
        WeEventTopicSubscriber subscriber = (WeEventTopicSubscriber) session.createSubscriber(topic);
        String subscriptionId = subscriber.getSubscriptionId();
        subscriber.setMessageListener(message -> received(subscriptionId, (BytesMessage) message));
        sessions.put(subscriptionId, session);
        return subscriptionId;
    }

    private String perform(String command, String[] words) throws Exception {
        switch (command) {
            case "open":
                return String.valueOf(client.open(words[1], "1"));
            case "close":
                return String.valueOf(client.close(words[1]));
            case "exist":
                return String.valueOf(client.exist(words[1], "1"));
            case "publish":
                Map<String, String> extensions = new HashMap<>();
                extensions.put("weevent-tag", words[3]);
                byte[] content = words[2].getBytes(StandardCharsets.UTF_8);
                SendResult sent = client.publish(words[1], "1", content, extensions);
                return sent.getStatus() + " " + sent.getEventId();
            case "getEvent":
                WeEvent event = client.getEvent(words[1], "1");
                return new String(event.getContent(), StandardCharsets.UTF_8)
                    + " " + event.getExtensions();
            case "state":
                return client.state(words[1], "1").getSequenceNumber().toString();
            case "list":
                return client.list(0, 10, "1").getTotal().toString();
            case "subscribe":
                return subscribe(words[1], words[2]);
            case "unSubscribe":
                sessions.remove(words[1]).unsubscribe(words[1]);
                return "true";
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private void run() throws Exception {
        print("ready");
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            try {
                print("done", perform(words[0], words));
            } catch (BrokerException error) {
                print("refused", error.getMessage());
            } catch (Exception error) {
                print("failed", error.toString());
            }
        }
    }

    /** Begins with the context path of a broker, such as http://127.0.0.1:8080/weevent. */
    public static void main(String[] arguments) throws Exception {
        new Driver(arguments[0]).run();
        System.exit(0);
    }
}

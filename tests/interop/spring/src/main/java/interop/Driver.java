package interop;

import java.lang.reflect.Type;
import java.util.concurrent.CountDownLatch;
import org.springframework.messaging.converter.StringMessageConverter;
import org.springframework.messaging.simp.stomp.StompCommand;
import org.springframework.messaging.simp.stomp.StompHeaders;
import org.springframework.messaging.simp.stomp.StompSession;
import org.springframework.messaging.simp.stomp.StompSessionHandlerAdapter;
import org.springframework.web.socket.client.standard.StandardWebSocketClient;
import org.springframework.web.socket.messaging.WebSocketStompClient;

/**
 * Spring's client of STOMP over WebSocket at its defaults: URL, TOPIC, OFFSET, ACK. Writes a line for
 * each event, and "ended" with the reason when the connection ends.
 */
public final class Driver {
    public static void main(String[] arguments) throws InterruptedException {
        WebSocketStompClient client = new WebSocketStompClient(new StandardWebSocketClient());
        client.setMessageConverter(new StringMessageConverter());
        CountDownLatch end = new CountDownLatch(1);
        client.connectAsync(arguments[0], new Handler(arguments, end));
        end.await();
        System.exit(0);
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private static final class Handler extends StompSessionHandlerAdapter {
        private final String[] arguments;
        private final CountDownLatch end;

        Handler(String[] arguments, CountDownLatch end) {
            this.arguments = arguments;
            this.end = end;
        }

        @Override
        public void afterConnected(StompSession session, StompHeaders connected) {
            StompHeaders headers = new StompHeaders();
            headers.setDestination(arguments[1]);
            headers.set("eventId", arguments[2]);
            headers.setAck(arguments[3]);
            boolean isAcknowledged = !arguments[3].equals("auto");
            session.subscribe(headers, new StompSessionHandlerAdapter() {
                @Override
                public Type getPayloadType(StompHeaders message) {
                    return String.class;
                }

                @Override
                public void handleFrame(StompHeaders message, Object payload) {
                    say("event\t" + payload);
                    if (isAcknowledged) {
                        session.acknowledge(message.getAck(), true);
                    }
                }
            });
            say("ready");
        }

        @Override
        public void handleFrame(StompHeaders headers, Object payload) {
            ended("ERROR " + headers);
        }

        @Override
        public void handleException(
                StompSession session, StompCommand command, StompHeaders headers, byte[] payload, Throwable error) {
            ended(error.toString());
        }

        @Override
        public void handleTransportError(StompSession session, Throwable error) {
            ended(error.toString());
        }

        private void ended(String reason) {
            say("ended\t" + reason.replaceAll("\\s", " "));
            end.countDown();
        }
    }
}

// Subscribe, publish with each QoS, leave, and come back for what was published meanwhile, with both
// versions of MQTT. Prints what comes:
//
//     driver HOST PORT TOPIC

use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(60);

/// The same for both versions: each module that uses this imports the types of its own.
macro_rules! driver {
    () => {
        /// Wait for an event; others are left out.
        fn until(connection: &mut Connection, is_awaited: fn(&Event) -> bool) -> Event {
            loop {
                match connection.recv_timeout(TIMEOUT) {
                    Ok(Ok(event)) if is_awaited(&event) => return event,
                    Ok(Ok(_)) => {}
                    failed => panic!("{failed:?}"),
                }
            }
        }

        fn leave(client: Client, mut connection: Connection) {
            client.disconnect().unwrap();
            until(&mut connection, |event| matches!(event, Event::Outgoing(Outgoing::Disconnect)));
        }

        fn show(event: Event) {
            if let Event::Incoming(Packet::Publish(message)) = event {
                println!("{} {}", String::from_utf8_lossy(&message.payload), message.qos as u8);
            }
        }

        fn subscriber(host: &str, port: u16, topic: &str) -> (Client, Connection) {
            let mut options = MqttOptions::new(topic.replace('/', "-"), host, port);
            keep_session(&mut options);
            Client::new(options, 10)
        }

        pub fn run(host: &str, port: u16, topic: &str) {
            let (client, mut connection) = subscriber(host, port, topic);
            client.subscribe(format!("{topic}/+"), QoS::ExactlyOnce).unwrap();
            until(&mut connection, |event| matches!(event, Event::Incoming(Packet::SubAck(_))));
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                let number = qos as u8;
                client.publish(format!("{topic}/{number}"), qos, false, format!("with {number}")).unwrap();
            }
            // Three messages, and the last packets of QoS 2 in each direction.
            for _ in 0..5 {
                show(until(&mut connection, |event| {
                    matches!(
                        event,
                        Event::Incoming(Packet::Publish(_) | Packet::PubRel(_) | Packet::PubComp(_))
                    )
                }));
            }
            leave(client, connection);

            let (client, mut connection) =
                Client::new(MqttOptions::new(format!("{}-other", topic.replace('/', "-")), host, port), 10);
            client.publish(format!("{topic}/later"), QoS::AtLeastOnce, false, "later").unwrap();
            until(&mut connection, |event| matches!(event, Event::Incoming(Packet::PubAck(_))));
            leave(client, connection);

            let (client, mut connection) = subscriber(host, port, topic);
            until(&mut connection, |event| {
                matches!(event, Event::Incoming(Packet::ConnAck(answer)) if answer.session_present)
            });
            show(until(&mut connection, |event| matches!(event, Event::Incoming(Packet::Publish(_)))));
            leave(client, connection);
        }
    };
}

mod version3 {
    use super::TIMEOUT;
    use rumqttc::{Client, Connection, Event, MqttOptions, Outgoing, Packet, QoS};

    fn keep_session(options: &mut MqttOptions) {
        options.set_clean_session(false);
    }

    driver!();
}

mod version5 {
    use super::TIMEOUT;
    use rumqttc::v5::mqttbytes::{v5::Packet, QoS};
    use rumqttc::v5::{Client, Connection, Event, MqttOptions};
    use rumqttc::Outgoing;

    fn keep_session(options: &mut MqttOptions) {
        options
            .set_clean_start(false)
            .set_session_expiry_interval(Some(300));
    }

    driver!();
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let (host, port, topic) = (&arguments[1], arguments[2].parse().unwrap(), &arguments[3]);
    version3::run(host, port, &format!("{topic}/3"));
    version5::run(host, port, &format!("{topic}/5"));
}

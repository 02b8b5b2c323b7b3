// Subscribe, publish with each QoS, and print what comes:
//
//	paho-go BROKER TOPIC
//
// BROKER is a URL, such as tcp://127.0.0.1:1883.
package main

import (
	"fmt"
	"os"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

const timeout = 60 * time.Second

func wait(token mqtt.Token) {
	if !token.WaitTimeout(timeout) {
		fmt.Fprintln(os.Stderr, "no answer in time")
		os.Exit(1)
	}
	if token.Error() != nil {
		fmt.Fprintln(os.Stderr, token.Error())
		os.Exit(1)
	}
}

func main() {
	broker, topic := os.Args[1], os.Args[2]
	client := mqtt.NewClient(mqtt.NewClientOptions().AddBroker(broker))
	wait(client.Connect())
	arrived := make(chan mqtt.Message, 3)
	wait(client.Subscribe(topic, 2, func(_ mqtt.Client, message mqtt.Message) { arrived <- message }))
	for qos := byte(0); qos < 3; qos++ {
		wait(client.Publish(topic, qos, false, fmt.Sprintf("with %d", qos)))
	}
	for range 3 {
		select {
		case message := <-arrived:
			fmt.Println(string(message.Payload()), message.Qos())
		case <-time.After(timeout):
			fmt.Fprintln(os.Stderr, "no message in time")
			os.Exit(1)
		}
	}
	client.Disconnect(250)
}

// Publish and follow events with Go:
//
//	go run . publish HOST:PORT TOPIC                        each line of standard input
//	go run . follow HOST:PORT PATTERN STATE-FILE [COUNT]    from the first event, or where it was
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"

	"github.com/eclipse/paho.golang/paho"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) < 4 {
		log.Fatal("usage: publish HOST:PORT TOPIC | follow HOST:PORT PATTERN STATE-FILE [COUNT]")
	}
	if os.Args[1] == "publish" {
		publish(os.Args[2], os.Args[3])
		return
	}
	count := 0
	if len(os.Args) > 5 {
		count, _ = strconv.Atoi(os.Args[5])
	}
	follow(os.Args[2], os.Args[3], os.Args[4], count)
}

func connect(address string, config paho.ClientConfig) *paho.Client {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		log.Fatal(err)
	}
	config.Conn = connection
	client := paho.NewClient(config)
	// One event at a time: none arrives behind the one that ends the program.
	maximum := uint16(1)
	_, err = client.Connect(context.Background(), &paho.Connect{
		CleanStart: true,
		KeepAlive:  30,
		Properties: &paho.ConnectProperties{ReceiveMaximum: &maximum},
	})
	if err != nil {
		log.Fatal(err)
	}
	return client
}

func publish(address, topic string) {
	client := connect(address, paho.ClientConfig{})
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		event := &paho.Publish{Topic: topic, QoS: 1, Payload: lines.Bytes()}
		// The answer comes once the event is final and on disk.
		if _, err := client.Publish(context.Background(), event); err != nil {
			log.Fatal(err)
		}
		fmt.Println("OK", lines.Text())
	}
	_ = client.Disconnect(&paho.Disconnect{})
}

func follow(address, pattern, file string, count int) {
	done := make(chan error, 1)
	client := connect(address, paho.ClientConfig{
		OnClientError:      func(err error) { done <- err },
		OnServerDisconnect: func(d *paho.Disconnect) { done <- fmt.Errorf("reason %d", d.ReasonCode) },
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){
			func(received paho.PublishReceived) (bool, error) {
				event := received.Packet
				id := event.Properties.User.Get("svc-eventId")
				fmt.Println(id, event.Topic, string(event.Payload))
				// The event has been handled: only now is it the position to go on from.
				if err := os.WriteFile(file+".new", []byte(id), 0o600); err != nil {
					log.Fatal(err)
				}
				if err := os.Rename(file+".new", file); err != nil {
					log.Fatal(err)
				}
				if count--; count == 0 {
					done <- nil
				}
				return true, nil
			},
		},
	})
	position := "OFFSET_FIRST"
	if known, err := os.ReadFile(file); err == nil {
		position = string(known)
	}
	properties := &paho.SubscribeProperties{}
	properties.User.Add("svc-offset", position)
	_, err := client.Subscribe(context.Background(), &paho.Subscribe{
		Subscriptions: []paho.SubscribeOptions{{Topic: pattern, QoS: 1}},
		Properties:    properties,
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
	_ = client.Disconnect(&paho.Disconnect{})
}

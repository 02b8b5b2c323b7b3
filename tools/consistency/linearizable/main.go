// linearizable reads a history, a JSON object a line, and checks each topic of it with porcupine.
//
// It prints a line for each topic, and ends with 1 if the operations on one cannot have happened
// one after the other, each between its call and its end, and with 3 if that was not found out in
// time.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// operation is a write of a client; tools/consistency/history.py says what its fields mean.
type operation struct {
	Client   int
	Topic    string
	Kind     string
	Key      string
	Expected *int
	Call     int64
	End      *int64
	Result   string
	Sequence int
}

// topic is what the operations change. Keys has the number of each event whose key several
// operations have, as text so that states can be compared.
type topic struct {
	open  bool
	count int
	keys  string
}

func step(before, input, _ any) (bool, any) {
	state, done := before.(topic), input.(operation)
	switch done.Kind {
	case "open":
		state.open = true
		return true, state
	case "close":
		if done.Result == "absent" {
			return !state.open, state
		}
		// Where the outcome is not known it may have been refused.
		good := state.open || done.Result == "unknown"
		state.open = false
		return good, state
	}
	return publish(state, done)
}

func publish(state topic, done operation) (bool, any) {
	expected := done.Expected == nil || *done.Expected == state.count
	switch done.Result {
	case "absent":
		return !state.open, state
	case "conflict":
		return state.open && !expected && done.Sequence == state.count, state
	}
	if done.Key != "" {
		known := map[string]int{}
		if state.keys != "" {
			if err := json.Unmarshal([]byte(state.keys), &known); err != nil {
				panic(err)
			}
		}
		if sequence, used := known[done.Key]; used {
			return sequence == done.Sequence, state
		}
		known[done.Key] = done.Sequence
		text, err := json.Marshal(known)
		if err != nil {
			panic(err)
		}
		state.keys = string(text)
	}
	state.count++
	return state.open && expected && done.Sequence == state.count, state
}

// read returns the operations of each topic. A key that one operation has does not matter.
func read() map[string][]operation {
	topics := map[string][]operation{}
	uses := map[string]int{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one operation
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			fmt.Fprintln(os.Stderr, "linearizable: a line is no operation:", err)
			os.Exit(2)
		}
		topics[one.Topic] = append(topics[one.Topic], one)
		uses[one.Key]++
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, "linearizable:", err)
		os.Exit(2)
	}
	for _, operations := range topics {
		for number := range operations {
			if uses[operations[number].Key] == 1 {
				operations[number].Key = ""
			}
		}
	}
	return topics
}

func check(operations []operation, patience time.Duration) porcupine.CheckResult {
	history := make([]porcupine.Operation, 0, len(operations))
	for _, each := range operations {
		end := int64(math.MaxInt64)
		if each.End != nil {
			end = *each.End
		}
		history = append(history, porcupine.Operation{
			ClientId: each.Client, Input: each, Call: each.Call, Return: end,
		})
	}
	model := porcupine.Model{
		Init: func() any { return topic{} },
		Step: step,
	}
	return porcupine.CheckOperationsTimeout(model, history, patience)
}

func main() {
	patience := flag.Duration("timeout", time.Minute, "how long the check of a topic may take")
	flag.Parse()
	topics := read()
	names := make([]string, 0, len(topics))
	for name := range topics {
		names = append(names, name)
	}
	sort.Strings(names)
	status := 0
	for _, name := range names {
		result := check(topics[name], *patience)
		fmt.Printf("%s %d operations: %s\n", name, len(topics[name]), result)
		if result == porcupine.Illegal {
			status = 1
		} else if result == porcupine.Unknown && status == 0 {
			status = 3
		}
	}
	os.Exit(status)
}

// What Go's net/http does without a broker behind it: it parses the request as svcbroker does, and
// gives an answer as long as svcbroker's.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
)

const answer = `{"topic":"bench","eventId":"f3a7b2c1-1234567-123456","status":"SUCCESS"}`

func main() {
	http.HandleFunc("/svcbroker/rest/publish", func(writer http.ResponseWriter, request *http.Request) {
		if err := request.ParseForm(); err != nil || request.Form.Get("topic") != "bench" {
			http.Error(writer, "no topic", http.StatusBadRequest)
			return
		}
		header := writer.Header()
		header.Set("Content-Type", "application/json;charset=UTF-8")
		header.Set("Content-Length", strconv.Itoa(len(answer)))
		fmt.Fprint(writer, answer)
	})
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("version", runtime.Version())
	fmt.Println("serves", listener.Addr().(*net.TCPAddr).Port)
	fmt.Fprintln(os.Stderr, http.Serve(listener, nil))
	os.Exit(1)
}

// Verifies reveals of events by the reference implementation of age, and by verify-go for the proof.
//
//	reveal VERIFY-GO
//
// Each line of standard input is TRUSTED, a space, and a reveal; each line of output is what the
// event says, in Base64, or why it is refused.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"filippo.io/age"
)

type reveal struct {
	Format  string          `json:"format"`
	Proof   json.RawMessage `json:"proof"`
	FileKey *string         `json:"fileKey"`
}

type event struct {
	Content       *string           `json:"content"`
	ContentBase64 *string           `json:"contentBase64"`
	Extensions    map[string]string `json:"extensions"`
}

// A file key in the place of an identity: age checks the MAC of the header by it.
type fileKey []byte

func (key fileKey) Unwrap([]*age.Stanza) ([]byte, error) { return key, nil }

func prove(program, trusted string, proof []byte) (proved event, err error) {
	command := exec.Command(program)
	command.Stdin = strings.NewReader(trusted + " " + string(proof) + "\n")
	said, err := command.Output()
	if err != nil {
		return proved, err
	}
	shown, isProved := strings.CutPrefix(strings.TrimSpace(string(said)), "PROVED: ")
	if !isProved {
		return proved, errors.New(strings.TrimSpace(string(said)))
	}
	return proved, json.Unmarshal([]byte(shown), &proved)
}

func open(program, trusted string, data []byte) ([]byte, error) {
	var found reveal
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		return nil, err
	}
	if found.Format != "svcbroker/reveal/1" || found.Proof == nil {
		return nil, errors.New("it is no reveal")
	}
	proved, err := prove(program, trusted, found.Proof)
	if err != nil {
		return nil, err
	}
	var content []byte
	switch {
	case proved.Content != nil:
		content = []byte(*proved.Content)
	case proved.ContentBase64 != nil:
		if content, err = base64.StdEncoding.DecodeString(*proved.ContentBase64); err != nil {
			return nil, err
		}
	default:
		return nil, errors.New("the content is not there")
	}
	kind, isClosed := proved.Extensions["svc-encrypted"]
	if isClosed != (found.FileKey != nil) {
		return nil, errors.New("a key is there if the event is closed, and else none")
	}
	if !isClosed {
		return content, nil
	}
	key, err := hex.DecodeString(*found.FileKey)
	if err != nil || len(key) != 16 || kind != "age" {
		return nil, errors.New("it is no key of age")
	}
	reader, err := age.Decrypt(bytes.NewReader(content), fileKey(key))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(reader)
	if err != nil {
		return nil, err
	}
	padding, isPadded := proved.Extensions["svc-padding"]
	if !isPadded {
		return plain, nil
	}
	plain, isGood := bytes.CutSuffix(bytes.TrimRight(plain, " "), []byte("\n"))
	if !isGood || padding != "spaces" {
		return nil, errors.New("the padding is malformed")
	}
	return plain, nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<28)
	for lines.Scan() {
		trusted, data, _ := strings.Cut(lines.Text(), " ")
		plain, err := open(os.Args[1], trusted, []byte(data))
		if err != nil {
			fmt.Println("REFUSED:", err)
			continue
		}
		fmt.Println("OPENED:", base64.StdEncoding.EncodeToString(plain))
	}
}

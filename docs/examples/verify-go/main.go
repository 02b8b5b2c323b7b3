// Verify an event proof of svcbroker with nothing but Go, from docs/proofs.rst:
//
//	go run ./verify-go PROOF.json TRUSTED
//
// TRUSTED is what you trust: the hash of a genesis, or a checkpoint, HEIGHT:HASH. Without arguments, each line of
// standard input is TRUSTED, a space, and a proof; each line of output is the answer.
package main

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

type object = map[string]any
type nodeSet struct {
	since, generation uint64
	keys              [][]byte
}
type refusal string

func need(condition bool, why string) {
	if !condition {
		panic(refusal(why))
	}
}

func hash(parts ...[]byte) []byte {
	sum := sha256.Sum256(bytes.Join(parts, nil))
	return sum[:]
}

// What Go replaces without a word: bytes that are not UTF-8, and halves of surrogate pairs.
var escape = regexp.MustCompile(`\\(u[0-9a-fA-F]{4}|.)`)

func parse(data []byte) any {
	need(utf8.Valid(data), "no UTF-8")
	high := -1
	for _, at := range escape.FindAllIndex(data, -1) {
		code, _ := strconv.ParseUint(strings.TrimPrefix(string(data[at[0]+1:at[1]]), "u"), 16, 16)
		isLow := at[1]-at[0] == 6 && code >= 0xdc00 && code < 0xe000
		need(isLow == (high == at[0]), "half of a surrogate pair")
		if high = -1; at[1]-at[0] == 6 && code >= 0xd800 && code < 0xdc00 {
			high = at[1]
			need(bytes.HasPrefix(data[high:], []byte(`\u`)), "half of a surrogate pair")
		}
	}
	need(high < 0, "half of a surrogate pair")
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var value any
	need(decoder.Decode(&value) == nil, "no JSON")
	_, err := decoder.Token()
	need(err == io.EOF, "more after the proof")
	once(json.NewDecoder(bytes.NewReader(data)))
	if response, isObject := value.(object); isObject {
		if _, isResponse := response["jsonrpc"]; isResponse {
			return response["result"]
		}
	}
	return value
}

// Of two members with one name Go takes the last.
func once(decoder *json.Decoder) {
	token, _ := decoder.Token()
	isObject := token == json.Delim('{')
	if !isObject && token != json.Delim('[') {
		return
	}
	for names := map[any]bool{}; decoder.More(); {
		if isObject {
			name, _ := decoder.Token()
			need(!names[name], "a member is there twice")
			names[name] = true
		}
		once(decoder)
	}
	_, _ = decoder.Token()
}

// An object has these members, perhaps those, and no others.
func members(value any, names string, optional string) object {
	found, isObject := value.(object)
	need(isObject, "an object is missing")
	known := map[string]bool{}
	for _, name := range strings.Fields(names + " " + optional) {
		known[name] = true
	}
	for _, name := range strings.Fields(names) {
		_, isThere := found[name]
		need(isThere, name+" is missing")
	}
	for name := range found {
		need(known[name], "a member is not known")
	}
	return found
}

func number(value any, limit int) uint64 {
	text, _ := value.(json.Number)
	made, err := strconv.ParseUint(string(text), 10, limit)
	need(err == nil && strconv.FormatUint(made, 10) == string(text), "a number is not one")
	return made
}

func u64(value uint64) []byte { return binary.BigEndian.AppendUint64(nil, value) }
func u16(size int) []byte {
	need(size < 1<<16, "a text is too long")
	return binary.BigEndian.AppendUint16(nil, uint16(size))
}

func text(value any) string {
	made, isText := value.(string)
	need(isText, "a text is missing")
	return made
}

func items(value any) []any {
	made, isList := value.([]any)
	need(isList, "a list is missing")
	return made
}

func unhex(value any, size int) []byte {
	made, err := hex.DecodeString(text(value))
	need(err == nil && len(made) == size && hex.EncodeToString(made) == text(value), "no such digits")
	return made
}

func list(value any, size int) (made [][]byte) {
	for _, each := range items(value) {
		made = append(made, unhex(each, size))
	}
	return made
}

// Check that a path leads from a leaf to a root: RFC 6962, 2.1.1.
func checkPath(leaf []byte, index, size uint64, path any, root any, why string) {
	need(index < size, "there is no such leaf")
	siblings := list(path, 32)
	for last := size - 1; last > 0; index, last = index>>1, last>>1 {
		if index%2 == 1 || index < last {
			need(len(siblings) > 0, "a path is too short")
			if index%2 == 1 {
				leaf = hash([]byte{1}, siblings[0], leaf)
			} else {
				leaf = hash([]byte{1}, leaf, siblings[0])
			}
			siblings = siblings[1:]
		}
	}
	need(len(siblings) == 0, "a path is too long")
	need(hex.EncodeToString(leaf) == text(root), why)
}

// Keys must be canonical, and not of low order: these are the y coordinates of such points.
var prime = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 255), big.NewInt(19))
var eighth, _ = new(big.Int).SetString("7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7", 16)

func isSigned(key, message, signature []byte) bool {
	reversed := make([]byte, 32)
	for index, each := range key {
		reversed[31-index] = each
	}
	reversed[0] &= 127
	y := new(big.Int).SetBytes(reversed)
	other := new(big.Int).Sub(prime, y) // 0, 1, -1 and both eighths are of low order
	isLow := y.IsInt64() && y.Int64() < 2 || other.IsInt64() && other.Int64() == 1
	isLow = isLow || y.Cmp(eighth) == 0 || other.Cmp(eighth) == 0
	return y.Cmp(prime) < 0 && !isLow && ed25519.Verify(key, message, signature)
}

func setHash(set nodeSet) string {
	distinct := map[string]bool{}
	for _, key := range set.keys {
		distinct[string(key)] = true
	}
	need(len(set.keys) >= 1 && len(set.keys) <= 256 && len(distinct) == len(set.keys), "no set of nodes")
	keys := bytes.Join(set.keys, nil)
	return hex.EncodeToString(hash([]byte("svcbroker/validators\x00"), u64(set.generation), u16(len(set.keys)), keys))
}

const headerNames = "chain height parent history view proposer timestamp transactionRoot receiptRoot stateRoot" +
	" validators nextValidators transactionCount transactionTotal"

// The hash of a header of this chain.
func headerHash(value any, chain []byte) []byte {
	header := members(value, headerNames, "version")
	encoded := []byte("svcbroker/header\x02")
	if version, isThere := header["version"]; isThere {
		encoded[16] = byte(number(version, 8))
		need(encoded[16] == 3 || encoded[16] == 4, "the format of a header is not known")
	}
	for _, name := range strings.Fields(headerNames) {
		switch name {
		case "height", "view", "timestamp", "transactionTotal":
			encoded = append(encoded, u64(number(header[name], 64))...)
		case "proposer":
			encoded = append(encoded, u16(int(number(header[name], 16)))...)
		case "transactionCount":
			encoded = binary.BigEndian.AppendUint32(encoded, uint32(number(header[name], 32)))
		default:
			encoded = append(encoded, unhex(header[name], 32)...)
		}
	}
	need(header["chain"] == hex.EncodeToString(chain) && number(header["height"], 64) > 0, "another chain")
	return hash(encoded)
}

// Check that a header is signed by the nodes whose turn it was; its hash.
func checkFinal(value, certificate any, chain []byte, sets []nodeSet) []byte {
	made, header := headerHash(value, chain), value.(object)
	fields := members(certificate, "kind round signatures", "")
	need(fields["kind"] == "pbft", "certificates of this kind are not known")
	height := number(header["height"], 64)
	deciding := sets[0]
	for _, set := range sets {
		if set.since < height {
			deciding = set
		}
	}
	need(header["validators"] == setHash(deciding), "other nodes decided")
	vote := bytes.Join([][]byte{[]byte("svcbroker/vote\x03"), chain, u64(height), u64(number(fields["round"], 64)), made}, nil)
	count := len(deciding.keys)
	before, signers := -1, items(fields["signatures"])
	for _, each := range signers {
		signer := members(each, "node signature", "")
		node := int(number(signer["node"], 31))
		need(node > before && node < count, "signers are not in order")
		need(isSigned(deciding.keys[node], vote, unhex(signer["signature"], 64)), "a signature does not hold")
		before = node
	}
	need(len(signers) >= count-(count-1)/3, "there are too few signatures")
	return made
}

// The chain, and the nodes of each height.
func begin(proof object) ([]byte, []nodeSet) {
	genesis := members(proof["genesis"], "group created nodes chain", "topics")
	tag, rule := "svcbroker/genesis\x01", ""
	if topics, isRuled := genesis["topics"]; isRuled {
		need(topics == "utf8", "the genesis has another rule of topics")
		tag, rule = "svcbroker/genesis\x02", "\x01"
	}
	first := nodeSet{keys: list(genesis["nodes"], 32)}
	setHash(first)
	group := text(genesis["group"])
	chain := hash([]byte(tag), u16(len(group)), []byte(group), u64(number(genesis["created"], 64)),
		u16(len(first.keys)), bytes.Join(first.keys, nil), []byte(rule))
	need(genesis["chain"] == hex.EncodeToString(chain), "the genesis names another chain")
	sets := []nodeSet{first}
	changes, isThere := proof["changes"]
	if !isThere {
		return chain, sets
	}
	for _, each := range items(changes) {
		change := members(each, "header certificate nodes", "")
		checkFinal(change["header"], change["certificate"], chain, sets)
		header, last := change["header"].(object), sets[len(sets)-1]
		set := nodeSet{number(header["height"], 64), last.generation + 1, list(change["nodes"], 32)}
		need(set.since > last.since && header["nextValidators"] == setHash(set), "a change is to other nodes")
		sets = append(sets, set)
	}
	return chain, sets
}

func encodePairs(extensions object, keys []string) []byte {
	encoded := u16(len(keys))
	for _, key := range keys {
		value := text(extensions[key])
		encoded = append(append(encoded, u16(len(key))...), u16(len(value))...)
		encoded = append(append(encoded, key...), value...)
	}
	return encoded
}

// The hash of the transaction that published an event. Its author has signed it.
func transactionHash(value any, isVersioned bool, chain []byte) []byte {
	event, isObject := value.(object)
	need(isObject, "an event is missing")
	has := func(name string) bool { _, isThere := event[name]; return isThere }
	names, optional, version := "eventId topicName extensions sender nonce timestamp", " content contentBase64", uint64(1)
	isErased := isVersioned && has("commitment")
	if isErased {
		names, optional = names+" commitment", ""
	}
	if isVersioned {
		names, version = names+" version", number(event["version"], 8)
		need(version >= 1 && version <= 3, "the version is not known")
	}
	options, claims, seal, isSealed := byte(0), []byte(nil), []byte(nil), version != 1
	if isSealed {
		if !isErased {
			names += " salt"
			seal = unhex(event["salt"], 32)
		}
		if has("author") {
			options, names = 1, names+" author signedAt"
			claims = append(unhex(event["author"], 32), u64(number(event["signedAt"], 64))...)
			if !isErased {
				names += " signature"
				seal = append(seal, unhex(event["signature"], 64)...)
			}
			if version == 3 && has("statement") {
				options, names = options|16, names+" statement"
				need(number(event["statement"], 8) == 2, "the version of a statement is not known")
			}
		}
		if has("idempotencyKey") {
			options, names = options|2, names+" idempotencyKey"
			if !has("author") {
				names += " owner"
				claims = append(claims, unhex(event["owner"], 20)...)
			}
			key := text(event["idempotencyKey"])
			need(len(key) < 256, "an idempotency key is too long")
			claims = append(append(claims, byte(len(key))), key...)
		}
		if has("expectedSequence") {
			options, names = options|4, names+" expectedSequence"
			claims = append(claims, u64(number(event["expectedSequence"], 64))...)
		}
		if isErased && has("hasPrivateExtensions") {
			options, names = options|8, names+" hasPrivateExtensions"
			need(event["hasPrivateExtensions"] == true, "hasPrivateExtensions is true or absent")
		}
	}
	members(event, names, optional)
	extensions, isObject := event["extensions"].(object)
	need(isObject, "extensions are an object")
	var all, public, private []string
	for key := range extensions {
		all = append(all, key)
	}
	sort.Strings(all)
	for _, key := range all {
		if isSealed && strings.HasPrefix(key, "svc-private-") {
			private = append(private, key)
		} else {
			public = append(public, key)
		}
	}
	if private != nil {
		need(!isErased, "a private extension is not erased")
		options, seal = options|8, append(seal, encodePairs(extensions, private)...)
	}
	var content, commitment []byte
	if isErased {
		commitment = unhex(event["commitment"], 32)
		need(isSealed || !bytes.Equal(commitment, hash()), "there is a content: none")
	} else {
		need(has("content") != has("contentBase64"), "an event has one content")
		if has("content") {
			content = []byte(text(event["content"]))
		} else {
			content, _ = base64.StdEncoding.DecodeString(text(event["contentBase64"]))
			need(base64.StdEncoding.EncodeToString(content) == event["contentBase64"], "no canonical Base64")
		}
		commitment = hash(content)
		if isSealed {
			commitment = hash([]byte("svcbroker/content"), seal, content)
		}
	}
	topic := text(event["topicName"])
	if has("author") && !isErased {
		key, _ := event["idempotencyKey"].(string)
		statement := fmt.Sprintf("svcbroker/statement/%d\nchain=%x\ntopic=%s\ncontent=%x\ntime=%s\nkey=%s\n",
			1+options>>4, chain, topic, hash(content), event["signedAt"], key)
		if has("statement") {
			expected := event["expectedSequence"]
			if expected == nil {
				expected = ""
			}
			statement += fmt.Sprintf("expected=%s\n", expected)
		}
		for _, each := range all {
			statement += fmt.Sprintf("extension=%x:%x\n", each, extensions[each])
		}
		holds := isSigned(unhex(event["author"], 32), []byte(statement), unhex(event["signature"], 64))
		need(holds, "the author's signature does not hold")
	}
	head := append([]byte{0, byte(version), 3}, unhex(event["sender"], 20)...)
	head = append(append(head, u64(number(event["nonce"], 64))...), u64(number(event["timestamp"], 64))...)
	head = append(append(append(head, commitment...), u16(len(topic))...), topic...)
	if isSealed {
		head = append(append(head, options), claims...)
	}
	return hash(head, encodePairs(extensions, public))
}

var eventId = regexp.MustCompile(`^([0-9a-f]{8})-([1-9][0-9]{0,18})-([1-9][0-9]{0,18})$`)

// Check a proof from what is trusted, a chain or a checkpoint; the event, if it holds.
func verify(data []byte, trusted string) (event any, err error) {
	defer func() {
		switch reason := recover().(type) {
		case nil:
		case refusal:
			err = errors.New(string(reason))
		default:
			panic(reason)
		}
	}()
	proof := members(parse(data), "format event index transactionPath receiptPath block genesis", "changes checkpoint")
	format := proof["format"]
	isVersioned := format == "svcbroker/event-proof/3"
	isWhole := format == "svcbroker/event-proof/1"
	need(isWhole || isVersioned || format == "svcbroker/event-proof/2", "the format is not known")

	// 1. Genesis, and changes of the nodes
	chain, sets := begin(proof)

	// 2. The event's block
	block := members(proof["block"], "header", "certificate")
	isWhole = isWhole || isVersioned && block["certificate"] != nil
	need(isWhole || block["certificate"] == nil, "a certificate is there")
	own := headerHash(block["header"], chain)
	if isWhole {
		checkFinal(block["header"], block["certificate"], chain, sets)
	}
	header := block["header"].(object)
	height := number(header["height"], 64)

	// 3. The event
	leaf := transactionHash(proof["event"], isVersioned, chain)
	fields := proof["event"].(object)
	named := eventId.FindStringSubmatch(text(fields["eventId"]))
	need(named != nil, "the event's id is not one")
	sequence := number(json.Number(named[2]), 63)
	prefix := hex.EncodeToString(hash([]byte(text(fields["topicName"]))))[:8]
	need(named[1] == prefix && number(json.Number(named[3]), 63) == height, "the event's id is another one's")
	index, size := number(proof["index"], 64), number(header["transactionCount"], 32)
	checkPath(leaf, index, size, proof["transactionPath"], header["transactionRoot"], "the event is not in its block")
	receipt := hash([]byte{0}, leaf, []byte{0}, u64(sequence))
	checkPath(receipt, index, size, proof["receiptPath"], header["receiptRoot"], "the event was not published as this one")

	// 4. The checkpoint, if there is one, and what is trusted
	last, blocks, isFinal := height, fmt.Sprintf(" %d:%x ", height, own), isWhole
	if proof["checkpoint"] != nil {
		later := members(proof["checkpoint"], "header path", "certificate")
		kept := headerHash(later["header"], chain)
		if isWhole || later["certificate"] != nil {
			checkFinal(later["header"], later["certificate"], chain, sets)
			isFinal = true
		}
		fields := later["header"].(object)
		last = number(fields["height"], 64)
		checkPath(hash([]byte{0}, own), height, last, later["path"], fields["history"], "the block is not in the history")
		blocks += fmt.Sprintf("%d:%x ", last, kept)
	}
	need(isFinal || len(sets) == 1, "there are changes, and nothing is signed")
	need(sets[len(sets)-1].since < last, "there are more changes than it takes")
	isChain := isFinal && trusted == hex.EncodeToString(chain)
	need(isChain || trusted != "" && strings.Contains(blocks, " "+trusted+" "), "it does not lead to what is trusted")
	return fields, nil
}

func answer(data []byte, trusted string) bool {
	event, err := verify(data, trusted)
	if err != nil {
		fmt.Println("NOT PROVED:", err)
		return false
	}
	shown, _ := json.Marshal(event)
	fmt.Printf("PROVED: %s\n", shown)
	return true
}

func main() {
	if len(os.Args) == 1 {
		lines := bufio.NewScanner(os.Stdin)
		lines.Buffer(nil, 1<<28)
		for lines.Scan() {
			trusted, proof, _ := strings.Cut(lines.Text(), " ")
			answer([]byte(proof), trusted)
		}
		return
	}
	data, err := os.ReadFile(os.Args[1])
	if err != nil || len(os.Args) != 3 {
		fmt.Println("verify PROOF.json TRUSTED")
		os.Exit(2)
	}
	if !answer(data, os.Args[2]) {
		os.Exit(1)
	}
}

// Verify Transparent Statements and consistency receipts of SCITT (RFC 9943, RFC 9942) with the libraries of others:
//
//	scitt-go CASES
//
// CASES is a file of JSON: an array of objects, whose members are bytes in hexadecimal digits. Of each, a line is written: what
// is proved, or why it is refused.
package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/fxamacker/cbor/v2"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/veraison/go-cose"
)

const (
	receipts    = int64(394)
	treeKind    = int64(395)
	proofs      = int64(396)
	rfc9162     = int64(1)
	inclusion   = int64(-1)
	consistency = int64(-2)
)

// What is to be proved: the entry of the statement is in the tree of its receipt, and the tree of the receipt of the newer
// statement, where there is one, has everything that the tree of the older one has.
type testCase struct {
	Service   string `json:"service"`   // the COSE_KeySet of the service
	Issuer    string `json:"issuer"`    // that of the issuer
	Statement string `json:"statement"` // a Transparent Statement
	Newer     string `json:"newer"`     // the same one with a newer receipt; or empty
	Growth    string `json:"growth"`    // a consistency receipt from the tree of the one to that of the other; or empty
}

type head struct {
	size uint64
	root []byte
}

type path struct {
	_      struct{} `cbor:",toarray"`
	First  uint64
	Second uint64
	Hashes [][]byte
}

func need(condition bool, why string) error {
	if condition {
		return nil
	}
	return errors.New(why)
}

func readKeys(text string) ([]cose.Key, error) {
	data, err := hex.DecodeString(text)
	if err != nil {
		return nil, err
	}
	var keys []cose.Key
	return keys, cbor.Unmarshal(data, &keys)
}

// Verify the signature of a message by the key that it names.
func verify(message *cose.Sign1Message, keys []cose.Key) error {
	kid, isNamed := message.Headers.Protected[cose.HeaderLabelKeyID].([]byte)
	for _, key := range keys {
		if isNamed && bytes.Equal(key.ID, kid) {
			verifier, err := key.Verifier()
			if err != nil {
				return err
			}
			return message.Verify(nil, verifier)
		}
	}
	return errors.New("its key is not known")
}

// The one proof of a kind in a receipt.
func proofOf(receipt *cose.Sign1Message, kind int64) (found path, err error) {
	all, _ := receipt.Headers.Unprotected[proofs].(map[any]any)
	list, _ := all[kind].([]any)
	if receipt.Headers.Protected[treeKind] != rfc9162 || receipt.Payload != nil || len(list) != 1 {
		return found, errors.New("it has not one proof of its kind of a tree of RFC 9162")
	}
	data, _ := list[0].([]byte)
	return found, cbor.Unmarshal(data, &found)
}

// Verify a Transparent Statement with one receipt.
func verifyStatement(text string, service, issuer []cose.Key) (index uint64, tree head, err error) {
	data, err := hex.DecodeString(text)
	if err != nil {
		return
	}
	var statement, receipt cose.Sign1Message
	if err = statement.UnmarshalCBOR(data); err != nil {
		return
	}
	if err = verify(&statement, issuer); err != nil {
		return
	}
	list, _ := statement.Headers.Unprotected[receipts].([]any)
	if err = need(len(list) == 1, "it has not one receipt"); err != nil {
		return
	}
	inner, _ := list[0].([]byte)
	statement.Headers.RawUnprotected, statement.Headers.Unprotected = nil, cose.UnprotectedHeader{}
	entry, err := statement.MarshalCBOR()
	if err != nil {
		return
	}
	if err = receipt.UnmarshalCBOR(inner); err != nil {
		return
	}
	way, err := proofOf(&receipt, inclusion)
	if err != nil {
		return
	}
	leaf := rfc6962.DefaultHasher.HashLeaf(entry)
	root, err := proof.RootFromInclusionProof(rfc6962.DefaultHasher, way.Second, way.First, leaf, way.Hashes)
	if err != nil {
		return
	}
	receipt.Payload = root
	return way.Second, head{way.First, root}, verify(&receipt, service)
}

func verifyGrowth(text string, older, newer head, service []cose.Key) error {
	data, err := hex.DecodeString(text)
	if err != nil {
		return err
	}
	var receipt cose.Sign1Message
	if err = receipt.UnmarshalCBOR(data); err != nil {
		return err
	}
	way, err := proofOf(&receipt, consistency)
	if err != nil {
		return err
	}
	if err = need(way.First == older.size && way.Second == newer.size, "it is of other trees"); err != nil {
		return err
	}
	err = proof.VerifyConsistency(rfc6962.DefaultHasher, older.size, newer.size, way.Hashes, older.root, newer.root)
	if err != nil {
		return err
	}
	receipt.Payload = newer.root
	return verify(&receipt, service)
}

func (given testCase) verify() (string, error) {
	service, err := readKeys(given.Service)
	if err != nil {
		return "", err
	}
	issuer, err := readKeys(given.Issuer)
	if err != nil {
		return "", err
	}
	index, older, err := verifyStatement(given.Statement, service, issuer)
	if err != nil {
		return "", err
	}
	said := fmt.Sprintf("entry %d of %d, root %x", index, older.size, older.root)
	if given.Newer == "" {
		return said, nil
	}
	_, newer, err := verifyStatement(given.Newer, service, issuer)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, grown to %d", said, newer.size), verifyGrowth(given.Growth, older, newer, service)
}

func main() {
	data, err := os.ReadFile(os.Args[1])
	var cases []testCase
	if err == nil {
		err = json.Unmarshal(data, &cases)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	for _, each := range cases {
		said, err := each.verify()
		if err != nil {
			said = fmt.Sprintf("REFUSED: %q", err)
		}
		fmt.Println(said)
	}
}

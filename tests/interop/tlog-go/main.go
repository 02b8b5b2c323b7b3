// Follow a transparency log with the libraries of Go's own checksum database:
//
//	tlog-go LOG VKEY OLDER [PROOF ENTRY]...
//
// LOG is the URL of a log of c2sp.org/tlog-tiles, or the directory of one; VKEY its key; OLDER an earlier checkpoint of it.
// Each PROOF is a tlog-proof, and ENTRY the entry that it proves, in hexadecimal digits. Everything is verified: signatures,
// every tile, the inclusion of every entry, the growth from OLDER, and the proofs. The last line of output is the size.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "NOT VERIFIED:", err)
		os.Exit(1)
	}
}

func need(condition bool, why string, values ...any) {
	if !condition {
		check(fmt.Errorf(why, values...))
	}
}

// A log as its tiles. It implements tlog.TileReader.
type tiledLog struct{ place string }

func (log tiledLog) read(path string) ([]byte, error) {
	if !strings.HasPrefix(log.place, "http") {
		return os.ReadFile(filepath.Join(log.place, path))
	}
	answer, err := http.Get(log.place + "/" + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, data)
	}
	return data, err
}

func (log tiledLog) Height() int { return tileHeight }

// Go's own paths have the height of tiles in them.
func tilePath(tile tlog.Tile) string {
	return strings.Replace(tile.Path(), fmt.Sprintf("tile/%d/", tileHeight), "tile/", 1)
}

func (log tiledLog) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range tiles {
		data, err := log.read(tilePath(tile))
		if err != nil {
			return nil, err
		}
		all = append(all, data)
	}
	return all, nil
}

func (log tiledLog) SaveTiles(tiles []tlog.Tile, data [][]byte) {}

// The entries of the bundle that belongs to a tile of level 0.
func (log tiledLog) entries(tile tlog.Tile) [][]byte {
	path := strings.Replace(tilePath(tile), "tile/0/", "tile/entries/", 1)
	data, err := log.read(path)
	check(err)
	var entries [][]byte
	for len(data) >= 2 {
		size := int(binary.BigEndian.Uint16(data))
		need(len(data) >= 2+size, "%s ends early", path)
		entries, data = append(entries, data[2:2+size]), data[2+size:]
	}
	need(len(data) == 0 && len(entries) == tile.W, "%s has %d entries", path, len(entries))
	return entries
}

func open(data []byte, verifiers note.Verifiers) tlog.Tree {
	opened, err := note.Open(data, verifiers)
	check(err)
	lines := strings.Split(opened.Text, "\n")
	need(len(lines) >= 4 && lines[0] == opened.Sigs[0].Name, "not a checkpoint of %s", opened.Sigs[0].Name)
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err)
	root, err := tlog.ParseHash(lines[2])
	check(err)
	return tlog.Tree{N: size, Hash: root}
}

func checkProof(data []byte, entry []byte, verifiers note.Verifiers) {
	head, checkpoint, isWhole := bytes.Cut(data, []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	need(isWhole && lines[0] == "c2sp.org/tlog-proof@v1", "not a tlog-proof")
	lines = lines[1:]
	if strings.HasPrefix(lines[0], "extra ") {
		_, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(lines[0], "extra "))
		check(err)
		lines = lines[1:]
	}
	index, err := strconv.ParseInt(strings.TrimPrefix(lines[0], "index "), 10, 64)
	check(err)
	var path tlog.RecordProof
	for _, line := range lines[1:] {
		hash, err := tlog.ParseHash(line)
		check(err)
		path = append(path, hash)
	}
	tree := open(checkpoint, verifiers)
	check(tlog.CheckRecord(path, tree.N, tree.Hash, index, tlog.RecordHash(entry)))
}

func main() {
	arguments := os.Args[1:]
	log := tiledLog{arguments[0]}
	verifier, err := note.NewVerifier(arguments[1])
	check(err)
	verifiers := note.VerifierList(verifier)
	data, err := log.read("checkpoint")
	check(err)
	tree := open(data, verifiers)
	reader := tlog.TileHashReader(tree, log)

	for first := int64(0); first < tree.N; first += 1 << tileHeight {
		width := min(1<<tileHeight, tree.N-first)
		for place, entry := range log.entries(tlog.Tile{H: tileHeight, N: first >> tileHeight, W: int(width)}) {
			index := first + int64(place)
			hashes, err := reader.ReadHashes([]int64{tlog.StoredHashIndex(0, index)})
			check(err)
			need(hashes[0] == tlog.RecordHash(entry), "entry %d is not the one of its tile", index)
			if place%50 == 0 || index == tree.N-1 {
				proof, err := tlog.ProveRecord(tree.N, index, reader)
				check(err)
				check(tlog.CheckRecord(proof, tree.N, tree.Hash, index, tlog.RecordHash(entry)))
			}
		}
	}

	data, err = os.ReadFile(arguments[2])
	check(err)
	older := open(data, verifiers)
	growth, err := tlog.ProveTree(tree.N, older.N, reader)
	check(err)
	check(tlog.CheckTree(growth, tree.N, tree.Hash, older.N, older.Hash))

	for rest := arguments[3:]; len(rest) > 1; rest = rest[2:] {
		data, err := os.ReadFile(rest[0])
		check(err)
		entry, err := hex.DecodeString(rest[1])
		check(err)
		checkProof(data, entry, verifiers)
	}
	fmt.Printf("size %d, grown from %d\n", tree.N, older.N)
}

// Command page writes docs/performance.md and its pictures from the files in bench/results, and from
// nothing else: the same files give the same page.
//
//	go run ./page
//	go run ./page -record packets -command 'make bench-packets' -o results/packets-nftables.json <printed.json
//
// The second form stores what a measurement has printed in JSON as one of those files, with a
// description of this machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
)

func main() {
	results := flag.String("results", "results", "folder with the files to write about")
	docs := flag.String("docs", "../docs", "folder of performance.md and images")
	record := flag.String("record", "", "store what is on standard input as a result of this kind: compare, reaction, packets or node")
	command := flag.String("command", "", "with -record: what to type to repeat the measurement")
	out := flag.String("o", "", "with -record: the file to write")
	flag.Parse()
	var err error
	if *record != "" {
		err = store(*record, *command, *out)
	} else {
		err = write(*results, *docs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "page:", err)
		os.Exit(1)
	}
}

// store makes a record of what a measurement has printed.
func store(kind, command, out string) error {
	if command == "" || out == "" {
		return errors.New("-record requires -command and -o")
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	record := &result.Record{Kind: kind, Command: command, Machine: rig.ThisMachine(context.Background()), Data: text}
	if err := (&page{}).add(record); err != nil {
		return fmt.Errorf("-record: %w", err)
	}
	return record.Write(out)
}

// write writes the page and its pictures, and removes pictures that it has no more.
func write(results, docs string) error {
	files, err := render(results)
	if err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(docs, imagePrefix+"*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(docs, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Command devicesoracle answers questions about devices with upstream's packages.
//
// Each line on stdin is a JSON question, and each answer is one line of JSON on stdout. A question
// with "allocate" is about the allocator (allocate.go), any other one about a device selector
// (selectors.go). It ends with its stdin.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// question is one line of input.
type question struct {
	request
	Allocate *allocation `json:"allocate"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "devicesoracle:", err)
		os.Exit(1)
	}
}

func run() error {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	output := bufio.NewWriter(os.Stdout)
	for input.Scan() {
		var asked question
		if err := json.Unmarshal(input.Bytes(), &asked); err != nil {
			return err
		}
		line, err := json.Marshal(reply(asked))
		if err != nil {
			return err
		}
		output.Write(line)
		output.WriteByte('\n')
		if err := output.Flush(); err != nil {
			return err
		}
	}
	return input.Err()
}

func reply(asked question) any {
	if asked.Allocate != nil {
		return allocateAll(*asked.Allocate)
	}
	return evaluate(asked.request)
}

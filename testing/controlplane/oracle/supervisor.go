package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// patience is the time limit for one history.
const patience = 2 * time.Minute

// supervise answers every line of the input with a player's answer. A history that crashes its
// player or hangs is answered with an error, and another player takes the next one.
func supervise(input io.Reader, output io.Writer) error {
	reader := bufio.NewReaderSize(input, 1<<20)
	var worker *worker
	defer func() {
		if worker != nil {
			worker.end()
		}
	}()
	for {
		line, err := reader.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) != 0 {
			if worker == nil {
				started, failure := startWorker()
				if failure != nil {
					return failure
				}
				worker = started
			}
			answer, healthy := worker.ask(line)
			if !healthy {
				worker.end()
				worker = nil
			}
			if _, failure := output.Write(append(answer, '\n')); failure != nil {
				return failure
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// worker is a process that plays histories.
type worker struct {
	command *exec.Cmd
	input   io.WriteCloser
	output  *bufio.Reader
	errors  *bytes.Buffer
}

func startWorker() (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(program, "-play")
	input, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	errors := &bytes.Buffer{}
	command.Stderr = errors
	if err := command.Start(); err != nil {
		return nil, err
	}
	return &worker{command, input, bufio.NewReaderSize(output, 1<<20), errors}, nil
}

// ask returns the answer to a history, and whether the worker can take another one.
func (w *worker) ask(line []byte) ([]byte, bool) {
	hung := false
	timer := time.AfterFunc(patience, func() {
		hung = true
		_ = w.command.Process.Kill()
	})
	// A dead worker is noticed when it does not answer.
	_, _ = w.input.Write(append(line, '\n'))
	answer, err := w.output.ReadBytes('\n')
	inTime := timer.Stop()
	if err == nil {
		return bytes.TrimSpace(answer), inTime && !bytes.HasPrefix(answer, []byte(`{"error"`))
	}
	w.end()
	if hung {
		err = fmt.Errorf("no answer within %v", patience)
	} else {
		err = errors.New("the scheduler crashed: " + lastWords(w.errors.String()))
	}
	failure, _ := json.Marshal(&Answers{Error: err.Error()})
	return failure, false
}

// lastWords is the line that says why a Go program ended.
func lastWords(output string) string {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return "for no known reason"
}

func (w *worker) end() {
	_ = w.input.Close()
	_ = w.command.Process.Kill()
	_ = w.command.Wait()
}

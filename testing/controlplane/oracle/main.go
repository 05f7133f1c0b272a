// Command oracle plays histories with upstream's scheduler package. README.md describes its input
// and output.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"testing/synctest"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

func main() {
	var err error
	if len(os.Args) == 2 && os.Args[1] == "-play" {
		err = serve()
	} else if len(os.Args) == 1 {
		err = supervise(os.Stdin, os.Stdout)
	} else {
		err = errors.New("there are no arguments: histories come on stdin")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve answers the histories of the input in this process. It runs as a test, because a synctest
// bubble needs one; the output of the test itself is discarded.
func serve() error {
	prepare()
	output := os.Stdout
	silence, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	os.Stdout = silence
	os.Args = os.Args[:1]
	answer := func(t *testing.T) {
		if err := answerAll(t, bufio.NewReaderSize(os.Stdin, 1<<20), output); err != nil {
			fmt.Fprintln(os.Stderr, "oracle:", err)
			t.Fail()
		}
	}
	matches := func(_, _ string) (bool, error) { return true, nil }
	testing.Main(matches, []testing.InternalTest{{Name: "oracle", F: answer}}, nil, nil)
	return nil
}

// prepare starts what would otherwise start inside the first history's bubble, and silences what
// waits or writes.
func prepare() {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	var last string
	log := lastError{&last}
	klog.SetLogger(klog.New(log))
	utilruntime.ErrorHandlers = []utilruntime.ErrorHandler{log.handle}
	klog.OsExit = func(code int) {
		fmt.Fprintln(os.Stderr, "fatal error:", last)
		os.Exit(code)
	}
	metrics.Register()
	go calls.serve()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR2)
}

func answerAll(t *testing.T, input *bufio.Reader, output io.Writer) error {
	for {
		line, err := input.ReadBytes('\n')
		if len(line) != 0 {
			answer, failure := json.Marshal(answerLine(t, line))
			if failure != nil {
				return failure
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

func answerLine(t *testing.T, line []byte) (answers *Answers) {
	var history History
	if err := json.Unmarshal(line, &history); err != nil {
		return &Answers{Error: "decode the history: " + err.Error()}
	}
	excuse := func() {
		if value := recover(); value != nil {
			answers = &Answers{Error: fmt.Sprint("the oracle panicked: ", value)}
		}
	}
	defer excuse()
	answers = &Answers{}
	synctest.Test(t, func(*testing.T) {
		defer excuse()
		steps, err := play(&history)
		if err != nil {
			answers.Error = err.Error()
		} else {
			answers.Steps = steps
		}
	})
	return answers
}

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
)

// lastError is a log that keeps only the last error, for when the scheduler ends the process after
// it.
type lastError struct{ text *string }

// handle acts as utilruntime's error handler. Upstream's own handlers also sleep.
func (l lastError) handle(_ context.Context, err error, message string, values ...any) {
	l.Error(err, message, values...)
}

func (l lastError) Init(logr.RuntimeInfo)          {}
func (l lastError) Enabled(int) bool               { return false }
func (l lastError) Info(int, string, ...any)       {}
func (l lastError) WithValues(...any) logr.LogSink { return l }
func (l lastError) WithName(string) logr.LogSink   { return l }
func (l lastError) Error(err error, message string, values ...any) {
	text := message
	if err != nil {
		text += ": " + err.Error()
	}
	for i := 0; i+1 < len(values); i += 2 {
		text += fmt.Sprintf(" %v=%v", values[i], values[i+1])
	}
	*l.text = strings.ReplaceAll(text, "\n", " ")
}

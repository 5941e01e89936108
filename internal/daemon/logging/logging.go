// SPDX-License-Identifier: Apache-2.0

// Package logging opens the log of a process and routes the logs of the Kubernetes libraries through
// it. Level, verbosity, format and destination can change while loggers are in use.
package logging

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// Logger is the log of a process. Its level and format can change while it runs. There is only one,
// because the libraries of Kubernetes cannot switch to another while they run.
type Logger struct {
	*zap.Logger
	out  *switchable
	klog *flag.FlagSet
}

// New opens the log, and routes the logs of the libraries of Kubernetes through it.
func New(l config.Log) (*Logger, error) {
	made := &Logger{out: &switchable{}, klog: flag.NewFlagSet("klog", flag.ContinueOnError)}
	klog.InitFlags(made.klog)
	if err := made.Set(l); err != nil {
		return nil, err
	}
	made.Logger = zap.New(&logCore{out: made.out}, zap.AddCaller())
	libraries := zap.New(&logCore{out: made.out, numbered: true}, zap.AddCaller())
	klog.SetLoggerWithOptions(zapr.NewLoggerWithOptions(libraries.Named("client-go"), zapr.LogInfoLevel(""), zapr.ErrorKey(errorKey)),
		klog.FlushLogger(Flush)) // klog calls it before it ends the process
	return made, nil
}

// Set changes the level, the verbosity, the format and where the log goes.
func (l *Logger) Set(to config.Log) error {
	opened, err := newOutput(to, standardStreams)
	if err != nil {
		return err
	}
	if err := l.klog.Set("v", strconv.Itoa(to.Verbosity)); err != nil {
		return fmt.Errorf("verbosity of klog: %w", err)
	}
	var patterns []string
	for _, item := range to.VModule {
		patterns = append(patterns, fmt.Sprintf("%s=%d", item.FilePattern, item.Verbosity))
	}
	if err := l.klog.Set("vmodule", strings.Join(patterns, ",")); err != nil {
		return fmt.Errorf("vmodule of klog: %w", err)
	}
	l.out.set(opened)
	return nil
}

// PrintError prints the error with which a program ends: as a log line if the log is JSON, so that
// its stream contains nothing else, otherwise as plain text. The format is that of the configuration,
// or empty. Call Flush afterwards.
func PrintError(format string, err error) { printError(standardStreams.errors, format, err) }

func printError(to *stream, format string, err error) {
	if format == config.FormatJSON || format == config.FormatAuto && !isTerminal(to.file) {
		entry := zapcore.Entry{Level: zapcore.ErrorLevel, Time: time.Now(), Message: "ended with an error"}
		if line, failed := newJSONEncoder().EncodeEntry(entry, []zapcore.Field{zap.String(errorKey, err.Error())}); failed == nil {
			to.last(line.Bytes())
			return
		}
	}
	to.last(fmt.Appendf(nil, "Error: %s\n", terminal.Lines(err.Error())))
}

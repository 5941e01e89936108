package daemon

import (
	"flag"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"k8s.io/klog/v2"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// logger is the log of a process. Its level and format can change while it runs. There is only one,
// because the libraries of Kubernetes cannot switch to another while they run.
type logger struct {
	*zap.Logger
	out  *switchable
	klog *flag.FlagSet
}

// newLogger opens the log, and routes the logs of the libraries of Kubernetes through it.
func newLogger(l config.Log) (*logger, error) {
	made := &logger{out: &switchable{}, klog: flag.NewFlagSet("klog", flag.ContinueOnError)}
	klog.InitFlags(made.klog)
	if err := made.set(l); err != nil {
		return nil, err
	}
	made.Logger = zap.New(&logCore{out: made.out}, zap.AddCaller())
	libraries := zap.New(&logCore{out: made.out, numbered: true}, zap.AddCaller())
	klog.SetLoggerWithOptions(zapr.NewLoggerWithOptions(libraries.Named("client-go"), zapr.LogInfoLevel(""), zapr.ErrorKey(errorKey)),
		klog.FlushLogger(FlushLog)) // which it calls before it ends the process
	return made, nil
}

// set changes the level, the verbosity, the format and where the log goes.
func (l *logger) set(to config.Log) error {
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

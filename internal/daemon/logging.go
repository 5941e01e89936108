package daemon

import (
	"flag"
	"fmt"
	"os"
	"strconv"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// logger is the log of a process, whose level and format can change while it runs.
// There is one: the libraries of Kubernetes cannot be given another while they run.
type logger struct {
	*zap.Logger
	level  zap.AtomicLevel
	format *format
	klog   *flag.FlagSet
}

// newLogger opens the log on standard error, and routes the logs of Kubernetes
// libraries through it.
func newLogger(l config.Log) (*logger, error) {
	made := &logger{level: zap.NewAtomicLevel(), format: &format{}, klog: flag.NewFlagSet("klog", flag.ContinueOnError)}
	klog.InitFlags(made.klog)
	if err := made.set(l); err != nil {
		return nil, err
	}
	made.Logger = zap.New(&logCore{format: made.format}, zap.AddCaller(), zap.ErrorOutput(zapcore.Lock(os.Stderr)))
	klog.SetLogger(zapr.NewLogger(made.Named("client-go")))
	return made, nil
}

// set changes what is logged, and in which format.
func (l *logger) set(to config.Log) error {
	level, err := zapcore.ParseLevel(to.Level)
	if err != nil {
		return err
	}
	opened, err := zapConfig(to.Format, l.level).Build()
	if err != nil {
		return fmt.Errorf("cannot open the log: %w", err)
	}
	l.level.SetLevel(level)
	l.format.set(opened.Core())
	if err := l.klog.Set("v", strconv.Itoa(to.Verbosity)); err != nil {
		return fmt.Errorf("verbosity of klog: %w", err)
	}
	pattern := ""
	for _, item := range to.VModule {
		pattern += fmt.Sprintf("%s=%d,", item.FilePattern, item.Verbosity)
	}
	if err := l.klog.Set("vmodule", pattern); err != nil {
		return fmt.Errorf("vmodule of klog: %w", err)
	}
	return nil
}

func zapConfig(format string, level zap.AtomicLevel) zap.Config {
	var made zap.Config
	if format == "console" || (format == "auto" && terminal(os.Stderr)) {
		made = zap.NewDevelopmentConfig()
		made.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		made.EncoderConfig.CallerKey = zapcore.OmitKey
		made.Development = false
	} else {
		made = zap.NewProductionConfig()
		made.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		made.EncoderConfig.EncodeDuration = zapcore.SecondsDurationEncoder
		made.Sampling = nil
	}
	made.Level = level
	made.DisableStacktrace = true
	return made
}

// terminal tells whether a file is a terminal (ioctl_tty(2)).
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

package daemon

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// logger is the log of a process. Its level and format can change while it runs. There is only one,
// because the libraries of Kubernetes cannot switch to another while they run.
type logger struct {
	*zap.Logger
	level  zap.AtomicLevel
	format *format
	klog   *flag.FlagSet
}

// newLogger opens the log on standard error, and routes the logs of the libraries of Kubernetes
// through it.
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

// set changes the level, the verbosity of the libraries and the format.
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

// terminal reports whether a file is a terminal (ioctl_tty(2)).
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// format is the core that writes the log now.
type format struct{ core atomic.Pointer[zapcore.Core] }

func (f *format) set(core zapcore.Core) { f.core.Store(&core) }

func (f *format) now() zapcore.Core { return *f.core.Load() }

// logCore lets the format change under loggers that others have derived from it: it keeps their
// fields unencoded, and encodes them with each entry. It implements zapcore.Core.
type logCore struct {
	format *format
	fields []zapcore.Field
}

// Enabled reports whether entries of a level are written.
func (c *logCore) Enabled(level zapcore.Level) bool { return c.format.now().Enabled(level) }

// With returns a core that adds fields to each entry.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{c.format, append(slices.Clip(c.fields), fields...)}
}

// Check adds this core to those that write an entry.
func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write writes an entry.
func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	return c.format.now().Write(entry, append(slices.Clip(c.fields), fields...))
}

// Sync flushes the log.
func (c *logCore) Sync() error { return c.format.now().Sync() }

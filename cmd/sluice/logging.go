package main

import (
	"fmt"
	"os"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// logOptions are the flags about logs.
type logOptions struct {
	level  string
	format string
}

func (o *logOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.level, "log-level", "info", "how much to log: debug, info, warn or error")
	flags.StringVar(&o.format, "log-format", "auto", "how to log to standard error: console, json, or auto (console on a terminal)")
}

// logger makes the logger, and routes the logs of client-go through it.
func (o *logOptions) logger() (*zap.Logger, error) {
	config, err := o.config()
	if err != nil {
		return nil, err
	}
	log, err := config.Build()
	if err != nil {
		return nil, fmt.Errorf("cannot open the log: %w", err)
	}
	klog.SetLogger(zapr.NewLogger(log.Named("client-go")))
	return log, nil
}

// levels are those that the flag names; zap knows some that end the program.
var levels = map[string]zapcore.Level{
	"debug": zapcore.DebugLevel, "info": zapcore.InfoLevel, "warn": zapcore.WarnLevel, "error": zapcore.ErrorLevel,
}

// config checks the flags.
func (o *logOptions) config() (config zap.Config, err error) {
	level, ok := levels[o.level]
	if !ok {
		return config, usageError{fmt.Errorf("--log-level %q: want debug, info, warn or error", o.level)}
	}
	switch {
	case o.format == "console", o.format == "auto" && terminal(os.Stderr):
		config = zap.NewDevelopmentConfig()
		config.EncoderConfig.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		config.EncoderConfig.CallerKey = zapcore.OmitKey
		config.Development = false
	case o.format == "json", o.format == "auto":
		config = zap.NewProductionConfig()
		config.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
		config.EncoderConfig.EncodeDuration = zapcore.SecondsDurationEncoder
		config.Sampling = nil
	default:
		return config, usageError{fmt.Errorf("--log-format %q: want auto, console or json", o.format)}
	}
	config.Level = zap.NewAtomicLevelAt(level)
	config.DisableStacktrace = true
	return config, nil
}

// terminal tells whether a file is a terminal (ioctl_tty(2)).
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

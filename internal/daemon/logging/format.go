// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/terminal"
)

// newOutput opens a log. As with kube-proxy, everything goes to standard error, unless a split is configured: then only
// errors do.
func newOutput(l config.Log, to streams) (*output, error) {
	least, err := zapcore.ParseLevel(l.Level)
	if err != nil {
		return nil, err
	}
	o := &output{least: least, verbosity: l.Verbosity, own: l.OwnVerbosity}
	for _, item := range l.VModule {
		o.modules = append(o.modules, module{item.FilePattern, int(item.Verbosity)})
		o.modulesMax = max(o.modulesMax, int(item.Verbosity))
	}
	format := l.Format
	if format == config.FormatAuto {
		format = config.FormatJSON
		if isTerminal(to.errors.file) {
			format = config.FormatConsole
		}
	}
	var encoder zapcore.Encoder
	switch format {
	case config.FormatText:
		encoder = newKlogEncoder()
	case config.FormatJSON:
		encoder, o.numbered = newJSONEncoder(), true
	case config.FormatConsole:
		encoder = newConsoleEncoder()
	default:
		return nil, fmt.Errorf("cannot open the log: unknown format %q", l.Format)
	}
	// logCore has decided before what is logged.
	everything := zap.LevelEnablerFunc(func(zapcore.Level) bool { return true })
	o.errors = zapcore.NewCore(encoder, to.errors, everything)
	o.info = o.errors
	if l.SplitStream {
		o.info = zapcore.NewCore(encoder.Clone(), to.standard, everything)
	}
	return o, nil
}

// jsonKeys are the names and forms of fields in the JSON logs of the components of Kubernetes
// (component-base/logs/json), and in addition the level, which those logs lack.
var jsonKeys = zapcore.EncoderConfig{
	LevelKey: "level", TimeKey: "ts", NameKey: "logger", CallerKey: "caller", MessageKey: "msg",
	EncodeLevel: zapcore.LowercaseLevelEncoder, EncodeTime: zapcore.EpochMillisTimeEncoder,
	EncodeDuration: zapcore.StringDurationEncoder, EncodeCaller: zapcore.ShortCallerEncoder,
}

// jsonEncoder is zap's, with all control characters escaped.
type jsonEncoder struct{ zapcore.Encoder }

func newJSONEncoder() jsonEncoder { return jsonEncoder{zapcore.NewJSONEncoder(jsonKeys)} }

// Clone returns an encoder with the same fields.
func (e jsonEncoder) Clone() zapcore.Encoder { return jsonEncoder{e.Encoder.Clone()} }

// EncodeEntry returns a line.
func (e jsonEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	line, err := e.Encoder.EncodeEntry(entry, fields)
	if err != nil {
		return line, err
	}
	if escaped := terminal.JSON(line.Bytes()); len(escaped) > line.Len() {
		line.Reset()
		line.AppendBytes(escaped)
	}
	return line, err
}

// consoleEncoder is zap's encoder for people, which quotes values but not messages. It escapes messages, because those
// of libraries may contain the response of a server.
type consoleEncoder struct{ jsonEncoder }

func newConsoleEncoder() consoleEncoder {
	return consoleEncoder{jsonEncoder{zapcore.NewConsoleEncoder(consoleKeys())}}
}

// Clone returns an encoder with the same fields.
func (e consoleEncoder) Clone() zapcore.Encoder {
	return consoleEncoder{jsonEncoder{e.Encoder.Clone()}}
}

// EncodeEntry returns a line.
func (e consoleEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = printable(entry.Message)
	return e.jsonEncoder.EncodeEntry(entry, fields)
}

// consoleKeys returns the columns of the format for people.
func consoleKeys() zapcore.EncoderConfig {
	keys := zap.NewDevelopmentEncoderConfig()
	keys.EncodeTime = zapcore.TimeEncoderOfLayout(time.DateOnly + " 15:04:05.000")
	keys.CallerKey = zapcore.OmitKey
	return keys
}

// isTerminal reports whether a file is a terminal (ioctl_tty(2)).
func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

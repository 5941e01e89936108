package logging

import (
	"bytes"
	"fmt"
	"os"
	"time"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// newOutput opens a log. As with kube-proxy, everything goes to standard error, unless a split is
// asked for: then only errors do.
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
		if terminal(to.errors.file) {
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
	// The core in front of these has decided what is logged.
	everything := zap.LevelEnablerFunc(func(zapcore.Level) bool { return true })
	o.errors = zapcore.NewCore(encoder, to.errors, everything)
	o.info = o.errors
	if l.SplitStream {
		o.info = zapcore.NewCore(encoder.Clone(), to.standard, everything)
	}
	return o, nil
}

// jsonKeys are the names and forms of fields in the JSON logs of the components of Kubernetes
// (component-base/logs/json), and in addition the level, which these do not have.
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
	if err == nil && bytes.ContainsFunc(line.Bytes(), leftByJSON) {
		escaped := escapeControls(line.Bytes())
		line.Reset()
		line.AppendBytes(escaped)
	}
	return line, err
}

// leftByJSON reports whether a character is a control character that JSON need not escape
// (RFC 8259, section 7).
func leftByJSON(r rune) bool { return r >= 0x7f && r <= 0x9f }

// escapeControls returns a copy of JSON text with escapes for these.
func escapeControls(text []byte) (escaped []byte) {
	for _, r := range string(text) {
		if leftByJSON(r) {
			escaped = fmt.Appendf(escaped, "\\u%04x", r)
		} else {
			escaped = utf8.AppendRune(escaped, r)
		}
	}
	return escaped
}

// consoleEncoder is zap's for people, which quotes values but not messages. Those of libraries may
// hold what a server has answered.
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

// terminal reports whether a file is a terminal (ioctl_tty(2)).
func terminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/internal/terminal"
)

// klogEncoder writes lines as klog does, which kube-proxy uses:
//
//	W1122 11:33:41.123456    2214 observe.go:91] "Message" key="value" count=3
//
// It gets all fields with the entry, because logCore keeps those of derived loggers.
type klogEncoder struct {
	zapcore.ObjectEncoder
	pid int
}

func newKlogEncoder() *klogEncoder { return &klogEncoder{pid: os.Getpid()} }

// lines are the buffers of the encoder.
var lines = buffer.NewPool()

// Clone returns the encoder, which has no state.
func (e *klogEncoder) Clone() zapcore.Encoder { return e }

// EncodeEntry returns a line.
func (e *klogEncoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	line := lines.Get()
	file, number := "???", 1
	if entry.Caller.Defined {
		file, number = filepath.Base(entry.Caller.File), entry.Caller.Line
	}
	fmt.Fprintf(line, "%c%s %7d %s:%d] %s", severity(entry.Level), entry.Time.Format("0102 15:04:05.000000"),
		e.pid, file, number, strconv.Quote(entry.Message))
	if entry.LoggerName != "" {
		writeKlogText(line, "logger", entry.LoggerName)
	}
	for _, f := range fields {
		values := zapcore.NewMapObjectEncoder()
		f.AddTo(values)
		for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
			writeKlogValue(line, key, values.Fields[key])
		}
	}
	line.AppendByte('\n')
	return line, nil
}

// severity returns the letter for a level.
func severity(level zapcore.Level) byte {
	switch {
	case level >= zapcore.DPanicLevel:
		return 'F'
	case level == zapcore.ErrorLevel:
		return 'E'
	case level == zapcore.WarnLevel:
		return 'W'
	default:
		return 'I'
	}
}

// writeKlogValue writes one pair. Text is quoted, numbers are not, and all else is JSON.
func writeKlogValue(line *buffer.Buffer, key string, value any) {
	switch v := value.(type) {
	case string:
		writeKlogText(line, key, v)
	case time.Duration:
		writeKlogText(line, key, v.String())
	case time.Time:
		writeKlogText(line, key, v.Format(time.RFC3339Nano))
	default:
		text, err := json.Marshal(v)
		if err != nil {
			text = strconv.AppendQuote(nil, fmt.Sprint(v))
		}
		fmt.Fprintf(line, " %s=%s", key, terminal.JSON(text))
	}
}

// printable escapes what could move a terminal's cursor. Text without such characters is unchanged.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r != '\t' && !unicode.IsPrint(r) }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

// writeKlogText writes a pair whose value is text. Text of several lines is indented between =<
// and >.
func writeKlogText(line *buffer.Buffer, key, text string) {
	if !strings.Contains(text, "\n") {
		fmt.Fprintf(line, " %s=%s", key, strconv.Quote(text))
		return
	}
	fmt.Fprintf(line, " %s=<\n", key)
	for part := range strings.Lines(text) {
		line.AppendByte('\t')
		line.AppendString(printable(strings.TrimSuffix(part, "\n")))
		line.AppendByte('\n')
	}
	line.AppendString(" >")
}

// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"errors"
	"strings"
	"testing"
	"unicode"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// FuzzLogLine: with any message and value, an entry has only as many lines as it announces, none looks like the
// beginning of another entry, and none moves a terminal's cursor.
func FuzzLogLine(f *testing.F) {
	f.Add("message", "ns/web", "plain")
	f.Add("a\nb", "I1122 11:33:41.123456 1 x.go:1] \"forged\"", "two\nI1122 lines\r\x1b[2J\x00\xff\u202e")
	f.Add("a\x7f", "\u009b2J", "\x7f\u0085")
	f.Fuzz(func(t *testing.T, message, value, reason string) {
		fields := []zapcore.Field{zap.String("service", value), named(zap.Error(errors.New(reason))), zap.Strings("all", []string{value, reason})}
		for name, encoder := range map[string]zapcore.Encoder{
			"text": newKlogEncoder(), "json": newJSONEncoder(), "console": newConsoleEncoder(),
		} {
			line, err := encoder.EncodeEntry(zapcore.Entry{Message: message}, fields)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.TrimSuffix(line.String(), "\n")
			for i, part := range strings.Split(text, "\n") {
				if name != "text" && i > 0 || i > 0 && part != " >" && !strings.HasPrefix(part, " >") && !strings.HasPrefix(part, "\t") {
					t.Errorf("%s: line %d of %q", name, i, text)
				}
				if strings.ContainsFunc(part, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
					t.Errorf("%s: %q", name, part)
				}
			}
		}
	})
}

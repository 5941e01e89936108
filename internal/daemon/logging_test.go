package daemon

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// TestTheFormatChangesUnderLoggers: the fields of a derived logger appear in both formats.
func TestTheFormatChangesUnderLoggers(t *testing.T) {
	var out bytes.Buffer
	sink, level := zapcore.AddSync(&out), zap.NewAtomicLevel()
	encoding := zap.NewProductionEncoderConfig()
	f := &format{}
	f.set(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), sink, level))
	log := zap.New(&logCore{format: f}).Named("part").With(zap.Int("a", 1))
	log.Info("first", zap.Int("b", 2))
	log.Debug("not told")
	f.set(zapcore.NewCore(zapcore.NewConsoleEncoder(encoding), sink, level))
	level.SetLevel(zap.DebugLevel)
	log.With(zap.Int("c", 3)).Debug("second")
	log.Info("third")
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{`"logger":"part","msg":"first","a":1,"b":2}`, "second\t{\"a\": 1, \"c\": 3}", "third\t{\"a\": 1}", ""} {
		if i >= len(lines) || !strings.HasSuffix(lines[i], want) {
			t.Fatalf("line %d, want %q:\n%s", i, want, out.String())
		}
	}
	check(t, log.Sync())
}

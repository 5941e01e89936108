package logging

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// PrintError prints the error with which a program ends: as a log line if the log is JSON, so that
// its stream contains nothing else, otherwise as plain text. The format is that of the configuration,
// or empty. Call Flush afterwards.
func PrintError(format string, err error) { printError(standardStreams.errors, format, err) }

func printError(to *stream, format string, err error) {
	if format == config.FormatJSON || format == config.FormatAuto && !terminal(to.file) {
		entry := zapcore.Entry{Level: zapcore.ErrorLevel, Time: time.Now(), Message: "ended with an error"}
		if line, failed := newJSONEncoder().EncodeEntry(entry, []zapcore.Field{zap.String(errorKey, err.Error())}); failed == nil {
			to.last(line.Bytes())
			return
		}
	}
	to.last(fmt.Appendf(nil, "Error: %v\n", err))
}

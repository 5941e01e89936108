package daemon

import (
	"fmt"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// PrintError prints the error with which a program ends: as a line of the log where that is JSON, so
// that nothing else is in its stream, otherwise in words. A configuration that could not be loaded
// has the format of the flags; asked says whether they ask for JSON. FlushLog has to follow.
func (o *Options) PrintError(asked bool, err error) { o.printError(standardStreams.errors, asked, err) }

func (o *Options) printError(to *stream, asked bool, err error) {
	format := ""
	if o.Config != nil {
		format = o.Log().Format
	}
	if asked || format == config.FormatJSON || format == config.FormatAuto && !terminal(to.file) {
		entry := zapcore.Entry{Level: zapcore.ErrorLevel, Time: time.Now(), Message: "ended with an error"}
		if line, failed := newJSONEncoder().EncodeEntry(entry, []zapcore.Field{zap.String(errorKey, err.Error())}); failed == nil {
			to.last(line.Bytes())
			return
		}
	}
	to.last(fmt.Appendf(nil, "Error: %v\n", err))
}

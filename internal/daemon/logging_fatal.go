package daemon

import (
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// PrintError prints the error with which a program ends: as a line of the log where that is JSON, so
// that nothing else is in its stream, otherwise in words. A configuration that could not be loaded
// has the format of the flags; asked says whether they ask for JSON.
func (o *Options) PrintError(to *os.File, asked bool, err error) {
	format := ""
	if o.Config != nil {
		format = o.Log().Format
	}
	if asked || format == config.FormatJSON || format == config.FormatAuto && !terminal(to) {
		entry := zapcore.Entry{Level: zapcore.ErrorLevel, Time: time.Now(), Message: "ended with an error"}
		if line, failed := newJSONEncoder().EncodeEntry(entry, []zapcore.Field{zap.String(errorKey, err.Error())}); failed == nil {
			_, _ = to.Write(line.Bytes())
			return
		}
	}
	fmt.Fprintf(to, "Error: %v\n", err)
}

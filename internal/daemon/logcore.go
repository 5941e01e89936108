package daemon

import (
	"slices"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
)

// format is how a log is written now.
type format struct{ core atomic.Pointer[zapcore.Core] }

func (f *format) set(core zapcore.Core) { f.core.Store(&core) }

func (f *format) now() zapcore.Core { return *f.core.Load() }

// logCore writes in a format that can change under the loggers that others have
// made of it: what they say of themselves is kept as it was said, and written anew
// with each entry. It implements zapcore.Core.
type logCore struct {
	format *format
	said   []zapcore.Field
}

// Enabled tells whether entries of a level are written.
func (c *logCore) Enabled(level zapcore.Level) bool { return c.format.now().Enabled(level) }

// With gives a core that says more with each entry.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{c.format, append(slices.Clip(c.said), fields...)}
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
	return c.format.now().Write(entry, append(slices.Clip(c.said), fields...))
}

// Sync has what was written reach the disk.
func (c *logCore) Sync() error { return c.format.now().Sync() }

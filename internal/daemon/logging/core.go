// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// errorKey is the name that the components of Kubernetes give to an error in a line.
const errorKey = "err"

// switchable holds the output that is in use now.
type switchable struct{ now atomic.Pointer[output] }

func (s *switchable) set(to *output) { s.now.Store(to) }

// logCore lets the output change under loggers that others have derived from it: it keeps their
// fields unencoded, and encodes them with each entry. It implements zapcore.Core.
type logCore struct {
	out    *switchable
	fields []zapcore.Field
	// numbered means that levels below info are verbosities, which zapr derives from those of klog.
	numbered bool
}

// verbosity returns the verbosity of klog that a level below info stands for. Sluice itself logs at zap's debug level,
// and, below it, at verbosities by number; see observe.ChangeLevel.
func (c *logCore) verbosity(level zapcore.Level) int {
	switch {
	case level >= zapcore.InfoLevel:
		return 0
	case level == zapcore.DebugLevel && !c.numbered:
		return config.DebugVerbosity
	default:
		return -int(level)
	}
}

// admits reports whether entries of a level are written, given the verbosity that applies to their file.
func (c *logCore) admits(o *output, level zapcore.Level, verbosity int) bool {
	if level >= zapcore.InfoLevel {
		return level >= o.least
	}
	return o.least <= zapcore.InfoLevel && c.verbosity(level) <= verbosity
}

func (c *logCore) threshold(o *output) int {
	if c.numbered {
		return o.verbosity
	}
	return o.own
}

// Enabled reports whether entries of a level are written, at least for some files.
func (c *logCore) Enabled(level zapcore.Level) bool {
	o := c.out.now.Load()
	return c.admits(o, level, max(c.threshold(o), o.modulesMax))
}

// With returns a core that adds fields to each entry.
func (c *logCore) With(fields []zapcore.Field) zapcore.Core {
	return &logCore{c.out, append(slices.Clip(c.fields), fields...), c.numbered}
}

// Check adds this core to those that write an entry.
func (c *logCore) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// Write writes an entry, unless it is more verbose than its file may be.
func (c *logCore) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	o := c.out.now.Load()
	if !c.admits(o, entry.Level, max(c.threshold(o), o.verbosityOf(entry.Caller))) {
		return nil
	}
	all := make([]zapcore.Field, 0, len(c.fields)+len(fields)+2)
	if !c.numbered {
		all = append(all, identify(entry)...)
	}
	for _, f := range append(slices.Clip(c.fields), fields...) {
		all = append(all, named(f))
	}
	if o.numbered && entry.Level < zapcore.ErrorLevel {
		all = append(all, zap.Int("v", c.verbosity(entry.Level)))
	}
	entry.Level = max(entry.Level, zapcore.DebugLevel)
	if entry.Level < zapcore.ErrorLevel {
		return o.info.Write(entry, all)
	}
	return o.errors.Write(entry, all)
}

// Sync waits until what was logged is written, but not for long.
func (c *logCore) Sync() error {
	o := c.out.now.Load()
	return errors.Join(o.errors.Sync(), o.info.Sync())
}

// named gives an error the name and the form that it has in other components: its text, in one
// field.
func named(f zapcore.Field) zapcore.Field {
	err, ok := f.Interface.(error)
	if f.Type != zapcore.ErrorType || !ok {
		return f
	}
	if f.Key == "error" {
		f.Key = errorKey
	}
	return zap.String(f.Key, err.Error())
}

// output is where the log goes, and which entries are written.
type output struct {
	// errors gets errors, and info all else.
	errors, info zapcore.Core
	// least is the lowest level that is written; verbosities count if it is info or less.
	least zapcore.Level
	// verbosity is klog's, and own the one of Sluice's own lines, which log.level may change.
	verbosity, own int
	modules        []module
	modulesMax     int
	// numbered adds the verbosity to each line.
	numbered bool
}

// module is a verbosity for the files whose names match.
type module struct {
	pattern   string
	verbosity int
}

// verbosityOf returns the verbosity that --vmodule sets for the file of a caller, or 0.
func (o *output) verbosityOf(caller zapcore.EntryCaller) int {
	name := strings.TrimSuffix(filepath.Base(caller.File), ".go")
	for _, m := range o.modules {
		if ok, err := filepath.Match(m.pattern, name); err == nil && ok {
			return m.verbosity
		}
	}
	return 0
}

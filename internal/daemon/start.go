package daemon

import (
	"runtime"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// announce logs, once per process, which program this is and how it is configured.
func (o *Options) announce(log *zap.Logger) {
	log.Info("starting", zap.String("version", o.Version), zap.String("behavesLike", "kube-proxy "+Compatible),
		zap.String("go", runtime.Version()), zap.String("kernel", kernelRelease()))
	given, changed := o.Flags.Given(), o.Flags.Changed(o.Config)
	fields := []zap.Field{zap.Strings("flags", given), zap.Strings("differsFromDefaults", changed)}
	if o.File != "" {
		fields = append([]zap.Field{zap.String("file", o.File)}, fields...)
	}
	log.Info("effective configuration", fields...)
}

// kernelRelease returns what uname -r prints.
func kernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// modeReason says why this mode serves.
func (s *server) modeReason() string {
	switch {
	case s.choice != nil && s.mode == config.ModeNFTables:
		return "no mode is set, and the kernel supports nftables"
	case s.choice != nil:
		return "no mode is set, and the kernel lacks what nftables mode needs"
	case s.File != "":
		return "set in " + s.File
	default:
		return "set by --proxy-mode"
	}
}

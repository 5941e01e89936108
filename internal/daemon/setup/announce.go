// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"runtime"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Announce logs, once per process, which program this is and how it is configured.
func (o *Options) Announce(log *zap.Logger) {
	log.Info("starting", zap.String("version", o.Version), zap.String("behavesLike", "kube-proxy "+Compatible),
		zap.String("go", runtime.Version()), zap.String("kernel", KernelRelease()))
	given, changed := o.Flags.Given(), o.Flags.Changed(o.Config)
	fields := []zap.Field{zap.Strings("flags", given), zap.Strings("differsFromDefaults", changed)}
	if len(o.Files) > 0 {
		fields = append([]zap.Field{zap.Strings("files", o.Files)}, fields...)
	}
	log.Info("effective configuration", fields...)
}

// KernelRelease returns what uname -r prints.
func KernelRelease() string {
	var name unix.Utsname
	if unix.Uname(&name) != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(name.Release[:])
}

// ModeReason returns why a backend serves.
func (o *Options) ModeReason(b *Backend) string {
	switch {
	case b.Choice != nil && b.Choice.Lacks == nil:
		return "no mode is set, and the kernel supports nftables"
	case b.Choice != nil:
		return "no mode is set, and the kernel lacks features required by nftables mode"
	case o.KubeProxyFile != "":
		return "set in " + o.KubeProxyFile
	default:
		return "set by --proxy-mode"
	}
}

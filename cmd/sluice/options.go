package main

import (
	"context"
	"errors"
	"os"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// options are what the flags of a command, and the file that they name, come to.
type options struct {
	*config.Config
	flags    *config.Flags
	warnings []config.Warning
	// sandboxed keeps everything in private namespaces; only run has it.
	sandboxed bool
	// flagValues gives the flags as they were typed or left.
	flagValues func() map[string]string
	// ready, when set, is called once the backend is chosen.
	ready func(backend.Mode)
}

// load reads flags and file, and refuses what cannot be before anything is touched.
func (o *options) load() (err error) {
	o.Config, o.warnings, err = o.flags.Load()
	if err != nil {
		if _, wrong := errors.AsType[*config.InvalidError](err); wrong {
			return usageError{err}
		}
		return err
	}
	return o.check()
}

// check refuses what this program cannot do.
func (o *options) check() error {
	switch {
	case o.sandboxed && o.KubeProxy.Mode == config.ModeIPVS && os.Geteuid() != 0:
		// The kernel lets the host's root alone change virtual servers (GENL_ADMIN_PERM).
		return usageError{errors.New(`--proxy-mode "ipvs": works in a sandbox only for root; use nftables`)}
	case o.sandboxed && o.Sluice.IPTables.Variant == "legacy" && os.Geteuid() != 0:
		// /proc/net/ip_tables_names is for the host's root alone.
		return usageError{errors.New("--sluice-iptables-variant legacy: works in a sandbox only for root; use nft")}
	}
	if _, err := o.NodeName(); err != nil {
		return usageError{err}
	}
	return nil
}

// mode is the backend that is asked for.
func (o *options) mode() backend.Mode { return backend.Mode(o.KubeProxy.Mode) }

// choice tells which mode was chosen, where none is asked for.
func (s *server) choice(ctx context.Context) *backend.Choice {
	if s.options.mode() != backend.ModeBest {
		return nil
	}
	return &backend.Choice{Reach: s.reach(), Former: backend.FindFormer(ctx), Log: s.log.Logger}
}

// reach says where node ports answer if nftables mode is chosen.
func (o *options) reach() string {
	where := "all addresses"
	if listed := o.KubeProxy.NodePortAddresses; len(listed) > 0 {
		where = strings.Join(listed, " ")
	}
	if o.ForwardsLocalhost() {
		return "node ports answer on " + where + ", localhost included,"
	}
	return "node ports answer on " + where + " but not on localhost"
}

// warn logs what is odd in the configuration.
func (o *options) warn(log *zap.Logger) {
	for _, w := range o.warnings {
		log.Warn("configuration", zap.Stringer("at", w.Place), zap.String("problem", w.Message))
	}
}
